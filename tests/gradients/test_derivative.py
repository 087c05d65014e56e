"""The derivative by the scales against one-graph autograd, over the zoo, on every engine."""

import pytest
import torch
from torch import nn

from neuroinit.gradients import measures
from neuroinit.gradients.engines import Keep, Stream
from neuroinit.gradients.passes import pieces, planned, second_order
from neuroinit.gradients.plan import make_plan
from neuroinit.model.problem import Problem
from neuroinit.model.session import Session
from tests.utils import oracles
from tests.utils.architectures import (
    NO_DOUBLE_BACKWARD,
    ZOO,
    WrittenNorm,
    case,
    cdist_has_double_backward,
    penalty_loss,
    smooth,
)
from tests.utils.engines import ENGINES

SINGLE = {"float32": 1e-4, "bfloat16": 1e-4}


def nio_objective(moments):
    return moments.cosine + moments.norm


def any_objective(moments):
    """Reads every entry of the Gram matrix, in no symmetric way."""
    weights = torch.arange(moments.gram.numel(), dtype=torch.float64).view_as(moments.gram)
    return (weights * measures.cosines(moments.gram)).sum() + moments.variance


def oracle_objective(objective):
    return lambda gram: objective(measures.moments(gram))


def build(found):
    torch.manual_seed(0)
    return found.build(), found.batch(8)


def mixed_scales(names):
    return {n: 0.7 + 0.1 * (i % 5) for i, n in enumerate(names)}


def check(found, engine, objective, *, D=2, r=0.0, split="cover", stats="sub-batch", micro=None):
    model, batch = build(found)
    problem = Problem(model, found.loss_fn, found.compute_loss)
    names = {n.removeprefix("_orig_mod."): n for n in oracles.trainable(model)}
    scales = mixed_scales(problem.scaled)
    point = problem.at(torch.tensor([scales[n] for n in problem.scaled], dtype=torch.float64))
    prepared = problem.prepare(batch)
    plan = make_plan(problem, prepared, D, r, split, stats, micro)
    gram = objective is any_objective
    ours = ENGINES[engine].derivative(point, prepared, plan, objective, gram)
    expected = oracles.scale_gradient(
        model,
        batch,
        getattr(oracles, f"sub_batch_slices_{split}")(8, D, r),
        oracle_objective(objective),
        found.loss_fn,
        found.compute_loss,
        stats,
        scales={names[n]: s for n, s in scales.items()},
    )
    wanted = torch.stack([expected[names[n]] for n in problem.scaled])
    tolerance = SINGLE.get(found.name, 1e-8) * wanted.abs().max().item()
    torch.testing.assert_close(ours.gradient, wanted, rtol=0, atol=max(tolerance, 1e-10))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("found", ZOO, ids=lambda c: c.name)
def test_derivative_equals_one_graph_autograd(found, engine):
    check(found, engine, nio_objective, D=3 if found.independent else 2)


@pytest.mark.parametrize("found", ZOO, ids=lambda c: c.name)
def test_derivative_with_overwritten_gradients(found, monkeypatch):
    monkeypatch.setattr(second_order, "LARGE", 1)
    check(found, "keep", nio_objective, D=3 if found.independent else 2)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("found", ZOO, ids=lambda c: c.name)
def test_derivative_of_overlapping_sub_batches(found, engine):
    check(found, engine, nio_objective, D=3, r=0.5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["relu", "tied_embedding", "batch_norm_2d", "transformer"])
def test_derivative_of_any_objective_of_the_gram_matrix(name, engine):
    check(case(name), engine, any_objective, D=3, r=0.25)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("micro", [1, 2])
@pytest.mark.parametrize("name", ["plain", "tied_embedding", "gru", "checkpoint"])
def test_derivative_in_microbatches(name, micro, engine):
    check(case(name), engine, nio_objective, D=2, r=0.5, micro=micro)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("split", ["paper", "reference"])
@pytest.mark.parametrize(
    "name", ["batch_norm_1d", "batch_norm_2d", "batch_norm_3d", "eval_batch_norm", "dict_batch"]
)
def test_derivative_with_statistics_of_the_whole_batch(name, split, engine):
    check(case(name), engine, nio_objective, D=2, r=0.5, split=split, stats="batch")


def test_overlapping_sub_batches_compute_every_sample_once(monkeypatch):
    computed = []
    original = Session.loss

    def counting(self, batch, *args):
        computed.append(len(batch[0]))
        return original(self, batch, *args)

    model, batch = build(case("plain"))
    problem = Problem(model, case("plain").loss_fn)
    plan = make_plan(problem, batch, 4, 0.75, "cover", "sub-batch")
    problem.traits.note("separable", False)
    monkeypatch.setattr(Session, "loss", counting)
    Keep().derivative(problem.at(problem.unit_scales), batch, plan, nio_objective)
    assert sum(computed) == 8


@pytest.mark.parametrize("overlap", [0.0, 0.5])
def test_stream_never_holds_all_gradients(monkeypatch, overlap):
    """Counts the flat gradients alive at any time, for NIO's objective."""
    import gc
    import weakref

    alive, most = weakref.WeakSet(), []
    original = pieces.Pass.rows.fget

    def counting(made):
        rows = original(made)
        alive.add(rows)
        gc.collect()
        most.append(sum(len(held) for held in alive))
        return rows

    found = case("plain")
    model, _ = build(found)
    batch = found.batch(32)
    problem = Problem(model, found.loss_fn)
    plan = make_plan(problem, batch, 16, overlap, "cover", "sub-batch")
    monkeypatch.setattr(pieces.Pass, "rows", property(counting))
    monkeypatch.setattr(planned, "ENTRIES", 2 * sum(p.numel() for p in model.parameters()))
    Stream().derivative(problem.at(problem.unit_scales), batch, plan, nio_objective)
    assert problem.traits.outcomes["separable"]
    assert max(most) <= 6


@pytest.mark.parametrize("found", NO_DOUBLE_BACKWARD, ids=lambda c: c.name)
def test_an_operator_without_double_backward_is_named(found):
    from neuroinit import NIO, HeldNorm, optimize

    if found.name == "cdist" and cdist_has_double_backward():
        pytest.skip("this torch differentiates cdist twice")
    model, batch = build(found)
    expected = {"cdist": "`cdist`", "embedding_bag": "`embedding_bag`"}
    name = expected.get(found.name, "once_differentiable")
    text = f"{name}.* has no double backward.*Replace it"
    with pytest.raises(RuntimeError, match=text) as raised:
        optimize(
            model,
            [batch],
            found.loss_fn,
            NIO(steps=2, sub_batches=2, rule=HeldNorm()),
            found.compute_loss,
        )
    assert str(raised.value).count("Replace it") == 1


def test_cosine_is_unchanged_when_the_loss_is_rescaled():
    found = case("relu")
    model, batch = build(found)

    def at(factor):
        problem = Problem(model, lambda y, t: factor * found.loss_fn(y, t))
        point = problem.at(problem.unit_scales)
        plan = make_plan(problem, batch, 4, 0.0, "cover", "sub-batch")
        return Keep().derivative(point, batch, plan, lambda m: m.cosine)

    torch.testing.assert_close(at(1.0).moments.cosine, at(1e6).moments.cosine)
    torch.testing.assert_close(at(1.0).gradient, at(1e6).gradient)


def test_norms_beyond_the_square_root_of_float32_do_not_overflow():
    found = case("float32")
    model, batch = build(found)
    problem = Problem(model, lambda y, t: 1e25 * found.loss_fn(y, t))
    point = problem.at(problem.unit_scales)
    plan = make_plan(problem, problem.prepare(batch), 2, 0.0, "cover", "sub-batch")
    ours = Keep().derivative(point, problem.prepare(batch), plan, lambda m: m.cosine)
    assert ours.moments.norm > 1e20
    assert torch.isfinite(ours.gradient).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_two_points_can_be_open_at_once(engine):
    """The graph of one point is differentiated after another point was evaluated inside."""
    found = case("checkpoint")  # runs its forward pass again in the backward pass
    model, batch = build(found)
    problem = Problem(model, found.loss_fn)
    names = problem.differentiated
    first, second = problem.at(problem.unit_scales), problem.at(0.5 * problem.unit_scales)
    with second.session() as session:
        expected = session.gradient(session.loss(batch), names)
    with first.session() as outer:
        wanted = outer.gradient(outer.loss(batch), names)
        loss = outer.loss(batch)
        with second.session() as inner:
            assert inner.point is second
            inside = inner.gradient(inner.loss(batch), names)
        after = outer.gradient(loss, names)
    torch.testing.assert_close(inside, expected, rtol=0, atol=0)
    torch.testing.assert_close(after, wanted, rtol=0, atol=0)
    plan = make_plan(problem, batch, 2, 0.0, "cover", "sub-batch")
    with first.session():
        nested = ENGINES[engine].derivative(second, batch, plan, nio_objective)
    alone = ENGINES[engine].derivative(second, batch, plan, nio_objective)
    torch.testing.assert_close(nested.gradient, alone.gradient, rtol=0, atol=0)


def test_a_moved_point_leaves_the_first_where_it_was():
    model, batch = build(case("plain"))
    problem = Problem(model, case("plain").loss_fn)
    point = problem.at(problem.unit_scales)
    name = problem.trainable[0]
    moved = point.moved({name: torch.ones_like(point.values[name])})
    torch.testing.assert_close(moved.values[name], point.values[name] + 1)
    assert torch.equal(point.values[name], model.get_parameter(name))
    with point.session() as here:
        first = here.loss(batch)
    with moved.session() as there:
        assert there.loss(batch) != first


@pytest.mark.parametrize("engine", ENGINES)
def test_a_penalty_through_torchs_layer_norm(engine):
    """Against the same network with a layer norm of plain operators."""
    torch.manual_seed(0)
    models = [smooth(nn.LayerNorm(6)).double(), smooth(WrittenNorm(6)).double()]
    models[1].load_state_dict(models[0].state_dict())
    batch = case("plain").batch(8)
    found = []
    for model in models:
        problem = Problem(model, None, penalty_loss)
        plan = make_plan(problem, batch, 3, 0.0, "cover", "sub-batch")
        scales = torch.linspace(0.7, 1.1, len(problem.scaled), dtype=torch.float64)
        point = problem.at(scales)
        found.append(ENGINES[engine].derivative(point, batch, plan, nio_objective).gradient)
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-12)
