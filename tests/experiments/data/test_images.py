"""Batches of images: what they depend on, and how they are normalized."""

import pytest
import torch

from neuroinit.experiments.data import images
from neuroinit.experiments.data.datasets import load
from neuroinit.experiments.data.images import combined_seed, seeded


def test_a_batch_depends_on_seed_epoch_and_index_only():
    data = load("digits")
    whole = list(data.epoch(3, 64, seed=1))
    assert len(whole) == data.steps_per_epoch(64) == 22
    for (a, _), (b, _) in zip(whole[5:], data.epoch(3, 64, seed=1, first=5), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(whole[0][0], next(data.epoch(4, 64, seed=1))[0])
    assert not torch.equal(whole[0][0], next(data.epoch(3, 64, seed=2))[0])


def test_mean_and_deviation_can_be_estimated_from_a_part(monkeypatch):
    whole = load("digits")
    monkeypatch.setattr(images, "MOMENTS", 500 * 3 * 8 * 8)
    load.cache_clear()
    some = load("digits")
    load.cache_clear()
    assert not torch.equal(some.mean, whole.mean)
    assert torch.allclose(some.mean, whole.mean, atol=0.01)
    assert torch.allclose(some.std, whole.std, atol=0.01)


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(ValueError, match="`batch_size = 1438` is more than the 1437 training"):
        load("digits").steps_per_epoch(1438)


def test_seeds_of_neighbours_differ():
    seeds = {combined_seed(seed, epoch, step) for seed in range(5) for epoch in range(5)
             for step in range(5)}  # fmt: skip
    assert len(seeds) == 125


def test_seeded_restores_the_random_state():
    state = torch.get_rng_state()
    draws = []
    for _ in range(2):
        with seeded(3):
            draws.append(torch.rand(4))
    assert torch.equal(*draws)
    assert torch.equal(state, torch.get_rng_state())
