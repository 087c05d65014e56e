"""What users' models and data do: each of these once gave a wrong number or a bad error."""

import copy
import math
import warnings
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuroinit.gradients.plan import make_plan
from neuroinit.gradients.statistics.gradient_stats import measure
from neuroinit.model.problem import Problem
from tests.run.models.overlapping import OVERLAP, batch_of, network, true_norms
from tests.utils import oracles
from tests.utils.architectures import ZOO
from tests.utils.engines import ENGINES
from tests.utils.moving import ni
from tests.utils.snapshots import assert_unchanged, snapshot


def test_a_weighted_loss_is_no_mean_over_samples_even_if_all_losses_are_equal():
    model = network()
    nn.init.zeros_(model[2].weight)
    nn.init.zeros_(model[2].bias)
    loss_fn = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.1]).double())
    stats = ni.gradient_stats(model, batch_of(), loss_fn, 2, 0.5)
    torch.testing.assert_close(stats.norms, true_norms(model, batch_of(), loss_fn))


def test_ragged_labels_in_a_later_batch_are_seen():
    """A mean over tokens is a mean over samples only while all samples have as many tokens."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 6), nn.Linear(6, 7)).double()

    def compute_loss(model, batch):
        return F.cross_entropy(model(batch["x"]).flatten(0, 1), batch["y"].flatten())

    full = {"x": torch.randint(7, (12, 5)), "y": torch.randint(7, (12, 5))}
    ragged = {"x": full["x"], "y": full["y"].clone()}
    for row in range(12):
        ragged["y"][row, 1 + row % 4 :] = -100
    result = ni.optimize(
        model, [full, ragged], None, ni.NIO.paper(steps=2, overlap=0.5), compute_loss
    )
    scales, _, values = oracles.nio_paper(
        model,
        [full, ragged],
        None,
        steps=2,
        lr=0.1,
        gamma=5.0,
        D=2,
        r=0.5,
        compute_loss=compute_loss,
    )
    assert result.scales == pytest.approx(scales, rel=1e-9)
    assert result.history[1].norm == pytest.approx(values[1][1], rel=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_model_that_changes_its_input_in_place(engine):
    class Standardizing(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = network()

        def forward(self, x):
            return self.body(x.mul_(2.0))

    model, batch = Standardizing(), batch_of()
    before = batch[0].clone()
    method = ni.NIO.paper(steps=2, sub_batches=2, overlap=0.0)
    result = ni.optimize(model, [batch], method=method, engine=engine)
    assert torch.equal(batch[0], before)
    expected = F.cross_entropy(model.body(2 * before), batch[1]).item()
    assert result.history[0].loss == pytest.approx(expected)


def test_a_parameter_used_past_its_module_is_an_error():
    class Sneaky(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = network()
            self.direct = [self.body[2].weight]

        def forward(self, x):
            return F.linear(self.body[:2](x), self.direct[0])

    for run in (
        lambda model: ni.optimize(model, [batch_of()], method=OVERLAP),
        lambda model: ni.optimize(model, [batch_of()]),
        lambda model: ni.gradient_stats(model, batch_of()),
        lambda model: ni.score(model, batch_of()),
    ):
        with pytest.raises(ValueError, match=r"uses `body.2.weight` through another reference"):
            run(Sneaky())


def test_frozen_embeddings_with_a_largest_norm_keep_their_values():
    table = nn.Embedding(10, 6, max_norm=0.1)
    model = nn.Sequential(table, nn.Flatten(), nn.Linear(12, 3))
    table.weight.requires_grad_(False)
    batch = torch.randint(10, (8, 2)), torch.randint(3, (8,))
    before = snapshot(model)
    ni.gradient_stats(model, batch)
    assert_unchanged(before, model)


def test_attributes_that_change_in_place_come_back():
    class Logging(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = network()
            self.log, self.table, self.names, self.count = [], {"n": 0}, set(), torch.zeros(1)

        def forward(self, x):
            self.log.append(len(x))
            self.table["n"] += 1
            self.names.add(len(self.log))
            self.count += 1
            return self.body(x)

    model = Logging()
    ni.optimize(model, [batch_of()], method=OVERLAP)
    assert (model.log, model.table, model.names, model.count.item()) == ([], {"n": 0}, set(), 0)


def test_scripted_models_are_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch 2.13 deprecates scripting
        scripted = torch.jit.script(network())
    with pytest.raises(TypeError, match="scripted or traced model"):
        ni.gradient_stats(scripted, batch_of())


def test_numpy_batches():
    inputs, targets = batch_of()
    arrays = inputs.numpy(), targets.numpy()
    expected = ni.optimize(network(), [(inputs, targets)], method=OVERLAP).scales
    assert ni.optimize(network(), [arrays], method=OVERLAP).scales == expected


def test_numpy_numbers_as_settings():
    method = ni.NIO(steps=np.int64(2), sub_batches=np.int64(2), gamma=np.float64(1.0))
    assert len(ni.optimize(network(), [batch_of()], method=method).history) == 2


def test_hardsigmoid_has_no_double_backward_and_works():
    model = nn.Sequential(nn.Linear(6, 8), nn.Hardsigmoid(), nn.Linear(8, 3)).double()
    twin = copy.deepcopy(model)
    twin[1] = nn.Sequential()
    twin[1].forward = lambda x: F.relu6(x + 3) / 6
    runs = [ni.optimize(m, [batch_of()], method=OVERLAP).scales for m in (model, twin)]
    assert runs[0] == pytest.approx(runs[1], rel=1e-12)


def test_the_reference_works_without_biases():
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False))
    method = ni.NIO.reference(steps=2, sub_batches=2)
    assert len(ni.optimize(model.double(), [batch_of()], method=method).scales) == 2


@dataclass
class Output(OrderedDict):
    """Like a Hugging Face output: a dataclass and a mapping that cannot be updated."""

    logits: Tensor

    def __post_init__(self):
        super().__init__(logits=self.logits)

    def update(self, *args, **kwargs):
        raise TypeError("not here")


def test_outputs_that_are_dataclasses_and_mappings():
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = network()

        def forward(self, x):
            return Output(self.body(x))

    def loss_fn(output, target):
        return F.cross_entropy(output.logits, target)

    expected = ni.optimize(network(), [batch_of()], method=OVERLAP).scales
    found = ni.optimize(Wrapped(), [batch_of()], loss_fn, OVERLAP).scales
    assert list(found.values()) == pytest.approx(list(expected.values()), rel=1e-12)


def test_a_bad_held_out_batch_does_not_lose_the_run():
    bad = batch_of()[0] / 0.0, batch_of()[1]
    result = ni.optimize(network(), [batch_of(), batch_of(), bad], method=OVERLAP)
    assert len(result.history) == 2
    assert result.before is None
    assert "NIO: 2 steps" in repr(result)


def test_a_start_that_is_not_finite_is_shrunk():
    torch.manual_seed(0)
    body = [m for _ in range(60) for m in (nn.Linear(16, 16), nn.ReLU())]
    model = nn.Sequential(nn.Linear(6, 16), *body, nn.Linear(16, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(20)
    batches = [(batch_of(32)[0].float(), batch_of(32)[1])]
    with pytest.raises(ni.NonFiniteError, match="Step 0: The loss is not finite"):
        ni.optimize(model, batches, method=ni.NIO.paper())
    result = ni.nio_(model, batches)
    assert result.before is None
    assert result.after.norm < 100


def test_autocast_around_the_call_changes_nothing():
    model = network().float()
    batch = batch_of()[0].float(), batch_of()[1]
    expected = ni.optimize(model, [batch], method=OVERLAP).scales
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ni.optimize(model, [batch], method=OVERLAP).scales == expected


@pytest.mark.parametrize("found", ZOO[::4], ids=lambda c: c.name)
def test_statistics_do_not_depend_on_how_many_gradients_are_held(found, monkeypatch):
    monkeypatch.setattr("neuroinit.gradients.statistics.gradient_stats.FEW", 0)
    torch.manual_seed(0)
    problem = Problem(found.build(), found.loss_fn, found.compute_loss)
    point, batch = problem.at(problem.unit_scales), problem.prepare(found.batch(12))
    plan = make_plan(problem, batch, 6, 0.0, "cover", "sub-batch")
    whole, tiled = measure(point, batch, plan), measure(point, batch, plan, held=2)
    torch.testing.assert_close(whole.cosines, tiled.cosines, rtol=1e-6, atol=1e-9)
    assert whole.loss == tiled.loss
    assert [x.norm for x in whole.layers] == pytest.approx([x.norm for x in tiled.layers])


class CosineAttention(nn.Module):
    """Cosine attention over padded tokens, as in Swin V2: their keys are exactly zero."""

    def __init__(self):
        super().__init__()
        self.key, self.value = nn.Linear(4, 8, bias=False), nn.Linear(4, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        tokens = torch.stack([x, x.roll(1, -1), torch.zeros_like(x)], 1)
        keys = F.normalize(self.key(tokens), dim=-1)
        weights = (keys[:, :2] @ keys.mT).softmax(-1)
        return self.head((weights @ self.value(tokens)).mean(1))


def test_normalized_zero_vectors_have_a_second_derivative(digits_like):
    result = ni.optimize(CosineAttention(), digits_like, method=ni.NIO(steps=3))
    assert all(math.isfinite(scale) for scale in result.scales.values())


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_in_place_activations_after_a_product_of_many_dimensions(engine):
    """A linear map of tokens is a view inside, which a custom function may not hand out."""
    torch.manual_seed(0)
    layers = [nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.ReLU(inplace=True)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(24, 3))
    batches = [(torch.randn(16, 3, 4), torch.randint(3, (16,))) for _ in range(3)]
    twin = copy.deepcopy(model)
    twin[1], twin[3] = nn.ReLU(), nn.ReLU()
    method = ni.NIO(steps=2)
    torch.manual_seed(1)
    found = ni.optimize(model, batches, method=method, engine=engine)
    torch.manual_seed(1)
    assert found.scales == ni.optimize(twin, batches, method=method, engine=engine).scales
