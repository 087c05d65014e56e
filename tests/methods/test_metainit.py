"""MetaInit against slow oracles in float64, over the zoo."""

import dataclasses

import pytest
import torch
from torch import nn

import neuroinit as ni
from neuroinit.methods.updates import Position, TwoMomentAdam
from tests.methods import rivals
from tests.methods.cases import Keep, assert_close, placed, running_statistics, setting
from tests.utils.architectures import case
from tests.utils.engines import ENGINES
from tests.utils.snapshots import assert_unchanged, snapshot

pytestmark = pytest.mark.filterwarnings("ignore:All-zero tensors")


def parameters_that_matter(found):
    """All but those whose gradient is rounding, as a bias's before a norm: its sign is a guess."""
    model, batch = setting(found)
    stats = ni.gradient_stats(model, batch, found.loss_fn, 1, compute_loss=found.compute_loss)
    return [layer.name for layer in stats.layers if not 0 < layer.norm < 1e-12]


def frozen_but(names, model):
    for name, parameter in getattr(model, "_orig_mod", model).named_parameters():
        if name not in names:
            parameter.requires_grad_(False)
    return model


@pytest.mark.parametrize("engine", ENGINES)
def test_gradient_quotient(found, engine):
    build = found.build
    update = Keep()
    method = ni.MetaInit(scales_of=None, update=update)
    felt = parameters_that_matter(found)
    found = dataclasses.replace(found, build=lambda: frozen_but(felt, build()))
    problem, batch, scales = placed(found, method)
    plan = method.plan(problem, batch, 4 if found.independent else None)
    step = method.step(problem, batch, plan, ENGINES[engine], Position(scales, {}))
    named = dict(zip(problem.scaled, scales.tolist(), strict=True))
    model, raw = setting(found)
    expected, by_scale = rivals.quotient_derivative(
        getattr(model, "_orig_mod", model), raw, found.loss_fn, found.compute_loss, named
    )
    assert step.value == pytest.approx(expected, rel=1e-7)
    assert_close(problem, update.gradient, by_scale)


@pytest.mark.parametrize("name", ["plain", "batch_norm_2d", "tied_embedding", "conv_1d"])
@pytest.mark.parametrize("engine", ENGINES)
def test_metainit_run(name, engine):
    found = case(name)
    model, _ = setting(found)
    batches = [found.batch(n) for n in (9, 12, 15)]
    expected = rivals.metainit(model, batches, found.loss_fn, steps=5, lr=0.02, momentum=0.9)
    method = ni.MetaInit(steps=5, lr=0.02)
    result = ni.optimize(model, batches, found.loss_fn, method, engine=engine)
    assert result.scales == pytest.approx(expected, rel=1e-9)


def test_a_scale_of_zero_stays():
    method = ni.MetaInit(min_scale=0.0)
    problem, batch, scales = placed(case("plain"), method)
    scales[0] = 0.0
    _, state = method.start(problem)
    plan = method.plan(problem, batch, None)
    step = method.step(problem, batch, plan, ENGINES["keep"], Position(scales, state))
    assert step.scales[0] == 0
    assert step.state["velocity"][0] == 0
    assert torch.isfinite(step.scales).all()
    assert (step.scales[1:] != scales[1:]).all()


def test_metainit_lowers_the_quotient_on_random_data():
    torch.manual_seed(0)
    model = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(8, 8), nn.Tanh())])
    model.append(nn.Linear(8, 3))
    batches = ni.random_batches((64, 8), classes=3)
    method = ni.MetaInit(steps=60, lr=0.02, update=TwoMomentAdam())
    values = [r.value for r in ni.optimize(model, batches, method=method).history]
    assert sum(values[-5:]) < 0.7 * sum(values[:5])


@pytest.mark.parametrize("name", ["batch_norm_1d", "batch_norm_2d"])
@pytest.mark.parametrize("engine", ENGINES)
def test_metainit_of_the_listing(name, engine):
    """BatchNorm has its running statistics, and a norm may become negative."""
    found = case(name)
    model, _ = setting(found)
    running_statistics(model)
    batches = [found.batch(n) for n in (9, 12, 15)]
    expected, flips = rivals.metainit_listing(model, batches, found.loss_fn, steps=8, lr=0.3)
    assert flips
    method = ni.MetaInit.reference(steps=8, lr=0.3)
    before = snapshot(model)
    result = ni.optimize(model, batches, found.loss_fn, method, engine=engine)
    assert_unchanged(before, model)
    assert result.scales == pytest.approx(expected, rel=1e-9)


@pytest.mark.filterwarnings("ignore:The batches ended after 1 of 2 steps")
@pytest.mark.parametrize(("norm", "least"), [(nn.Identity(), 1), (nn.BatchNorm1d(4), 2)])
def test_a_batch_that_is_too_small_is_skipped(norm, least):
    """One sample is enough, but for BatchNorm: such a last batch of a loader takes no step."""
    model = nn.Sequential(nn.Linear(3, 4), norm, nn.Tanh(), nn.Linear(4, 2)).double()
    sizes = (6, 1, 6)
    batches = [(torch.randn(n, 3, dtype=torch.float64), torch.randint(2, (n,))) for n in sizes]
    result = ni.optimize(model, iter(batches), method=ni.MetaInit(steps=2))
    with_single = ni.optimize(model, iter(batches[:2]), method=ni.MetaInit(steps=2, tolerance=0.0))
    assert len(result.history) == 2
    assert len(with_single.history) == (2 if least == 1 else 1)


def test_no_steps_are_refused():
    with pytest.raises(ValueError, match="`steps`"):
        ni.MetaInit(steps=0)
