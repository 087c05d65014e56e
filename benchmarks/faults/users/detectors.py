"""torchvision's detectors, and batches of few samples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import neuroinit as ni
from benchmarks.faults.users.batches import _labels, network, over, sample
from benchmarks.faults.users.checks import Case, refused, sure, told, unchanged


def _images(equal: bool) -> list[tuple[list[Tensor], list[dict[str, Tensor]]]]:
    """Images with one or two boxes each."""
    generator, found = torch.Generator().manual_seed(0), []
    boxes = torch.tensor([[2.0, 3.0, 14.0, 17.0], [8.0, 8.0, 20.0, 22.0]])
    for _ in range(3):
        widths = [32 if equal else 32 + 4 * (k % 3) for k in range(8)]
        images = [torch.rand(3, 32, width, generator=generator) for width in widths]
        targets = [
            {"boxes": boxes[: 1 + k % 2], "labels": torch.randint(1, 4, (1 + k % 2,))}
            for k in range(8)
        ]
        found.append((images, targets))
    return found


def detector(name: str) -> nn.Module:
    """A detector of torchvision with a small backbone, not pretrained."""
    from neuroinit.experiments.vision import torchvision

    torchvision()
    from torchvision.models import detection
    from torchvision.models.detection.anchor_utils import AnchorGenerator

    torch.manual_seed(0)
    if name == "SSDlite":
        return detection.ssdlite320_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=4
        )
    backbone: Any = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GELU(), nn.Conv2d(8, 32, 3, 2, 1))
    backbone.out_channels = 32
    kind = {"RetinaNet": detection.RetinaNet, "FCOS": detection.FCOS}[name]
    sizes = ((8, 16),) if name == "RetinaNet" else ((8,),)
    anchors = AnchorGenerator(sizes=sizes, aspect_ratios=((1.0,),))
    return kind(backbone, 4, min_size=32, max_size=48, anchor_generator=anchors)


def detected(name: str, equal: bool, tuples: bool, method: ni.Initialization) -> None:
    """A detector by its own losses; batches are lists, or tuples as of ``tuple(zip(*batch))``."""
    model, batches = detector(name), _images(equal)
    if tuples:
        batches = [tuple(map(tuple, batch)) for batch in batches]  # type: ignore[misc]

    def loss(model: nn.Module, batch: Any) -> Tensor:
        return sum(model(*map(list, batch)).values())

    with unchanged(model):
        found = ni.optimize(model, batches, None, method, loss)
        sure(found.history and found.after is not None, "no step")


def _joined(size: int) -> None:
    """Batches of few samples are joined, with a warning, or are fewer sub-batches."""
    model = network()
    x, y = torch.stack([sample(k)[0] for k in range(32)]), _labels(32)
    loader = DataLoader(TensorDataset(x, y), batch_size=size)
    with unchanged(model), told("too small for 8 sub-batches"):
        found = ni.optimize(model, loader, method=ni.NIO(steps=2, rule=ni.HeldNorm()))
    sure(found.after is not None and len(found.after.norms) == 8, "not eight sub-batches")


def _fewer(size: int) -> None:
    """Batches of other lengths cannot be joined: fewer sub-batches."""
    model = network()
    data = [(torch.stack([sample(k, 2 + b) for k in range(size)]), _labels(size)) for b in range(5)]
    loss = lambda m, b: over(m, b[0], b[1])  # noqa: E731
    with unchanged(model):
        if size == 1:
            with refused(ValueError, "A batch of 1 samples cannot be cut"):
                ni.optimize(model, data, None, ni.NIO(steps=2), loss)
            return
        with told(f"A batch has {size} samples, fewer than `sub_batches = 8`"):
            found = ni.optimize(model, data, None, ni.NIO(steps=2), loss)
        sure(found.settings["sub_batches"] == size, "other sub-batches")


def cases() -> Iterator[Case]:
    """Items 6 and 7."""
    bound = ni.NIO(steps=1, sub_batches=4, rule=ni.HeldNorm())
    for name in ("RetinaNet", "FCOS", "SSDlite"):
        for equal in (True, False) if name != "SSDlite" else (True,):
            for tuples in (False, True):
                form_of = (
                    f"{'equal' if equal else 'other'} sizes, {'tuples' if tuples else 'lists'}"
                )
                yield Case(
                    6,
                    f"{name}: {form_of}",
                    partial(
                        detected,
                        name,
                        equal,
                        tuples,
                        bound if name != "SSDlite" else ni.NIO(steps=1, sub_batches=4),
                    ),
                )
    for size in range(1, 8):
        yield Case(7, f"a loader with batches of {size}", partial(_joined, size))
        yield Case(7, f"batches of {size} of different lengths", partial(_fewer, size))
