"""Initializations that need no data: what is drawn, and what stays unchanged."""

import math

import pytest
import torch
from torch import nn

import neuroinit as ni
from neuroinit.methods.classic.layers import is_norm, is_weight
from neuroinit.model.parameters.fresh_values import Draw
from neuroinit.model.parameters.selection import places, unwrap
from tests.utils.architectures import ZOO
from tests.utils.snapshots import assert_unchanged, snapshot

CLASSIC = [
    ni.Kaiming(),
    ni.Kaiming(mode="fan_out", distribution="uniform"),
    ni.Xavier(),
    ni.Xavier(distribution="uniform"),
    ni.Orthogonal(),
    ni.TruncNormal(),
]
IN_PLACE = [ni.kaiming_, ni.xavier_, ni.orthogonal_, ni.trunc_normal_]


def drawn(model, **fields):
    result = ni.optimize(model, (), None, ni.Kaiming(**fields))
    return result.apply_(model)


@pytest.mark.parametrize(
    ("method", "std"),
    [
        (ni.Kaiming(nonlinearity="relu"), math.sqrt(2 / 300)),
        (ni.Kaiming(nonlinearity="relu", distribution="uniform"), math.sqrt(2 / 300)),
        (ni.Kaiming(nonlinearity="tanh", mode="fan_out"), 5 / 3 / math.sqrt(400)),
        (ni.Xavier(nonlinearity="linear"), math.sqrt(2 / 700)),
        (ni.Xavier(nonlinearity="linear", distribution="uniform"), math.sqrt(2 / 700)),
        (ni.TruncNormal(std=0.5), 0.5 * 0.8796),
        (ni.Orthogonal(nonlinearity="linear"), 1 / math.sqrt(400)),
    ],
)
def test_spread_of_the_weights(method, std):
    model = nn.Linear(300, 400)
    ni.optimize(model, (), None, method).apply_(model)
    weight = model.weight.detach()
    assert weight.std().item() == pytest.approx(std, rel=0.02)
    assert weight.mean().abs().item() < 0.02 * std
    assert not model.bias.any()
    if getattr(method, "distribution", "") == "uniform":
        assert weight.abs().max().item() == pytest.approx(std * math.sqrt(3), rel=0.01)
    if isinstance(method, ni.TruncNormal):
        assert weight.abs().max() <= 2 * 0.5


@pytest.mark.parametrize(("rows", "columns"), [(6, 9), (9, 6), (7, 7)])
def test_orthogonal_rows_or_columns(rows, columns):
    model = nn.Linear(columns, rows).double()
    ni.orthogonal_(model, nonlinearity="relu")
    matrix = model.weight.detach() / math.sqrt(2)
    small = matrix @ matrix.T if rows <= columns else matrix.T @ matrix
    torch.testing.assert_close(small, torch.eye(min(rows, columns), dtype=torch.float64))


def test_groups_are_orthogonal_by_themselves():
    model = nn.Conv2d(12, 12, 3, groups=12)
    ni.orthogonal_(model, nonlinearity="linear")
    torch.testing.assert_close(model.weight.flatten(1).norm(dim=1), torch.ones(12))


def test_memory_that_holds_anything_is_filled():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    with torch.no_grad():
        model[0].weight.fill_(math.nan)
    ni.kaiming_(model)
    assert torch.isfinite(model[0].weight).all()


def test_biases_alone():
    model = nn.Linear(3, 3)
    weight = model.weight.detach().clone()
    ni.kaiming_(model, include=("*bias",))
    assert torch.equal(model.weight, weight)
    assert not model.bias.any()


def test_gains_of_the_form_one_plus_weight_stay():
    class OddRMSNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3))

    model = nn.Sequential(nn.Linear(3, 3), OddRMSNorm())
    ni.kaiming_(model)
    assert not model[1].weight.any()


def test_gates_and_projections_are_matrices_of_their_own():
    lstm, attention = nn.LSTM(6, 5), nn.MultiheadAttention(6, 2)
    for model, key, count in ((lstm, "weight_hh_l0", 4), (attention, "in_proj_weight", 3)):
        ni.orthogonal_(model.double(), nonlinearity="linear")
        for block in getattr(model, key).detach().chunk(count):
            torch.testing.assert_close(block @ block.T, torch.eye(len(block), dtype=torch.float64))
    assert not lstm.bias_ih_l0.any()
    assert not attention.in_proj_bias.any()


def test_norms_embeddings_and_padding():
    model = nn.Sequential(
        nn.Embedding(500, 64, padding_idx=3), nn.LayerNorm(64), nn.BatchNorm1d(4), nn.RMSNorm(64)
    )
    for parameter in model.parameters():
        nn.init.constant_(parameter, 7.0)
    drawn(model)
    assert model[0].weight[4:].norm(dim=1).mean().item() == pytest.approx(1.0, rel=0.05)
    assert not model[0].weight[3].any()
    for norm in model[1:]:
        assert (norm.weight == 1).all()
    assert not model[1].bias.any()


def test_what_is_left_alone():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Parameter(torch.full((1, 3), 2.0))
            self.gain = nn.Parameter(torch.tensor(2.0))
            self.body = nn.Linear(3, 3)
            self.frozen = nn.Linear(3, 3).requires_grad_(False)
            self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))

    model = Odd()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    result = ni.kaiming_(model)
    kept = [n for n, p in model.named_parameters() if torch.equal(p, before[n])]
    weight = "normed.parametrizations.weight.original"
    assert kept == ["token", "gain", "frozen.weight", "frozen.bias", f"{weight}0", f"{weight}1"]
    assert set(result.drawn) == {"body.weight", "body.bias", "normed.bias"}


def test_patterns_choose_what_is_drawn():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    result = ni.xavier_(model, include=("*.weight",), exclude=("1.*",))
    assert set(result.drawn) == {"0.weight"}
    with pytest.raises(ValueError, match="matches no parameter"):
        ni.xavier_(model, include=("head.*",))


@pytest.mark.parametrize("found", ZOO, ids=lambda c: c.name)
@pytest.mark.parametrize("method", CLASSIC, ids=lambda m: repr(m)[:40])
def test_every_rule_over_the_zoo(found, method):
    torch.manual_seed(0)
    model = found.build()
    before = snapshot(model)
    result = ni.optimize(model, (), None, method)
    assert_unchanged(before, model)
    old = {n: p.detach().clone() for n, p in unwrap(model).named_parameters()}
    result.apply_(model)
    assert_unchanged(before, model, except_for=("parameters",))
    seen = set()
    for module, key, name in places(unwrap(model)):
        tensor = module._parameters[key]
        if name in seen:
            continue
        seen.add(name)
        if not tensor.requires_grad:
            assert torch.equal(tensor, old[name])
        elif is_weight(module, key, tensor):
            assert name in result.drawn
            assert not torch.equal(tensor, old[name])
        elif is_norm(module):
            assert (tensor == float(key == "weight")).all()
        elif name not in result.drawn:
            assert torch.equal(tensor, old[name])
    assert all(scale == 1 for scale in result.scales.values())


@pytest.mark.parametrize("found", ZOO, ids=lambda c: c.name)
def test_statistics_before_and_after(found):
    torch.manual_seed(0)
    model, batch = found.build(), found.batch(16)
    result = ni.optimize(model, [batch], found.loss_fn, ni.Xavier(), found.compute_loss)
    assert result.history == []
    assert result.before.norm > 0
    assert result.after.norm > 0
    assert (result.before.norm != result.after.norm) == bool(result.drawn)


@pytest.mark.parametrize("in_place", IN_PLACE)
def test_the_global_seed_decides_and_goes_on(in_place):
    def twice():
        torch.manual_seed(4)
        models = nn.Linear(8, 8), nn.Linear(8, 8)
        for model in models:
            in_place(model)
        return [model.weight.detach().clone() for model in models]

    first, second = twice(), twice()
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert not torch.equal(first[0], first[1])


def test_a_drawn_start_survives_saving(tmp_path):
    model = nn.Sequential(nn.Embedding(9, 6, padding_idx=0), nn.LSTM(6, 5))
    result = ni.optimize(model, (), None, ni.Orthogonal())
    result.save(tmp_path / "start.json")
    twin = nn.Sequential(nn.Embedding(9, 6, padding_idx=0), nn.LSTM(6, 5))
    ni.load_result(tmp_path / "start.json").apply_(twin)
    result.apply_(model)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


KINDS = (ni.Kaiming, ni.Xavier, ni.Orthogonal, ni.TruncNormal, ni.LSUV, ni.GradInit, ni.MetaInit)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (ni.Kaiming, {"mode": "fan"}),
        (ni.Kaiming, {"distribution": "cauchy"}),
        (ni.Kaiming, {"nonlinearity": "gelu"}),
        (ni.Xavier, {"distribution": "cauchy"}),
        (ni.Xavier, {"nonlinearity": 1}),
        *((kind, {field: "*.weight"}) for kind in KINDS for field in ("include", "exclude")),
        (ni.Orthogonal, {"nonlinearity": "x"}),
        (ni.TruncNormal, {"std": 0.0}),
        (ni.TruncNormal, {"std": math.nan}),
        (ni.LSUV, {"steps": 0}),
        (ni.LSUV, {"tolerance_var": math.nan}),
        (ni.LSUV, {"tries": 0}),
        (ni.LSUV, {"measure": "std"}),
        (ni.LSUV, {"batch_stats": "sub-batch"}),
        (ni.GradInit, {"gamma": 0.0}),
        (ni.GradInit, {"eta": math.nan}),
        (ni.GradInit, {"family": "lion"}),
        (ni.GradInit, {"overlap": 1.0}),
        (ni.GradInit, {"update": "adam"}),
        (ni.GradInit, {"gradients_of": "conv"}),
        (ni.GradInit, {"min_bias_scale": 1.0}),
        (ni.MetaInit, {"momentum": 1.0}),
        (ni.MetaInit, {"eps": 0.0}),
        (ni.MetaInit, {"update": "adam"}),
        (ni.MetaInit, {"scales_of": 3}),
        (ni.MetaInit, {"batch_stats": "sub-batch"}),
        (ni.Warmup, {"warmup_steps": 0}),
    ],
)
def test_fields_out_of_range(kind, fields):
    (name,) = fields
    with pytest.raises((TypeError, ValueError), match=f"`{name}`"):
        kind(**fields)


def test_an_unknown_field_names_the_function():
    with pytest.raises(TypeError, match=r"`fan` is not an argument of `kaiming_`.*mode"):
        ni.kaiming_(nn.Linear(2, 2), fan="in")


# -- FixUp -----------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(40, 40, bias=False) for _ in range(layers))
        self.bias1 = nn.Parameter(torch.full((1,), 3.0))
        self.scale = nn.Parameter(torch.full((1,), 3.0))

    @property
    def fixup_branch(self):
        return list(self.layers)

    def forward(self, x):
        branch = x + self.bias1
        for layer in self.layers:
            branch = torch.relu(layer(branch))
        return x + self.scale * branch


class Network(nn.Module):
    def __init__(self, blocks=16, layers=3):
        super().__init__()
        self.stem = nn.Linear(40, 40)
        self.blocks = nn.Sequential(*[Block(layers) for _ in range(blocks)])
        self.fixup_classifier = nn.Linear(40, 10)

    def forward(self, x):
        return self.fixup_classifier(self.blocks(self.stem(x)))


def test_fixup():
    model = Network(blocks=16, layers=3)
    ni.fixup_(model)
    assert not model.fixup_classifier.weight.any()
    assert not model.fixup_classifier.bias.any()
    torch_default = 1 / math.sqrt(3 * 40)
    assert model.stem.weight.std().item() == pytest.approx(torch_default, rel=0.1)
    assert model.stem.weight.abs().max() <= 1 / math.sqrt(40)
    assert not model.stem.bias.any()
    kaiming = math.sqrt(2 / 40)
    for block in model.blocks:
        *first, last = block.layers
        assert not last.weight.any()
        for layer in first:  # L = 16, m = 3
            assert layer.weight.std().item() == pytest.approx(kaiming * 16**-0.25, rel=0.1)
        assert block.bias1.item() == 0
        assert block.scale.item() == 1
    x = torch.randn(4, 40)
    torch.testing.assert_close(model.blocks(x), x)


def test_fixup_of_a_stem_with_one_input():
    model = Network(blocks=2)
    model.stem = nn.Linear(1, 400)
    ni.fixup_(model)
    largest = model.stem.weight.abs().max().item()
    assert 0.9 < largest <= 1.0  # uniform within 1 / sqrt(fan_in)


def test_fixup_leaves_slopes_alone():
    model = Network(blocks=2)
    model.slope = nn.PReLU()
    ni.fixup_(model)
    assert model.slope.weight.item() == 0.25


def test_fixup_says_so_on_other_models():
    model = nn.Sequential(nn.Linear(3, 3))
    with pytest.raises(ValueError, match="`fixup_branch`"):
        ni.fixup_(model)


def test_a_draw_depends_on_its_seed_alone():
    torch.manual_seed(0)
    first = Draw("normal", 1.0, 5).like(torch.empty(4))
    torch.manual_seed(1)
    assert torch.equal(first, Draw("normal", 1.0, 5).like(torch.empty(4)))
