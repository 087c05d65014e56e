"""The agreement and its derivative against plain autograd, and what it says of networks."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from neuroinit.gradients import measures
from neuroinit.gradients.agreement import differentiated
from neuroinit.gradients.plan import make_plan
from neuroinit.methods.rules import agreement
from neuroinit.model.problem import Problem
from tests.utils import oracles
from tests.utils.architectures import ZOO, case
from tests.utils.engines import ENGINES

SINGLE = {"float32": 1e-4, "bfloat16": 1e-4}
WITH_TARGETS = [c for c in ZOO if c.name != "contrastive"]


def build(found, size=8):
    torch.manual_seed(0)
    return found.build(), found.batch(size)


@pytest.mark.parametrize("found", WITH_TARGETS, ids=lambda c: c.name)
def test_agreement_is_that_of_the_oracle(found):
    model, batch = build(found)
    stats = ni.gradient_stats(
        model, batch, found.loss_fn, 2, compute_loss=found.compute_loss, agreement=True
    )
    slices = oracles.sub_batch_slices_cover(8, 2, 0.0)
    gram = oracles.contrast_gram(model, batch, slices, found.loss_fn, found.compute_loss)
    expected = oracles.agreement(gram).item()
    assert stats.agreement == pytest.approx(expected, abs=SINGLE.get(found.name, 1e-9))


@pytest.mark.parametrize("name", ["plain", "tied_embedding", "batch_norm_1d"])
def test_agreement_of_samples(name):
    found = case(name)
    model, batch = build(found)
    stats = ni.gradient_stats(
        model, batch, found.loss_fn, "samples", batch_stats="batch", agreement=True
    )
    slices = [slice(i, i + 1) for i in range(8)]
    gram = oracles.contrast_gram(model, batch, slices, found.loss_fn, batch_stats="batch")
    assert stats.agreement == pytest.approx(oracles.agreement(gram).item())


def test_agreement_of_three_samples():
    """There are only two other orders of the targets, less than the usual four."""
    found = case("plain")
    model, (inputs, _) = build(found, 3)
    batch = inputs, torch.arange(3)
    stats = ni.gradient_stats(model, batch, found.loss_fn, "samples", agreement=True)
    slices = [slice(i, i + 1) for i in range(3)]
    gram = oracles.contrast_gram(model, batch, slices, found.loss_fn)
    assert stats.agreement == pytest.approx(oracles.agreement(gram).item())


def labels_in(model, batch):
    return F.cross_entropy(model(batch["x"] + batch["labels"][:, None]), batch["labels"])


def squares(model, batch):
    return F.mse_loss(model(batch["x"])[:, 0], batch["labels"].double())


def tokens(model, batch):
    logits = torch.stack([model(batch["x"]), model(-batch["x"])], 1).flatten(0, 1)
    return F.cross_entropy(logits, batch["labels"].repeat_interleave(2), ignore_index=0)


@pytest.mark.parametrize(
    ("compute_loss", "passes"),
    [(labels_in, 5), (squares, 1), (tokens, 2), (lambda *a: 2 * squares(*a), 1)],
)
def test_one_forward_pass_for_all_targets(compute_loss, passes):
    """Where the targets enter the loss only; with one forward pass for each where they do not."""
    torch.manual_seed(0)
    model, calls = nn.Linear(4, 3).double(), []
    model.register_forward_hook(lambda *a: calls.append(len(a[2])))
    batch = {"x": torch.randn(16, 4).double(), "labels": torch.randint(3, (16,))}
    batch["labels"][:3] = torch.arange(3)
    ni.gradient_stats(model, batch, None, 4, compute_loss=compute_loss)
    without, calls[:] = calls.count(16), []
    stats = ni.gradient_stats(model, batch, None, 4, compute_loss=compute_loss, agreement=True)
    slices = oracles.sub_batch_slices_cover(16, 4, 0.0)
    assert calls.count(16) - without == passes
    gram = oracles.contrast_gram(model, batch, slices, None, compute_loss)
    assert stats.agreement == pytest.approx(oracles.agreement(gram).item(), abs=1e-9)


def mixed(cosine, norm, agreement):
    return cosine * agreement + agreement.square() + 0.5 * norm


def check(found, engine, *, D=2, r=0.0, stats="sub-batch", micro=None, gram=False):
    model, batch = build(found)
    problem = Problem(model, found.loss_fn, found.compute_loss)
    names = {n.removeprefix("_orig_mod."): n for n in oracles.trainable(model)}
    scales = {n: 0.7 + 0.1 * (i % 5) for i, n in enumerate(problem.scaled)}
    point = problem.at(torch.tensor([scales[n] for n in problem.scaled], dtype=torch.float64))
    prepared = problem.prepare(batch)
    plan = make_plan(problem, prepared, D, r, "cover", stats, micro)
    ours = differentiated(
        ENGINES[engine],
        point,
        prepared,
        plan,
        lambda moments: mixed(moments.cosine, moments.norm, moments.agreement),
        gram,
    )
    expected = oracles.scale_gradient(
        model,
        batch,
        oracles.sub_batch_slices_cover(8, D, r),
        lambda gram, agreement: mixed(oracles.cosine(gram), oracles.norm(gram), agreement),
        found.loss_fn,
        found.compute_loss,
        stats,
        scales={names[n]: s for n, s in scales.items()},
        others=oracles.with_permuted_targets(batch),
    )
    wanted = torch.stack([expected[names[n]] for n in problem.scaled])
    tolerance = SINGLE.get(found.name, 1e-8) * wanted.abs().max().item()
    torch.testing.assert_close(ours.gradient, wanted, rtol=0, atol=max(tolerance, 1e-10))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("found", WITH_TARGETS, ids=lambda c: c.name)
def test_derivative_equals_one_graph_autograd(found, engine):
    check(found, engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("plain", {"D": 3, "r": 0.5}),
        ("gru", {"D": 2, "micro": 1}),
        ("relu", {"D": 4, "gram": True}),
        ("batch_norm_2d", {"stats": "batch"}),
    ],
)
def test_derivative_for_other_plans(name, options, engine):
    check(case(name), engine, **options)


def test_an_objective_without_agreement_costs_nothing_more():
    found, calls = case("plain"), []
    model, batch = build(found)

    def loss_fn(output, target):
        calls.append(target)
        return found.loss_fn(output, target)

    problem = Problem(model, loss_fn)
    problem.traits.note("separable", False)
    plan = make_plan(problem, batch, 2, 0.0, "cover", "sub-batch")
    point = problem.at(problem.unit_scales)
    differentiated(ENGINES["keep"], point, batch, plan, lambda moments: moments.cosine, False)
    assert len(calls) == 2
    differentiated(ENGINES["keep"], point, batch, plan, agreement, False)
    assert len(calls) == 2 + 2 + 2 * 5


# -- what it says ----------------------------------------------------------------------------------


class Constant(nn.Module):
    """Its output is a parameter, whatever the input is."""

    def __init__(self):
        super().__init__()
        self.answer = nn.Parameter(torch.full((3,), 0.1, dtype=torch.float64))

    def forward(self, x):
        return self.answer.expand(len(x), 3)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_a_network_that_ignores_its_input_has_the_least_agreement(count):
    torch.manual_seed(0)
    inputs, labels = torch.randn(240, 4), torch.randint(10, (240,)).clamp(max=2)
    stats = ni.gradient_stats(Constant(), (inputs, labels), sub_batches=count, agreement=True)
    assert stats.cosine > 0.9  # GradCosine takes it for an excellent start
    assert -1 / (count - 1) - 1e-9 <= stats.agreement < -0.6 / (count - 1)


def test_a_linear_model_of_separable_data_agrees():
    torch.manual_seed(0)
    inputs = torch.randn(800, 4, dtype=torch.float64)
    batch = inputs, inputs[:, :3].argmax(1)
    stats = ni.gradient_stats(nn.Linear(4, 3).double(), batch, sub_batches=4, agreement=True)
    assert stats.agreement > 0.9


def test_targets_that_say_nothing_about_the_input_do_not_agree():
    torch.manual_seed(0)
    batch = torch.randn(800, 4, dtype=torch.float64), torch.randint(3, (800,))
    stats = ni.gradient_stats(nn.Linear(4, 3).double(), batch, sub_batches=4, agreement=True)
    assert stats.agreement < 0.1


def test_adding_a_constant_to_the_answer_does_not_change_it():
    """Of a squared error: what every sample asks for alike is no agreement."""
    torch.manual_seed(0)
    model, (inputs, targets) = nn.Linear(4, 2).double(), case("regression").batch(16)
    found = [
        ni.gradient_stats(model, (inputs, targets + shift), F.mse_loss, 4, agreement=True)
        for shift in (0.0, 5.0)
    ]
    assert found[0].agreement == pytest.approx(found[1].agreement, rel=1e-9)
    assert found[1].cosine > found[0].cosine + 0.1


# -- where it cannot be had ------------------------------------------------------------------------


def test_a_loss_without_targets_has_no_agreement():
    found = case("contrastive")
    model, batch = build(found)
    with pytest.raises(ValueError, match="does not depend on the targets"):
        ni.gradient_stats(model, batch, None, compute_loss=found.compute_loss, agreement=True)
    result = ni.optimize(model, [batch], None, ni.NIO(steps=1, sub_batches=2), found.compute_loss)
    assert math.isnan(result.after.agreement)


def checked_loss(output, targets):
    """Takes only targets that are in order."""
    if not targets.equal(targets.sort().values):
        raise KeyError("order")
    return F.cross_entropy(output, targets)


def test_a_loss_that_does_not_take_other_targets_has_no_agreement():
    model, batch = nn.Linear(4, 3), (torch.randn(12, 4), torch.arange(12) // 4)
    with pytest.raises(ValueError, match=r"targets of other samples.*raises KeyError\('order'\)"):
        ni.gradient_stats(model, batch, checked_loss, agreement=True)
    result = ni.optimize(model, [batch], checked_loss, ni.NIO(steps=1, sub_batches=2))
    assert math.isnan(result.after.agreement)


@pytest.mark.parametrize("error", [RuntimeError, MemoryError])
def test_errors_of_operators_are_passed_on(error):
    def unable(output, targets):
        if not targets.equal(targets.sort().values):
            raise error("cannot do it")
        return F.cross_entropy(output, targets)

    model, batch = nn.Linear(4, 3), (torch.randn(12, 4), torch.arange(12) // 4)
    with pytest.raises(error, match="cannot do it"):
        ni.gradient_stats(model, batch, unable, agreement=True)
    result = ni.optimize(model, [batch], unable, ni.NIO(steps=1, sub_batches=2))
    assert math.isnan(result.after.agreement)


@pytest.mark.parametrize("error", [TypeError, AttributeError, LookupError])
def test_a_mistake_of_ours_is_not_taken_for_a_loss_without_agreement(monkeypatch, error):
    def mistaken(*arguments):
        raise error("a mistake")

    monkeypatch.setattr("neuroinit.gradients.measures.distinct_mean", mistaken)
    model, batch = nn.Linear(4, 3), (torch.randn(12, 4), torch.arange(12) % 3)
    with pytest.raises(error, match="a mistake"):
        ni.optimize(model, [batch], method=ni.NIO(steps=1, sub_batches=2))


def test_one_sub_batch_has_no_agreement(small_model, digits_like):
    with pytest.raises(ValueError, match="needs at least two sub-batches"):
        ni.gradient_stats(small_model, digits_like[0], sub_batches=1, agreement=True)


def test_it_is_not_computed_unless_asked_for(small_model, digits_like):
    stats = ni.gradient_stats(small_model, digits_like[0])
    assert math.isnan(stats.agreement)
    assert "agreement" not in repr(stats)


def test_moments_of_a_gram_matrix_alone_have_no_agreement():
    with pytest.raises(ValueError, match="can be read inside the objective of NIO only"):
        _ = measures.moments(torch.eye(2)).agreement
