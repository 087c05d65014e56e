"""Zero-cost proxies: each against its definition, written out."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from neuroinit.choose.score import METRICS
from tests.utils import oracles
from tests.utils.snapshots import assert_unchanged, snapshot


@pytest.fixture
def batch():
    return torch.randn(6, 4, dtype=torch.float64), torch.randint(3, (6,))


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3)).double()


def sample_gradients(model, batch):
    """One sample at a time, by plain autograd, without dropout."""
    model = model.eval()
    rows = []
    for x, y in zip(*batch, strict=True):
        found = torch.autograd.grad(F.cross_entropy(model(x[None]), y[None]), model.parameters())
        rows.append(torch.cat([g.flatten() for g in found]))
    return torch.stack(rows)


def test_against_the_definitions(model, batch):
    found = ni.score(model, batch)
    g = sample_gradients(model, batch)
    norms = g.norm(dim=1)
    cosines = (g @ g.T) / (norms[:, None] * norms[None, :])
    theta = norms.max() ** 2 / 6 * (norms.max() / norms.min() - cosines).sum()
    everything = [slice(i, i + 1) for i in range(6)]
    contrast = oracles.contrast_gram(model, batch, everything)
    assert found == pytest.approx(
        {
            "gradcosine": float(cosines.mean()),
            "agreement": float(oracles.agreement(contrast)),
            "gradsign": float(g.sign().sum(0).abs().sum()),
            "grad_norm": float(g.mean(0).norm()),
            "theta": float(theta),
            "parameters": 4 * 8 + 8 + 8 * 3 + 3,
            "flops": 2 * (4 * 8 + 8 * 3),
        }
    )


def test_a_sample_without_gradient_makes_theta_infinite():
    model, inputs = nn.Linear(4, 3, bias=False), torch.randn(6, 4)
    inputs[0] = 0.0
    assert ni.score(model, (inputs, torch.zeros(6).long()), ["theta"]) == {"theta": math.inf}


def test_the_model_is_left_as_it_was(model, batch):
    before = snapshot(model)
    ni.score(model, batch)
    assert_unchanged(before, model)


@pytest.mark.parametrize("name", sorted(METRICS))
def test_one_at_a_time(model, batch, name):
    assert ni.score(model, batch, metrics=[name])[name] == ni.score(model, batch)[name]


def test_batch_norm_and_other_losses():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3))
    batch = {"x": torch.randn(6, 1, 8, 8), "y": torch.randint(3, (6,))}

    def compute_loss(model, batch):
        return F.cross_entropy(model(batch["x"]), batch["y"], reduction="none")

    found = ni.score(model, batch, compute_loss=compute_loss, targets="y")
    assert set(found) == set(METRICS)
    assert -0.2 <= found["agreement"] <= 1
    assert math.isnan(ni.score(model, batch, "agreement", None, compute_loss)["agreement"])
    assert found["flops"] == 2 * (36 * 9 * 4 + 144 * 3)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 12)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        query, key, value = self.project(x + 0.1 * torch.randn_like(x)).chunk(3, -1)
        return self.head(F.scaled_dot_product_attention(query, key, value).mean(1))


def test_operations_are_those_of_one_pass_with_attention():
    """Passes that draw random numbers may be repeated; torch does not count fused attention."""
    batch = torch.randn(6, 5, 4), torch.randint(3, (6,))
    expected = 2 * (5 * 4 * 12 + 2 * 5 * 5 * 4 + 4 * 3)
    assert ni.score(Attention(), batch, "flops") == {"flops": expected}


@pytest.mark.parametrize("metrics", [["cosine"], [], "speed"])
def test_unknown_metrics_are_one_clear_error(model, batch, metrics):
    with pytest.raises(ValueError, match=r"Parameter `metrics` should be some of 'gradcosine'"):
        ni.score(model, batch, metrics=metrics)
