"""Pieces of a batch side by side in one tensor, against slices."""

import pytest
import torch

from neuroinit.kernels.batched import Batched, batched
from neuroinit.kernels.context import RowSlices

EQUAL = [slice(0, 2), slice(2, 4), slice(4, 6)]
UNEQUAL = [slice(0, 3), slice(3, 4), slice(4, 6)]


@pytest.mark.parametrize("shape", [(), (5,), (5, 4)], ids=str)
@pytest.mark.parametrize("slices", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_pieces_apart_and_joined(slices, shape):
    """Every piece keeps its rows; shorter ones are padded with zeros."""
    x = torch.randn(6, *shape, generator=torch.Generator().manual_seed(0))
    pieces = Batched(RowSlices(slices))
    apart = pieces.apart(x)
    for piece, rows in zip(apart, slices, strict=True):
        count = rows.stop - rows.start
        assert torch.equal(piece[:count], x[rows])
        assert not piece[count:].any()
    assert torch.equal(pieces.joined(apart), x)


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("slices", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_pieces_as_channels(slices, zeros):
    """Padded with zeros, or with copies of the last row of the same piece."""
    x = torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(0))
    pieces = Batched(RowSlices(slices))
    channels = pieces.channels(x, zeros)
    apart = pieces.apart(x, zeros)
    for k, rows in enumerate(slices):
        own, count = channels.view(len(channels), 3, 5, 4)[:, k], rows.stop - rows.start
        assert torch.equal(own, apart[k])
        assert torch.equal(own[:count], x[rows])
        padding = torch.zeros_like(x[0]) if zeros else x[rows.stop - 1]
        assert all(torch.equal(row, padding) for row in own[count:])
    assert torch.equal(pieces.from_channels(channels), x)


@pytest.mark.parametrize("shape", [(), (5,), (5, 4)], ids=str)
@pytest.mark.parametrize("slices", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_a_value_of_every_piece_is_repeated_for_its_rows(slices, shape):
    v = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    expected = [v[k] for k, s in enumerate(slices) for _ in range(s.stop - s.start)]
    assert torch.equal(Batched(RowSlices(slices)).repeated(v), torch.stack(expected))


def test_a_cpu_computes_small_pieces_of_one_size_at_once():
    x = torch.zeros(6, 5)
    assert isinstance(batched(x, RowSlices(EQUAL)), Batched)
    assert batched(x, RowSlices(UNEQUAL)) is None
    assert batched(x, RowSlices(EQUAL), most=9) is None
    assert isinstance(batched(x, RowSlices(EQUAL), most=10), Batched)
    assert batched(x, RowSlices(EQUAL[:1])) is None


def test_an_accelerator_computes_pieces_of_any_size_at_once():
    x = torch.zeros(6, 5, device="meta")
    assert isinstance(batched(x, RowSlices(UNEQUAL)), Batched)
