"""Data: what is loaded, what is done to each image, and what is said when it is missing."""

import pytest
import torch
from PIL import Image

from neuroinit.experiments.data import datasets as module
from neuroinit.experiments.data import images
from neuroinit.experiments.data.augment import Augmentation
from neuroinit.experiments.data.datasets import load

NOTHING = Augmentation(crop=0, flip=False)


@pytest.fixture
def folder(tmp_path):
    generator = torch.Generator().manual_seed(0)
    for part, count in (("train", 6), ("val", 2)):
        for name in ("cat", "dog"):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = torch.randint(256, (20, 24, 3), generator=generator, dtype=torch.uint8)
                Image.fromarray(pixels.numpy()).save(tmp_path / part / name / f"{i}.png")
    load.cache_clear()
    return tmp_path


def test_digits_are_images_like_any_other():
    data = load("digits")
    images, _ = next(data.epoch(0, 1437, seed=0))
    assert images.dtype == torch.uint8
    assert data.normalized(images).mean().abs() < 1e-4
    assert (len(data.train), len(data.test), data.classes) == (1437, 360, 10)


def test_a_batch_depends_on_seed_epoch_and_place_only():
    data = load("digits")
    whole = list(data.epoch(3, 64, seed=1))
    assert len(whole) == data.steps(64) == 22
    for (a, _), (b, _) in zip(whole[5:], data.epoch(3, 64, seed=1, first=5), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(whole[0][0], next(data.epoch(4, 64, seed=1))[0])
    assert not torch.equal(whole[0][0], next(data.epoch(3, 64, seed=2))[0])


def test_a_folder_in_memory_and_decoded_on_the_way(folder, monkeypatch):
    name = f"folder:{folder}"
    data = load(name, image_size=16)
    assert data.train.images.shape == (12, 3, 16, 16)
    assert len(data.test) == 4
    monkeypatch.setattr(module, "MEMORY", 0)
    monkeypatch.setattr(images, "WORKERS", 0)
    load.cache_clear()
    streamed = load(name, image_size=16)
    for (a, ta), (b, tb) in zip(data.tests(2), streamed.tests(2), strict=True):
        assert torch.equal(ta, tb)
        assert torch.allclose(a * data.std + data.mean, b * streamed.std + streamed.mean, atol=1e-5)
    a, b = (next(d.samples(12, seed=0))[0] * d.std + d.mean for d in (data, streamed))
    assert torch.allclose(a, b, atol=1e-5)  # no random part of an image where none is asked for
    first, again = (list(streamed.epoch(1, 4, seed=0)) for _ in range(2))
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(first, again, strict=True))
    assert torch.equal(next(streamed.epoch(1, 4, seed=0, first=2))[0], first[2][0])


def test_images_in_memory_get_the_size_that_is_asked_for():
    small, large = load("digits", train_images=40), load("digits", train_images=40, image_size=32)
    (images, targets), (_, same) = (next(d.epoch(0, 40, seed=0)) for d in (large, small))
    assert images.shape == (40, 3, 32, 32)
    assert images.dtype == torch.uint8
    assert torch.equal(targets, same)
    assert next(large.tests(360))[0].shape == (360, 3, 32, 32)
    inputs, _ = next(large.samples(40, seed=0))
    assert inputs.mean().abs() < 1e-4
    assert abs(inputs.std() - 1) < 1e-2


def test_a_folder_of_classes_holds_out_every_tenth(folder):
    data = load(f"folder:{folder / 'train'}")
    assert (len(data.train), len(data.test)) == (10, 2)


def test_a_subset_is_always_the_same():
    sets = [load("digits", train_images=50).train.targets]
    load.cache_clear()
    sets.append(load("digits", train_images=50).train.targets)
    assert torch.equal(*sets)
    assert len(sets[0]) == 50


def test_mean_and_deviation_need_no_copy_of_all_images(monkeypatch):
    whole = load("digits")
    monkeypatch.setattr(module, "MOMENTS", 500 * 3 * 8 * 8)
    load.cache_clear()
    some = load("digits")
    load.cache_clear()
    assert not torch.equal(some.mean, whole.mean)
    assert torch.allclose(some.mean, whole.mean, atol=0.01)
    assert torch.allclose(some.std, whole.std, atol=0.01)


def batch_of(data, count=64):
    return next(data.epoch(0, count, seed=0))


def test_crop_and_flip_move_every_image_on_its_own():
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


def test_augmentation_leaves_the_random_numbers_alone():
    data = load("digits")
    state = torch.get_rng_state()
    augmentation = Augmentation(cutout=2, mixup=0.2, randaugment=True)
    first, again = (augmentation(*batch_of(data), data, seed=5)[0] for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("name", ["train_images", "test_images", "image_size"])
def test_a_number_of_images_is_at_least_one(name):
    with pytest.raises(ValueError, match=f"`{name}` should be an int of at least 1"):
        load("digits", **{name: 0})


def test_missing_parts_are_named(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(FileNotFoundError, match="neither `val` nor `test`"):
        load(f"folder:{tmp_path}")


def test_a_download_without_a_network_says_what_to_do(tmp_path, monkeypatch):
    from urllib.error import URLError

    def offline(*args, **options):
        raise URLError("no network")

    monkeypatch.setattr(module.vision.torchvision().datasets, "CIFAR10", offline)
    with pytest.raises(
        FileNotFoundError, match=r"could not be fetched \(no network\).*folder:PATH"
    ):
        load("cifar10", tmp_path, download=True)
