"""NIO against the paper's Alg. 3 and the authors' released code, written the slow way."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from neuroinit.methods.rules import HeldNorm
from neuroinit.model.problem import Problem
from tests.utils import oracles
from tests.utils.architectures import ZOO, case
from tests.utils.engines import ENGINES


def binary(output, target):
    return F.binary_cross_entropy(output, (target > 0).to(output.dtype))


def build(found, batches=3):
    torch.manual_seed(0)
    return found.build(), [found.batch(n) for n in range(8, 8 + batches)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("gamma", [0.5, 100.0])
@pytest.mark.parametrize(
    "name",
    ["plain", "relu", "in_place", "tied_embedding", "batch_norm_1d", "batch_norm_2d", "attention"],
)
def test_paper_equals_the_oracle_of_algorithm_3(name, gamma, engine):
    found = case(name)
    model, batches = build(found)
    method = ni.NIO.paper(steps=5, lr=0.05, gamma=gamma, sub_batches=2, overlap=0.6)
    result = ni.optimize(model, batches, found.loss_fn, method, found.compute_loss, engine=engine)
    scales, constrained, values = oracles.nio_paper(
        model,
        batches,
        found.loss_fn,
        steps=5,
        lr=0.05,
        gamma=gamma,
        D=2,
        r=0.6,
        compute_loss=found.compute_loss,
    )
    assert [record.constrained for record in result.history] == constrained
    assert result.scales == pytest.approx(scales, rel=1e-8, abs=1e-8)
    for record, (cosine, norm) in zip(result.history, values, strict=True):
        assert (record.cosine, record.norm) == pytest.approx((cosine, norm), rel=1e-8)


class ReferenceNet(nn.Module):
    """Convolutions, BatchNorm, LayerNorm and biases: what the authors' code knows."""

    def __init__(self, norm):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(4) if norm else nn.Identity()
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(4) if norm else nn.Identity()
        self.norm3 = nn.LayerNorm(4)
        self.head = nn.Linear(4, 3)
        self.gain = nn.Parameter(torch.ones(4))  # neither weight nor bias: never scaled

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(self.norm2(self.conv2(x)))
        return self.head(self.norm3(x.mean((2, 3)) * self.gain))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("D", "r"), [(2, 0.0), (2, 0.6), (3, 0.2), (4, 0.2)])
@pytest.mark.parametrize("norm", [True, False])
def test_reference_equals_the_released_code(norm, D, r, engine):
    torch.manual_seed(3)
    model = ReferenceNet(norm).double()
    batches = [
        (torch.randn(12, 1, 5, 5, dtype=torch.float64), torch.randint(3, (12,))) for _ in range(4)
    ]
    start = ni.gradient_stats(model, batches[0], sub_batches=D, batch_stats="batch").norm
    settings = {"steps": 12, "lr": 0.05, "gamma": 0.8 * start}
    method = ni.NIO.reference(**settings, sub_batches=D, overlap=r)
    result = ni.optimize(model, batches, F.cross_entropy, method, engine=engine)
    scales, constrained, _ = oracles.nio_reference(
        model, batches, lambda y, t: F.cross_entropy(y, t, reduction="none"), D=D, r=r, **settings
    )
    assert set(constrained) == {True, False}  # through objective and constraint steps
    assert [record.constrained for record in result.history] == constrained
    # A bias before BatchNorm has no gradient but rounding, which Adam's eps of 1e-8 lets through.
    assert result.scales == pytest.approx(scales, rel=1e-6, abs=1e-6)
    drifting = "conv1.bias" if norm else None
    for name in scales.keys() - {drifting}:
        assert result.scales[name] == pytest.approx(scales[name], rel=1e-10)


def test_reference_lets_biases_reach_zero_and_stay_there():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    batches = [(torch.randn(16, 4, dtype=torch.float64), torch.randint(3, (16,)))]
    settings = {"steps": 30, "lr": 0.3, "gamma": 0.2}
    result = ni.optimize(
        model, batches, method=ni.NIO.reference(**settings, sub_batches=2, overlap=0.0)
    )
    scales, _, _ = oracles.nio_reference(
        model,
        batches,
        lambda y, t: F.cross_entropy(y, t, reduction="none"),
        D=2,
        r=0.0,
        **settings,
    )
    assert min(result.scales.values()) == 0.0
    assert result.scales == pytest.approx(scales, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("found", [c for c in ZOO if c.name != "zero_gain"], ids=lambda c: c.name)
def test_every_engine_gives_the_same_scales(found):
    model, batches = build(found)
    runs = [
        ni.optimize(
            model,
            batches,
            found.loss_fn,
            ni.NIO(steps=4, sub_batches=2, overlap=0.25, rule=ni.HeldNorm()),
            found.compute_loss,
            engine=engine,
        )
        for engine in ENGINES
    ]
    tolerance = 1e-5 if found.name in ("float32", "bfloat16") else 1e-9
    assert runs[0].scales == pytest.approx(runs[1].scales, rel=tolerance)


@pytest.mark.parametrize(
    ("last", "loss_fn", "expected"),
    [
        (nn.Identity(), F.cross_entropy, math.log(3)),
        (nn.LogSoftmax(1), F.nll_loss, math.log(3)),
        (nn.Sequential(nn.Linear(3, 1), nn.Flatten(0), nn.Sigmoid()), binary, math.log(2)),
        (nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), F.cross_entropy, math.log(3)),
    ],
    ids=["scores", "log-softmax", "sigmoid", "weight-norm"],
)
def test_gamma_auto_whatever_the_model_ends_in(small_model, digits_like, last, loss_fn, expected):
    model = nn.Sequential(small_model, last)
    result = ni.optimize(model, digits_like, loss_fn, ni.NIO(steps=1, rule=ni.HeldNorm()))
    assert result.settings["gamma"] == pytest.approx(expected, rel=1e-6)

    def compute_loss(model, batch):
        return loss_fn(model(batch[0]), batch[1])

    same = ni.optimize(model, digits_like, None, ni.NIO(steps=1, rule=ni.HeldNorm()), compute_loss)
    assert same.settings["gamma"] == pytest.approx(expected, rel=1e-6)


def test_gamma_auto_without_a_usable_loss_asks_for_a_number(small_model, digits_like):
    def loss_fn(output, target):
        return 1e-9 * (output**2).mean()  # next to nothing for any parameters

    with pytest.raises(ValueError, match=r"which is 0 with parameters near zero.*gamma=1\.0"):
        ni.optimize(small_model, digits_like, loss_fn, ni.NIO(steps=1))


@pytest.mark.parametrize("family", ["sgd", "adam"])
@pytest.mark.parametrize("factor", [0.01, 0.8, 1.5, 100.0])
def test_gamma_auto_follows_the_rate_of_sgd(small_model, digits_like, family, factor):
    problem = Problem(small_model, F.cross_entropy)
    batch = problem.prepare(digits_like[0])
    plain = ni.NIO(gamma="auto", rule=HeldNorm()).resolve(problem, batch)
    loss = plain.gamma / plain.gamma_per_loss
    rate = loss / (factor * plain.gamma) ** 2  # so that sqrt(loss / rate) is so many times as large
    method = ni.NIO(gamma="auto", rule=HeldNorm(), rate=rate, family=family)
    wanted = min(max(factor, 0.5), 2.0) if family == "sgd" else 1.0
    assert method.resolve(problem, batch).gamma == pytest.approx(wanted * plain.gamma)


APPENDIX_B = {
    "resnet110": (0.1, 0.6, 5.0),
    "densenet100": (0.15, 0.6, 3.0),
    "wrn28-10": (0.25, 0.7, 2.0),
    "resnet110-nobn": (0.015, 0.7, 4.0),
    "densenet100-nobn": (0.015, 0.75, 3.5),
    "wrn28-10-nobn": (0.3, 0.8, 2.0),
}


@pytest.mark.parametrize("name", APPENDIX_B)
def test_the_table_of_appendix_b(name):
    for data, factor in (("cifar10", 1), ("cifar100", 2)):
        method = ni.NIO.paper(f"{data}-{name}")
        lr, overlap, gamma = APPENDIX_B[name]
        assert (method.lr, method.overlap, method.gamma) == (lr, overlap, factor * gamma)


def test_the_presets_are_those_of_appendix_b():
    assert len(ni.PRESETS) == 14
    paper = ni.NIO.paper("cifar100-wrn28-10-nobn")
    assert (paper.lr, paper.overlap, paper.gamma, paper.sub_batches) == (0.3, 0.8, 4.0, 2)
    imagenet = ni.NIO.reference("imagenet-resnet50")
    assert (imagenet.lr, imagenet.gamma, imagenet.sub_batches, imagenet.steps) == (
        0.003,
        10,
        4,
        100,
    )
    with pytest.raises(ValueError, match="`preset` should be one of 'cifar10-resnet110', "):
        ni.NIO.paper("resnet")


def test_include_and_exclude_choose_the_scaled_tensors(small_model, digits_like):
    def scaled(**fields):
        return set(ni.optimize(small_model, digits_like, method=ni.NIO(steps=2, **fields)).scales)

    assert scaled(include=("*.weight",)) == {"0.weight", "2.weight"}
    assert scaled(exclude=("*.bias", "0.*")) == {"2.weight"}


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"steps": 0}, ValueError, "`steps` should be an int of at least 1. Found `steps = 0`"),
        ({"steps": 2.5}, TypeError, "`steps` should be an int"),
        ({"steps": True}, TypeError, "`steps` should be an int"),
        ({"lr": 0.0}, ValueError, "`lr` should be a finite number > 0"),
        ({"lr": math.nan}, ValueError, "`lr = nan`"),
        ({"lr": math.inf}, ValueError, "`lr = inf`"),
        ({"lr": "fast"}, TypeError, "`lr` should be a number"),
        ({"gamma": -1.0}, ValueError, '`gamma` should be a finite number > 0 or "auto"'),
        ({"gamma": math.nan}, ValueError, "`gamma = nan`"),
        ({"gamma": "automatic"}, TypeError, '`gamma` should be a number or "auto"'),
        ({"gamma": None}, TypeError, "`gamma` should be a number"),
        ({"sub_batches": 1}, ValueError, "`sub_batches` should be an int of at least 2"),
        ({"sub_batches": "all"}, TypeError, '`sub_batches` should be an int or "samples"'),
        ({"overlap": 1.0}, ValueError, "`overlap` should be a finite number >= 0 and < 1"),
        ({"overlap": -0.1}, ValueError, "`overlap = -0.1`"),
        ({"overlap": math.nan}, ValueError, "`overlap = nan`"),
        ({"split": "even"}, ValueError, "`split` should be one of 'cover', 'paper', 'reference'"),
        ({"batch_stats": "all"}, ValueError, "`batch_stats` should be one of 'sub-batch', 'batch'"),
        ({"min_scale": 1.0}, ValueError, "`min_scale` should be a finite number >= 0 and < 1"),
        ({"min_scale": math.nan}, ValueError, "`min_scale = nan`"),
        ({"min_bias_scale": -1.0}, ValueError, "`min_bias_scale = -1.0`"),
        ({"include": "*.weight"}, TypeError, "`include` should be a tuple of patterns"),
        ({"exclude": (1,)}, TypeError, "`exclude` should be a tuple of patterns"),
        ({"reinit_zeros": 0.0}, ValueError, "`reinit_zeros` should be a finite number > 0"),
        ({"reinit_zeros": math.nan}, ValueError, "`reinit_zeros = nan`"),
        ({"tolerance": -1.0}, ValueError, "`tolerance = -1.0`"),
        ({"rule": "paper"}, TypeError, "`rule` should be a rule such as"),
        ({"rule": ni.HeldNorm}, TypeError, "`rule` should be a rule such as"),
        ({"gradients_of": "Linear"}, TypeError, "`gradients_of` should be callable"),
    ],
)
def test_every_field_out_of_its_range(fields, error, message):
    with pytest.raises(error, match=message):
        ni.NIO(**fields)


@pytest.mark.parametrize("method", [ni.NIO(), ni.NIO.paper(), ni.GradInit(), ni.MetaInit()])
def test_methods_need_a_loss(small_model, digits_like, method):
    with pytest.raises(TypeError, match="Pass a `loss_fn"):
        ni.optimize(small_model, digits_like, None, method)


@pytest.mark.parametrize("method", [ni.NIO(), ni.NIO.paper(), ni.GradInit()])
def test_scales_stay_above_the_bound_of_the_paper(method):
    assert method.lowest(["0.weight", "0.bias"]).tolist() == [0.01, 0.01]


def test_biases_have_no_lower_bound_in_the_released_code():
    assert ni.NIO.reference().lowest(["0.weight", "0.bias"]).tolist() == [0.01, 0.0]


def test_methods_are_frozen_values():
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field"):
        ni.NIO().steps = 3
    assert ni.NIO(steps=3) == ni.NIO(steps=3)


def tripled(*layers):
    torch.manual_seed(0)
    model = nn.Sequential(*layers)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3)
    return model


def mlp(outputs):
    return tripled(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, outputs)
    )


def cnn():
    layers = [m for _ in range(3) for m in (nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())]
    stem = (nn.Unflatten(1, (2, 2, 2)), nn.Conv2d(2, 8, 3, padding=1), nn.ReLU())
    return tripled(*stem, *layers, nn.Flatten(), nn.Linear(32, 2))


@pytest.mark.filterwarnings("ignore:The gradient norm is")
@pytest.mark.parametrize("build", [lambda: mlp(2), cnn], ids=["mlp", "cnn"])
@pytest.mark.parametrize("size", [8, 64])
@pytest.mark.parametrize("gamma", ["auto", 0.3, 0.01])
def test_a_bound_below_what_the_last_bias_contributes_does_not_kill_the_network(build, size, gamma):
    """Nothing but the last bias's gradient would be left, of a network that sees no input."""
    model, teacher = build(), torch.randn(8, 2)
    inputs = torch.randn(40, size, 8)
    batches = [(x, (x @ teacher).argmax(1)) for x in inputs]
    result = ni.nio_(model, batches, gamma=gamma)
    assert model(inputs[0]).std(0).min() > 1e-4
    assert min(s for n, s in result.scales.items() if "weight" in n) > 0.02


@pytest.mark.filterwarnings("ignore:The gradient norm is")
@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_regression_with_targets_of_any_size(size):
    """A bound from the loss has the square of the targets' size, and gradients have the size."""
    model, teacher = mlp(1), torch.randn(8, 1)
    inputs = torch.randn(40, 64, 8)
    batches = [(x, size * torch.tanh(x @ teacher)) for x in inputs]
    ni.nio_(model, batches, F.mse_loss, rule=ni.HeldNorm())
    x, y = batches[0]
    assert 1e-3 * size < model(x).std() < 2 * size
    assert F.mse_loss(model(x), y) < 2 * y.square().mean()


def test_a_head_that_no_loss_sees_keeps_its_values_in_an_explosion():
    torch.manual_seed(0)
    model = nn.ModuleDict(
        {"body": nn.Linear(4, 8), "head": nn.Linear(8, 3), "other": nn.Linear(8, 3)}
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(9.0)
    batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(12)]

    def compute_loss(model, batch):
        return F.cross_entropy(model["head"](model["body"](batch[0]).relu()), batch[1])

    scales = ni.optimize(model, batches, None, ni.NIO(steps=12), compute_loss).scales
    assert scales["head.weight"] < 0.5
    assert scales["other.weight"] == scales["other.bias"] == 1.0
