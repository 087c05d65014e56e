"""LSUV against whole passes in float64, over the zoo."""

import contextlib

import pytest
import torch
from torch import nn

import neuroinit as ni
from tests.methods.cases import running_statistics, setting
from tests.methods.lsuv_oracle import lsuv
from tests.utils.architectures import INNER_GRADIENT, case
from tests.utils.oracles import training_copy


def drawn_start(result, model):
    """The model with the values that a result draws, not yet scaled."""
    start = training_copy(getattr(model, "_orig_mod", model))
    parameters = dict(start.named_parameters())
    for name, draw in result.drawn.items():
        parameters[name].data = draw.like(parameters[name].data)
    return start


def assert_same_weights(result, start, expected):
    """The result's scales times the start are the expected parameters."""
    parameters, expected = dict(start.named_parameters()), dict(expected.named_parameters())
    for name, scale in result.scales.items():
        torch.testing.assert_close(scale * parameters[name].data, expected[name].data)


def test_lsuv(found):
    model, batch = setting(found)
    if found.compute_loss in INNER_GRADIENT:
        with pytest.raises(ValueError, match="LSUV runs forward passes without gradients"):
            ni.optimize(model, [batch], found.loss_fn, ni.LSUV(), found.compute_loss)
        return
    torch.manual_seed(3)
    result = ni.optimize(model, [batch], found.loss_fn, ni.LSUV(), found.compute_loss)
    start = drawn_start(result, model)

    def forward(model):
        if found.compute_loss is not None:
            return found.compute_loss(model, batch)
        return model(batch[0])

    assert_same_weights(result, start, lsuv(start, forward))


class Far(nn.Module):
    """Layers that need many corrections: the bias, which is not scaled, dominates their outputs."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        x = self.norm(self.conv(x)).flatten(2).transpose(1, 2)
        return self.out(torch.relu(self.attention(x, x, x)[0]))


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (ni.LSUV.reference, {"deviation": True, "tries": 11, "running": True}),
        (ni.LSUV, {"deviation": False, "tries": 10, "running": False}),
    ],
    ids=["package", "paper"],
)
def test_lsuv_of_the_paper_and_of_the_package(method, options):
    torch.manual_seed(0)
    model, inputs = Far().double(), 3 * torch.randn(6, 2, 4, 4).double() + 1
    running_statistics(model)
    for layer in (model.conv, model.attention.out_proj, model.out):
        nn.init.normal_(layer.bias, std=3.0)
    result = ni.optimize(model, [inputs], None, method(exclude=("*bias",), tolerance_var=1e-3))
    start = drawn_start(result, model)
    expected = lsuv(start, lambda model: model(inputs), tolerance=1e-3, **options)
    assert_same_weights(result, start, expected)


@pytest.mark.parametrize("batch_first", [True, False])
def test_lsuv_scales_the_output_of_attention(batch_first):
    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 4, batch_first=batch_first)
            self.out = nn.Linear(16, 3)

        def forward(self, x):
            return self.out(self.attention(x, x, value=x, need_weights=False)[0])

    torch.manual_seed(0)
    model, inputs = Attending(), 5 * torch.randn(8, 7, 16)
    ni.lsuv_(model, [inputs])
    output, _ = model.attention(inputs, inputs, inputs)
    assert output.var().item() == pytest.approx(1, abs=0.1)
    assert model(inputs).var().item() == pytest.approx(1, abs=0.1)


class Field(nn.Module):
    """A force field: the model itself takes the gradient of an energy."""

    def __init__(self):
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(4, 6), nn.Softplus(), nn.Linear(6, 1))
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (force,) = torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)
        return self.out(force)


def test_lsuv_of_a_model_that_enables_gradients():
    torch.manual_seed(0)
    model, inputs = Field(), 5 * torch.randn(64, 4)
    ni.lsuv_(model, [inputs])
    assert model.energy[0](inputs).var().item() == pytest.approx(1, abs=0.1)
    assert model(inputs).var().item() == pytest.approx(1, abs=0.1)


def test_lsuv_leaves_a_single_output_alone():
    model = nn.Linear(4, 1)
    assert ni.lsuv_(model, [torch.randn(1, 4)], measure="deviation").scales["weight"] == 1


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


def test_without_redrawing_weights_are_only_scaled():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3))
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    inputs = torch.randn(256, 8)
    result = ni.lsuv_(model, [inputs], redraw=False)
    assert not result.drawn
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), result.scales[name] * before[name])
    assert float(model[0](inputs).var()) == pytest.approx(1, abs=0.1)
    assert float(model(inputs).var()) == pytest.approx(1, abs=0.1)
    assert result.scales["0.bias"] == result.scales["2.bias"] == 1


@pytest.mark.parametrize("value", [1.0, float("inf")])
def test_no_hooks_stay_on_the_model(value):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3))
    with contextlib.suppress(ni.NonFiniteError):
        ni.lsuv_(model, [value * torch.randn(16, 8)])
    assert not any(module._forward_hooks for module in model.modules())
