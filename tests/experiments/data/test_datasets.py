"""Loading by name: what is loaded, and what is said when it is missing."""

import pytest
import torch

from neuroinit.experiments.data import datasets, image_folders, images
from neuroinit.experiments.data.datasets import load
from neuroinit.experiments.data.digits import digits


def test_digits_are_images_like_any_other():
    data = load("digits")
    batch, _ = next(data.epoch(0, 1437, seed=0))
    assert batch.dtype == torch.uint8
    assert data.normalized(batch).mean().abs() < 1e-4
    assert (len(data.train), len(data.test), data.classes) == (1437, 360, 10)


def test_digits_have_one_order():
    """Bytes of three channels for the experiments, floats of one channel for the demo."""
    data, split = load("digits"), digits()
    for part, (inputs, targets) in ((data.train, split.train), (data.test, split.test)):
        assert torch.equal(part.targets, targets)
        gray = part.images.float().mean(1, keepdim=True)
        correlation = torch.corrcoef(torch.stack([gray.flatten(), inputs.flatten()]))[0, 1]
        assert correlation > 0.9999


def test_a_folder_in_memory_and_decoded_while_training(folder, monkeypatch):
    name = f"folder:{folder}"
    data = load(name, image_size=16)
    assert data.train.images.shape == (12, 3, 16, 16)
    assert len(data.test) == 4
    monkeypatch.setattr(image_folders, "MEMORY", 0)
    monkeypatch.setattr(images, "WORKERS", 0)
    load.cache_clear()
    streamed = load(name, image_size=16)
    for (a, ta), (b, tb) in zip(data.tests(2), streamed.tests(2), strict=True):
        assert torch.equal(ta, tb)
        assert torch.allclose(a * data.std + data.mean, b * streamed.std + streamed.mean, atol=1e-5)
    a, b = (next(d.unaugmented(12, seed=0))[0] * d.std + d.mean for d in (data, streamed))
    assert torch.allclose(a, b, atol=1e-5)  # not cropped
    first, again = (list(streamed.epoch(1, 4, seed=0)) for _ in range(2))
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(first, again, strict=True))
    assert torch.equal(next(streamed.epoch(1, 4, seed=0, first=2))[0], first[2][0])


def test_files_are_cropped_anew_in_every_epoch(folder, monkeypatch):
    monkeypatch.setattr(image_folders, "MEMORY", 0)
    monkeypatch.setattr(images, "WORKERS", 0)
    data = load(f"folder:{folder}", image_size=16)
    (first, targets), (second, others) = (next(data.epoch(e, 12, seed=0)) for e in (0, 1))
    assert torch.equal(targets.sort().values, others.sort().values)
    assert {tuple(i.flatten().tolist()) for i in first}.isdisjoint(
        tuple(i.flatten().tolist()) for i in second
    )


def test_images_in_memory_get_the_size_that_is_asked_for():
    small, large = load("digits", train_images=40), load("digits", train_images=40, image_size=32)
    (batch, targets), (_, same) = (next(d.epoch(0, 40, seed=0)) for d in (large, small))
    assert batch.shape == (40, 3, 32, 32)
    assert batch.dtype == torch.uint8
    assert torch.equal(targets, same)
    assert next(large.tests(360))[0].shape == (360, 3, 32, 32)
    inputs, _ = next(large.unaugmented(40, seed=0))
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


@pytest.mark.parametrize("name", ["train_images", "test_images", "image_size"])
def test_a_number_of_images_is_at_least_one(name):
    with pytest.raises(ValueError, match=f"`{name}` should be an int of at least 1"):
        load("digits", **{name: 0})


def test_missing_parts_are_named(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(FileNotFoundError, match="neither `val` nor `test`"):
        load(f"folder:{tmp_path}")


def test_different_classes_are_refused(folder):
    (folder / "val" / "dog").rename(folder / "val" / "wolf")
    with pytest.raises(ValueError, match="training and test images have different classes"):
        load(f"folder:{folder}")


def test_a_download_without_a_network_says_what_to_do(tmp_path, monkeypatch):
    from urllib.error import URLError

    def offline(*args, **options):
        raise URLError("no network")

    monkeypatch.setattr(datasets.vision.torchvision().datasets, "CIFAR10", offline)
    with pytest.raises(
        FileNotFoundError, match=r"could not be downloaded \(no network\).*folder:PATH"
    ):
        load("cifar10", tmp_path, download=True)
