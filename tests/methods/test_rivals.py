"""GradInit, MetaInit and LSUV against slow oracles in float64, over the zoo."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from neuroinit.gradients.hessian import curvature_derivative
from neuroinit.methods.updates import Position, TwoMomentAdam
from neuroinit.model.problem import Problem
from tests.utils import rivals
from tests.utils.architectures import ZOO, case
from tests.utils.engines import ENGINES
from tests.utils.oracles import training_copy
from tests.utils.snapshots import assert_unchanged, snapshot

pytestmark = pytest.mark.filterwarnings("ignore:All-zero tensors")
PRECISE = [c for c in ZOO if c.name not in ("float32", "bfloat16")]
# scales differ, so that a mistake in who multiplies what shows
SCALES = (0.7, 1.3, 0.9, 1.6, 1.1)


@pytest.fixture(params=PRECISE, ids=lambda c: c.name)
def found(request):
    return request.param


class Keep:
    """An update that keeps the gradient it is given, and moves nothing."""

    def init(self, scales):
        return {}

    def step(self, scales, gradient, lr, constrained, state):
        self.gradient = gradient
        return scales, state


def setting(found):
    torch.manual_seed(0)
    model = found.build()
    return model, found.batch(9)


def placed(found, method):
    """A problem at scales that are not all one, and the same scales by name."""
    model, batch = setting(found)
    problem = Problem(model, found.loss_fn, found.compute_loss, method.selection())
    scales = torch.tensor([SCALES[k % 5] for k in range(len(problem.scaled))], dtype=torch.float64)
    return problem, problem.prepare(batch), scales


def assert_close(problem, ours, theirs):
    expected = torch.tensor([theirs[n] for n in problem.scaled], dtype=torch.float64)
    tolerance = 1e-8 * max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(ours, expected, rtol=1e-7, atol=tolerance)


OPTIONS = {
    "norm": {"gamma": 1e-6},
    "l1 norm": {"gamma": 1e-6, "optimizer": "adam"},
    "loss": {"gamma": 1e6},
    "plain loss": {"gamma": 1e6, "normalize": False},
    "adam loss": {"gamma": 1e6, "optimizer": "adam", "eta": 0.01},
    "through": {"gamma": 1e6, "through_update": True},
    "plain through": {"gamma": 1e6, "through_update": True, "normalize": False},
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_gradinit_step(found, options, engine):
    update = Keep()
    method = ni.GradInit(update=update, **options)
    problem, batch, scales = placed(found, method)
    plan = method.plan(problem, batch, 3 if found.independent else None)
    step = method.step(problem, batch, plan, ENGINES[engine], Position(scales, {}))
    named = dict(zip(problem.scaled, scales.tolist(), strict=True))
    model, raw = setting(found)
    constrained, value, expected = rivals.gradinit_derivative(
        getattr(model, "_orig_mod", model), raw, found.loss_fn, found.compute_loss, named, **options
    )
    assert step.constrained == constrained
    assert step.value == pytest.approx(value, rel=1e-8)
    assert_close(problem, update.gradient, expected)


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
    method = ni.MetaInit(scales_of=None)
    felt = parameters_that_matter(found)
    found = dataclasses.replace(found, build=lambda: frozen_but(felt, build()))
    problem, batch, scales = placed(found, method)
    plan = method.plan(problem, batch, 4 if found.independent else None)
    _, _, value, ours = curvature_derivative(
        problem.at(scales), batch, plan, method._quotient, ENGINES[engine]
    )
    named = dict(zip(problem.scaled, scales.tolist(), strict=True))
    model, raw = setting(found)
    expected, by_scale = rivals.quotient_derivative(
        getattr(model, "_orig_mod", model), raw, found.loss_fn, found.compute_loss, named
    )
    assert float(value) == pytest.approx(expected, rel=1e-7)
    assert_close(problem, ours, by_scale)


@pytest.mark.parametrize("name", ["plain", "batch_norm_2d", "tied_embedding", "conv_1d"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("gamma", [0.5, 5.0])
def test_gradinit_run(name, engine, gamma):
    found = case(name)
    model, _ = setting(found)
    batches = [found.batch(n) for n in (9, 12, 15)]
    scales, kinds = rivals.gradinit(model, batches, found.loss_fn, steps=8, lr=0.05, gamma=gamma)
    result = ni.optimize(
        model, batches, found.loss_fn, ni.GradInit(steps=8, lr=0.05, gamma=gamma), engine=engine
    )
    assert [r.constrained for r in result.history] == kinds
    assert result.scales == pytest.approx(scales, rel=1e-7)


class Normalized(nn.Module):
    """Layers that GradInit's released code looks at, and layers that it does not."""

    def __init__(self):
        super().__init__()
        self.conv, self.group = nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4)
        self.norm, self.layer = nn.BatchNorm2d(4), nn.LayerNorm(16)
        self.out = nn.Linear(16, 3)
        self.temperature = nn.Parameter(torch.tensor(0.7))

    def forward(self, x):
        x = torch.tanh(self.norm(torch.tanh(self.conv(x))))
        x = torch.tanh(self.layer(torch.tanh(self.group(x)).flatten(1)))
        return self.out(x) * self.temperature


SEEN = ["conv.weight", "conv.bias", "norm.weight", "norm.bias", "out.weight", "out.bias"]


def normalized():
    torch.manual_seed(0)
    model = Normalized().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    data = [(torch.randn(n, 2, 4, 4).double(), torch.randint(3, (n,))) for n in (12, 15)]
    return model, data


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "options",
    [{"gamma": 1e-6}, {"gamma": 1e6}, {"gamma": 1e6, "through_update": True}, {"gamma": 2.0}],
    ids=["norm", "loss", "through", "both"],
)
def test_gradinit_of_the_released_code(options, engine):
    """Its norm and trial step see some layers only, and scales of biases may reach zero."""
    model, batches = normalized()
    theirs = {"bias_floor": 0.0, "names": SEEN, "unscaled": ("temperature",)}
    expected, kinds = rivals.gradinit(
        model, batches, F.cross_entropy, steps=12, lr=0.2, **theirs, **options
    )
    method = ni.GradInit.reference(steps=12, lr=0.2, **options)
    result = ni.optimize(model, batches, F.cross_entropy, method, engine=engine)
    assert [r.constrained for r in result.history] == kinds
    assert result.scales == pytest.approx(expected, rel=1e-7, abs=1e-12)
    assert any(scale == 0 for scale in expected.values())
    assert len(set(kinds)) == (2 if options["gamma"] == 2.0 else 1)


def test_gradinit_of_the_released_code_has_its_presets():
    method = ni.GradInit.reference("cifar10-vgg19", gamma=2.0)
    assert (method.lr, method.steps, method.gamma, method.tolerance) == (0.1, 390, 2.0, 0.0)
    with pytest.raises(ValueError, match="`preset` should be one of 'cifar10-vgg19'"):
        ni.GradInit.reference("vgg")


def test_gradinit_goes_through_both_kinds_of_step():
    found = case("plain")
    model, _ = setting(found)
    method = ni.GradInit(steps=30, lr=0.05, gamma=0.5)
    result = ni.optimize(model, [found.batch(n) for n in (9, 12, 15)], found.loss_fn, method)
    assert len({r.constrained for r in result.history}) == 2


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


def test_metainit_lowers_the_quotient_on_random_data():
    torch.manual_seed(0)
    model = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(8, 8), nn.Tanh())])
    model.append(nn.Linear(8, 3))
    batches = ni.random_batches((64, 8), classes=3)
    method = ni.MetaInit(steps=60, lr=0.02, update=TwoMomentAdam())
    values = [r.value for r in ni.optimize(model, batches, method=method).history]
    assert sum(values[-5:]) < 0.7 * sum(values[:5])


def test_lsuv(found):
    model, batch = setting(found)
    method = ni.LSUV()
    torch.manual_seed(3)
    result = ni.optimize(model, [batch], found.loss_fn, method, found.compute_loss)
    inner = getattr(model, "_orig_mod", model)
    started = training_copy(inner)
    parameters = dict(started.named_parameters())
    for name, draw in result.drawn.items():
        parameters[name].data = draw.like(parameters[name].data)

    def forward(model):
        if found.compute_loss is not None:
            return found.compute_loss(model, batch)
        return model(batch[0])

    expected = dict(rivals.lsuv(started, forward).named_parameters())
    for name, scale in result.scales.items():
        torch.testing.assert_close(scale * parameters[name].data, expected[name].data)


def test_lsuv_gives_every_output_unit_variance():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 5),
    )
    inputs = 7 * torch.randn(32, 3, 8, 8) + 1
    ni.lsuv_(model, [inputs])
    for layer in model:
        inputs = layer(inputs)
        if hasattr(layer, "weight"):
            assert abs(inputs.var(correction=0) - 1) < 0.1
            assert not layer.bias.any()


@pytest.mark.parametrize("batch", ["inputs", "pair", "dict"])
def test_lsuv_needs_inputs_alone(batch):
    found = case("dict_batch" if batch == "dict" else "plain")
    model, raw = setting(found)
    if batch == "dict":
        result = ni.lsuv_(model, [raw], compute_loss=found.compute_loss)
    else:
        result = ni.lsuv_(model, [raw if batch == "pair" else raw[0]])
    assert any(scale != 1 for scale in result.scales.values())
    assert (result.before is None) == (batch != "dict")


def test_lsuv_takes_what_loaders_give():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(64, 4)), batch_size=64
    )
    assert ni.lsuv_(model, loader).scales["0.weight"] != 1
    with pytest.raises(TypeError, match="compute_loss"):
        ni.lsuv_(model, [{"x": torch.randn(8, 4)}])


def test_metainit_takes_a_function_for_its_choice():
    with pytest.raises(TypeError, match="`scales_of` should be callable"):
        ni.MetaInit(scales_of=3)


class Conv1D(nn.Module):
    """As in transformers: a linear layer with its weight the other way round."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.zeros(6))

    def forward(self, x):
        return x @ self.weight + self.bias


class Keywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Conv1D(), nn.Linear(6, 3)

    def forward(self, x):
        return self.second(input=self.first(x=x))


def test_lsuv_on_layers_called_by_keyword_and_on_conv1d():
    model, inputs = Keywords(), torch.randn(256, 4)
    ni.lsuv_(model, [inputs])
    assert abs(model.first(inputs).var() - 1) < 0.15
    assert abs(model(inputs).var() - 1) < 0.15


def test_lsuv_names_a_layer_that_is_not_finite():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.raises(ni.NonFiniteError, match=r"`0\.weight`"):
        ni.lsuv_(model, [torch.full((8, 4), float("inf"))])


def test_a_dead_layer_is_left_alone():
    model = nn.Sequential(nn.Linear(4, 4), nn.Threshold(1e6, 0.0), nn.Linear(4, 2))
    result = ni.lsuv_(model, [torch.randn(8, 4)])
    assert result.scales["2.weight"] == 1.0


@pytest.mark.parametrize("method", [ni.GradInit(steps=2), ni.MetaInit(steps=2)])
def test_gradients_that_are_zero_or_not_finite(method):
    batch = torch.randn(12, 4), torch.zeros(12, dtype=torch.long)
    dead = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))  # one class: no gradient
    with pytest.raises(ni.ZeroGradientError, match="Step 0"):
        ni.optimize(dead, [batch], F.cross_entropy, method)
    huge = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    with torch.no_grad():
        huge[0].weight.fill_(1e30)
        huge[1].weight.fill_(1e30)
    with pytest.raises(ni.NonFiniteError, match="Step 0"):
        ni.optimize(huge, [batch], F.cross_entropy, method)


SHORT = [ni.GradInit(steps=2), ni.GradInit(steps=2, gamma=1e-6), ni.MetaInit(steps=2), ni.LSUV()]


@pytest.mark.parametrize("method", SHORT, ids=["loss", "norm", "quotient", "lsuv"])
@pytest.mark.parametrize("found", ZOO, ids=lambda c: c.name)
def test_the_model_is_left_as_it_was(found, method):
    torch.manual_seed(0)
    model = found.build()
    before = snapshot(model)
    batches = [found.batch(9), found.batch(12)]
    result = ni.optimize(model, batches, found.loss_fn, method, found.compute_loss)
    assert_unchanged(before, model)
    result.apply_(model)
    assert_unchanged(before, model, except_for=("parameters",))
