"""What augmentation does to each image."""

import torch

from neuroinit.experiments.data.augmentation import Augmentation
from neuroinit.experiments.data.datasets import load

NOTHING = Augmentation(crop=0, flip=False)


def batch_of(data, count=64):
    return next(data.epoch(0, count, seed=0))


def test_crop_and_flip_move_every_image_independently():
    data = load("digits")
    images, targets = batch_of(data)
    moved, _ = Augmentation(crop=2, flip=True)(images, targets, data, seed=0)
    pixels = (moved * data.std + data.mean) * 255
    padded = torch.nn.functional.pad(images, (2,) * 4)
    seen = set()
    for before, after in zip(padded, pixels.round().to(torch.uint8), strict=True):
        windows = {
            (y, x, flip): window.flip(-1) if flip else window
            for y in range(5)
            for x in range(5)
            for flip in (False, True)
            for window in [before[:, y : y + 8, x : x + 8]]
        }
        found = [key for key, window in windows.items() if torch.equal(window, after)]
        assert found
        seen.add(found[0])
    assert len(seen) > 20


def test_cutout_sets_a_square_to_the_mean():
    data = load("digits")
    images, targets = batch_of(data)
    plain, _ = NOTHING(images, targets, data, seed=0)
    cut, _ = Augmentation(crop=0, flip=False, cutout=4)(images, targets, data, seed=0)
    holes = (cut == 0).all(1) & (plain != 0).any(1)
    assert holes.sum((1, 2)).max() == 16
    assert holes.sum((1, 2)).min() >= 4
    assert torch.equal(plain[~holes[:, None].expand_as(plain)], cut[~holes[:, None].expand_as(cut)])


def test_mixup_and_randaugment_come_from_torchvision():
    data = load("digits")
    images, targets = batch_of(data)
    mixed, soft = Augmentation(crop=0, flip=False, mixup=0.8)(images, targets, data, seed=0)
    assert soft.shape == (64, 10)
    assert torch.allclose(soft.sum(1), torch.ones(64))
    changed, _ = Augmentation(crop=0, flip=False, randaugment=True)(images, targets, data, seed=0)
    plain, _ = NOTHING(images, targets, data, seed=0)
    assert (changed != plain).flatten(1).any(1).float().mean() > 0.2
    assert mixed.shape == changed.shape == plain.shape


def test_augmentation_leaves_the_random_state_alone():
    data = load("digits")
    state = torch.get_rng_state()
    augmentation = Augmentation(cutout=2, mixup=0.2, randaugment=True)
    first, again = (augmentation(*batch_of(data), data, seed=5)[0] for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(state, torch.get_rng_state())
