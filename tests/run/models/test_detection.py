"""Lists of images and targets: torchvision's detectors, through their own losses."""

import pytest
import torch
from torch import nn

from neuroinit.experiments.vision import torchvision
from tests.utils.moving import ni
from tests.utils.snapshots import assert_unchanged, snapshot

pytest.importorskip("torchvision")


BOXES = torch.tensor([[2.0, 3.0, 14.0, 17.0], [8.0, 8.0, 20.0, 22.0]])


def detector():
    """A RetinaNet of two convolutions; its training needs no operator of torchvision's own."""
    from torchvision.models.detection import RetinaNet
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    torchvision()
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GELU(), nn.Conv2d(8, 16, 3, 2, 1))
    backbone.out_channels = 16
    anchors = AnchorGenerator(sizes=((8, 16),), aspect_ratios=((1.0,),))
    return RetinaNet(backbone, 4, min_size=32, max_size=48, anchor_generator=anchors)


def batches(count, size=8):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        images = [torch.rand(3, 32, 32 + 4 * (k % 3), generator=generator) for k in range(size)]
        targets = [
            {
                "boxes": torch.tensor(
                    [[2.0, 3.0, 14.0, 17.0], [8.0, 8.0, 20.0, 22.0]][: 1 + k % 2]
                ),
                "labels": torch.randint(1, 4, (1 + k % 2,), generator=generator),
            }
            for k in range(size)
        ]
        yield images, targets


def detection_loss(model, batch):
    return sum(model(*batch).values())


@pytest.mark.filterwarnings("ignore:The gradient norm is")
def test_a_detector_is_initialized_and_its_modes_come_back():
    model = detector().eval()
    before = snapshot(model)
    result = ni.optimize(
        model, batches(3), compute_loss=detection_loss, method=ni.NIO(steps=2, sub_batches=4)
    )
    assert_unchanged(before, model)
    assert len(result.history) == 2
    assert len(result.after.norms) == 4


def test_gradient_statistics_of_a_detector():
    stats = ni.gradient_stats(
        detector(), next(batches(1)), compute_loss=detection_loss, sub_batches=4
    )
    assert stats.norm > 0
    assert len(stats.norms) == 4


@pytest.mark.filterwarnings("ignore:The gradient norm is")
def test_an_image_with_as_many_boxes_as_channels_is_one_sample():
    """Such a sub-batch of one image looked like three samples, and ended the run."""
    model, (images, targets) = detector(), next(batches(1, 4))
    three = {"boxes": torch.cat([BOXES, BOXES[:1]]), "labels": torch.ones(3, dtype=torch.long)}
    batch = images, [*targets[:3], three]
    found = ni.gradient_stats(model, batch, compute_loss=detection_loss, sub_batches=4)
    assert found.norms.shape == (4,)
