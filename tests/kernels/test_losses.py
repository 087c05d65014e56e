"""Losses of pieces in one call."""

import pytest
import torch
import torch.nn.functional as F

from neuroinit.kernels.losses import losses_of_pieces, means_of_pieces

REGULAR = [(0, 2), (2, 4), (4, 6)]


def batch(samples=6):
    return torch.randn(samples, 3, device="meta"), torch.zeros(samples, 3, device="meta")


def test_regular_pieces_are_one_call_on_an_accelerator():
    found = losses_of_pieces(F.mse_loss, *batch(), REGULAR)
    assert found is not None
    assert found.shape == (3,)


def test_a_loss_a_sample_is_averaged_over_the_piece():
    found = losses_of_pieces(lambda y, t: (y - t).square().mean(1), *batch(), REGULAR)
    assert found is not None
    assert found.shape == (3,)


@pytest.mark.parametrize("pieces", [[(0, 6)], [(0, 2), (2, 6)], [(1, 3), (3, 5)]])
def test_other_pieces_are_left_to_a_loop(pieces):
    assert losses_of_pieces(F.mse_loss, *batch(), pieces) is None


def test_pieces_of_any_sizes_are_one_call_for_independent_samples():
    found = losses_of_pieces(F.mse_loss, *batch(), [(0, 2), (2, 6)], independent=True)
    assert found is not None
    assert found.shape == (2,)


def test_means_of_pieces_of_any_sizes():
    losses = torch.arange(6, dtype=torch.float64) / 7
    wanted = torch.stack([losses[:2].mean(), losses[2:5].mean(), losses[5]])
    assert torch.allclose(means_of_pieces(losses, [2, 3, 1]), wanted, rtol=1e-15)


def test_a_target_without_samples_is_left_to_a_loop():
    output, _ = batch()
    assert losses_of_pieces(F.mse_loss, output, torch.zeros((), device="meta"), REGULAR) is None


def test_pieces_on_a_cpu_are_left_to_a_loop():
    output, target = torch.randn(6, 3), torch.zeros(6, 3)
    assert losses_of_pieces(F.mse_loss, output, target, REGULAR) is None
