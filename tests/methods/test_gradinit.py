"""GradInit against slow oracles in float64, over the zoo."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from neuroinit.methods.updates import Position
from tests.methods import rivals
from tests.methods.cases import Keep, assert_close, placed, setting
from tests.utils.architectures import case
from tests.utils.engines import ENGINES

pytestmark = pytest.mark.filterwarnings(
    "ignore:All-zero tensors", "ignore:The gradient norm is .* far above the bound"
)


OPTIONS = {
    "norm": {"gamma": 1e-6},
    "l1 norm": {"gamma": 1e-6, "family": "adam"},
    "loss": {"gamma": 1e6},
    "plain loss": {"gamma": 1e6, "normalize": False},
    "adam loss": {"gamma": 1e6, "family": "adam", "eta": 0.01},
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
