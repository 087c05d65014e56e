"""Norms of rows, and copies to the CPU."""

import pytest
import torch

from neuroinit.common.tensors import (
    CHUNK,
    fingerprint,
    fingerprints,
    quick_norms,
    row_norms,
    tensor_grams,
    to_host,
    total_gram,
)


@pytest.mark.parametrize("size", [1.0, 1e-25, 1e25])
@pytest.mark.parametrize("entries", [1, 1023, 2048, 3000])
def test_norms_of_rows_of_any_size(entries, size):
    rows = size * torch.randn(3, entries)
    wanted = torch.tensor([sum(x**2 for x in row) ** 0.5 for row in rows.tolist()])
    torch.testing.assert_close(row_norms(rows).float(), wanted.float())


def test_a_row_of_zeros_and_one_that_is_not_finite():
    rows = torch.ones(3, 2000)
    rows[1], rows[2, 5] = 0, torch.inf
    assert row_norms(rows).tolist() == pytest.approx([2000**0.5, 0.0, torch.inf])


def test_several_tensors_in_one_copy():
    numbers, table = to_host(torch.tensor(2.0), torch.arange(6.0).view(2, 3))
    assert numbers.shape == ()
    assert numbers.dtype == torch.float64
    assert table.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("entries", [1, CHUNK, CHUNK + 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_norms_of_rows_are_summed_in_float64(entries, dtype):
    torch.manual_seed(0)
    rows = torch.randn(3, entries).mul_(1e25).to(dtype)  # its square is no float32
    wanted = torch.stack([row.double().norm() for row in rows])
    torch.testing.assert_close(row_norms(rows), wanted, rtol=1e-12, atol=0)


def test_hashes_of_many_tensors_are_those_of_each():
    tensors = [torch.randn(n) for n in (1, 2, 5, 64)]
    tensors += [torch.randn(7).half(), torch.empty(0), torch.randn(9)[1:4], torch.randn(4, 6).T]
    assert fingerprints(tensors) == [fingerprint(t) for t in tensors]


@pytest.mark.parametrize("size", [1.0, 1e-25, 1e25])
def test_gram_matrices_of_tensors_of_any_size(size):
    sizes = [10, CHUNK + 700, 10, 4096, 10, 4096]
    rows = size * torch.randn(3, sum(sizes))
    rows[0, :10] = 0
    wanted = [part.double() @ part.double().T for part in torch.split(rows, sizes, 1)]
    for found, own in zip(tensor_grams(rows, sizes), wanted, strict=True):
        torch.testing.assert_close(found, own, rtol=0, atol=1e-7 * float(own.max()))


@pytest.mark.parametrize("size", [1.0, 1e-25, 1e25])
def test_the_gram_matrix_of_whole_gradients_from_those_by_tensors(size):
    parts = [size * torch.randn(3, entries) for entries in (10, CHUNK + 700, 4096)]
    joined = torch.cat(parts, 1).double()
    found = total_gram(parts)
    torch.testing.assert_close(found, joined @ joined.T, rtol=0, atol=1e-7 * float(found.max()))
    for some in (parts[:1], parts[1:2]):  # only small tensors, only large ones
        own = some[0].double() @ some[0].double().T
        torch.testing.assert_close(total_gram(some), own, rtol=0, atol=1e-7 * float(own.max()))


def test_quick_norms_tell_zeros_whole_numbers_and_what_is_not_finite():
    tensors = [torch.tensor([3.0, 4.0]), torch.zeros(2), torch.empty(0), torch.tensor([torch.inf])]
    tensors += [torch.tensor([torch.nan]), torch.arange(3), torch.tensor([3 + 4j])]
    found = quick_norms(tensors)
    assert found == pytest.approx([5, 0, 0, torch.inf, torch.nan, torch.nan, 5], nan_ok=True)
    assert quick_norms([torch.arange(3)]) == pytest.approx([torch.nan], nan_ok=True)
