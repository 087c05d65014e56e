"""gradient_stats and gradsign against the oracles, over the zoo."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from tests.utils import oracles
from tests.utils.architectures import ZOO, case

SINGLE = {"float32": 1e-4, "bfloat16": 1e-4}


def build(found):
    torch.manual_seed(0)
    return found.build(), found.batch(8)


@pytest.mark.parametrize("overlap", [0.0, 0.5])
@pytest.mark.parametrize("found", ZOO, ids=lambda c: c.name)
def test_stats_are_those_of_the_oracle(found, overlap):
    model, batch = build(found)
    stats = ni.gradient_stats(
        model, batch, found.loss_fn, 2, overlap, compute_loss=found.compute_loss
    )
    slices = oracles.sub_batch_slices_cover(8, 2, overlap)
    gram = oracles.gram(model, batch, slices, found.loss_fn, found.compute_loss)
    tolerance = SINGLE.get(found.name, 1e-9)
    for name in ("cosine", "norm", "norm_ratio", "variance"):
        expected = getattr(oracles, name)(gram).item()
        assert getattr(stats, name) == pytest.approx(expected, rel=tolerance, abs=1e-9), name
    assert stats.theta(2.0) == pytest.approx(oracles.theta(gram, 2.0).item(), rel=tolerance)
    assert stats.norms.shape == (2,)
    assert stats.cosines.shape == (2, 2)


@pytest.mark.parametrize("found", ZOO, ids=lambda c: c.name)
def test_layers_are_those_of_the_oracle(found):
    model, batch = build(found)
    stats = ni.gradient_stats(model, batch, found.loss_fn, 2, compute_loss=found.compute_loss)
    slices = oracles.sub_batch_slices_cover(8, 2, 0.0)
    grams = oracles.layer_grams(model, batch, slices, found.loss_fn, found.compute_loss)
    tolerance = max(SINGLE.get(found.name, 1e-7), 1e-7)
    assert [x.name for x in stats.layers] == [n.removeprefix("_orig_mod.") for n in grams]
    for layer, gram in zip(stats.layers, grams.values(), strict=True):
        assert layer.norm == pytest.approx(oracles.norm(gram).item(), rel=tolerance, abs=1e-12)
        if gram.diagonal().min() > 1e-20:
            assert layer["cosine"] == pytest.approx(oracles.cosine(gram).item(), abs=tolerance)
            expected = oracles.norm_ratio(gram).item()
            assert layer.norm_ratio == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("name", ["plain", "relu", "tied_embedding", "lstm"])
def test_sample_wise_stats_and_gradsign(name):
    found = case(name)
    model, batch = build(found)
    stats = ni.gradient_stats(model, batch, found.loss_fn, "samples")
    slices = [slice(i, i + 1) for i in range(8)]
    gram = oracles.gram(model, batch, slices, found.loss_fn, found.compute_loss)
    assert stats.cosine == pytest.approx(oracles.cosine(gram).item())
    assert stats.theta() == pytest.approx(oracles.theta(gram).item())
    assert ni.gradsign(model, batch, found.loss_fn) == oracles.gradsign(model, batch, found.loss_fn)


@pytest.mark.parametrize("name", ["batch_norm_1d", "batch_norm_2d"])
def test_sample_wise_stats_of_batch_norm_use_the_whole_batch_and_say_so(name):
    found = case(name)
    model, batch = build(found)
    with pytest.warns(UserWarning, match="statistics of the whole batch are used"):
        stats = ni.gradient_stats(model, batch, found.loss_fn, "samples")
    assert stats.batch_stats == "batch"
    assert "BatchNorm over the whole batch" in repr(stats)
    slices = [slice(i, i + 1) for i in range(8)]
    gram = oracles.gram(model, batch, slices, found.loss_fn, batch_stats="batch")
    assert stats.cosine == pytest.approx(oracles.cosine(gram).item())
    expected = oracles.gradsign(model, batch, found.loss_fn, batch_stats="batch")
    assert ni.gradsign(model, batch, found.loss_fn) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("found", [c for c in ZOO if "batch_norm" in c.name], ids=lambda c: c.name)
def test_both_kinds_of_batch_norm_statistics(found):
    model, batch = build(found)
    by_kind = {}
    for kind in ("sub-batch", "batch"):
        stats = ni.gradient_stats(model, batch, found.loss_fn, 2, batch_stats=kind)
        slices = oracles.sub_batch_slices_cover(8, 2, 0.0)
        gram = oracles.gram(model, batch, slices, found.loss_fn, batch_stats=kind)
        assert stats.cosine == pytest.approx(oracles.cosine(gram).item())
        assert stats.batch_stats == kind
        by_kind[kind] = stats.cosine
    assert by_kind["batch"] != pytest.approx(by_kind["sub-batch"])


def test_a_tensor_without_gradient_has_no_cosine():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    model[0].bias.data.fill_(-1e3)  # all units dead
    stats = ni.gradient_stats(model, (torch.randn(8, 4), torch.randint(3, (8,))))
    dead = stats.layers[0]
    assert dead.norm == 0
    assert math.isnan(dead.cosine)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"sub_batches": 0}, ValueError, "`sub_batches` should be an int of at least 1"),
        ({"sub_batches": "sample"}, TypeError, '`sub_batches` should be an int or "samples"'),
        ({"overlap": 1.5}, ValueError, "`overlap = 1.5`"),
        ({"split": "half"}, ValueError, "`split` should be one of"),
        ({"batch_stats": "running"}, ValueError, "`batch_stats` should be one of"),
        ({"method": ni.NIO}, TypeError, "`method` should be a method"),
        ({"method": "nio"}, TypeError, "`method` should be a method"),
    ],
)
def test_bad_arguments(small_model, digits_like, arguments, error, message):
    with pytest.raises(error, match=message):
        ni.gradient_stats(small_model, digits_like[0], **arguments)


def test_a_smoothness_is_positive(small_model, digits_like):
    with pytest.raises(ValueError, match="`smoothness` should be a finite number > 0"):
        ni.gradient_stats(small_model, digits_like[0]).theta(-1.0)


def test_repr_reads_at_a_glance(small_model, digits_like):
    text = repr(ni.gradient_stats(small_model, digits_like[0], F.cross_entropy, 4))
    assert text.startswith("GradientStats(4 sub-batches: loss=")


@pytest.mark.parametrize("method", [ni.NIO(steps=1), ni.NIO.paper(steps=1), ni.LSUV()])
def test_the_statistics_of_a_method_are_those_before_it(small_model, digits_like, method):
    batch = digits_like[0]
    before = ni.optimize(small_model, [batch], F.cross_entropy, method, progress=False).before
    stats = ni.gradient_stats(small_model, batch, method=method, agreement=True)
    assert torch.equal(stats.cosines, before.cosines)
    assert stats.agreement == before.agreement


@pytest.mark.parametrize("changes", [{}, {"rule": ni.BoundedAscent()}])
def test_by_default_a_batch_is_cut_as_nio_cuts_it(small_model, digits_like, changes):
    stats = ni.gradient_stats(small_model, digits_like[0])
    first = ni.nio_(small_model, digits_like, steps=1, progress=False, **changes).history[0]
    assert len(stats.norms) == ni.NIO().sub_batches
    for name in ("loss", "cosine", "norm", "norm_max", "norm_min"):
        assert getattr(stats, name) == pytest.approx(getattr(first, name), rel=1e-5), name


@pytest.mark.parametrize(("samples", "count"), [(1, 1), (3, 2), (8, 4), (15, 7), (16, 8), (64, 8)])
def test_small_batches_have_fewer_sub_batches_by_default(samples, count):
    batch = torch.randn(samples, 4), torch.randint(3, (samples,))
    assert len(ni.gradient_stats(nn.Linear(4, 3), batch).norms) == count


@pytest.mark.parametrize(
    "given",
    [{"sub_batches": 4}, {"overlap": 0.5}, {"split": "paper"}, {"batch_stats": "batch"}],
    ids=lambda given: next(iter(given)),
)
def test_a_method_next_to_what_it_sets(small_model, digits_like, given):
    with pytest.raises(TypeError, match=r"`method` and one of `sub_batches`.*leave `method` out"):
        ni.gradient_stats(small_model, digits_like[0], method=ni.NIO(), **given)


def test_a_loader_is_not_a_batch():
    data = torch.utils.data.TensorDataset(torch.randn(8, 4), torch.randint(3, (8,)))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    with pytest.raises(TypeError, match=r"next\(iter\(loader\)\)"):
        ni.gradient_stats(nn.Linear(4, 3), loader)
