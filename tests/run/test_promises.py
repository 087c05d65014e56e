"""What optimize and nio_ promise about the user's model, whatever happens."""

import copy
import gc
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.utils.architectures import ZOO, case
from tests.utils.engines import ENGINES
from tests.utils.moving import ni
from tests.utils.snapshots import assert_unchanged, snapshot

pytestmark = pytest.mark.filterwarnings("ignore:All-zero tensors")  # one case is about them

METHOD = ni.NIO(steps=3, sub_batches=2, overlap=0.25)


@pytest.fixture(params=ZOO, ids=lambda c: c.name)
def found(request):
    return request.param


def build(found, batches=4):
    torch.manual_seed(0)
    model = found.build()
    for parameter in list(model.parameters())[:1]:
        if parameter.requires_grad:
            parameter.grad = torch.ones_like(parameter)
    return model, [found.batch(n) for n in range(8, 8 + batches)]


@pytest.mark.parametrize("engine", ENGINES)
def test_optimize_leaves_the_model_bit_identical(found, engine):
    model, batches = build(found)
    before = snapshot(model)
    ni.optimize(model, batches, found.loss_fn, METHOD, found.compute_loss, engine=engine)
    assert_unchanged(before, model)


def test_measures_leave_the_model_bit_identical(found):
    model, (batch, *_) = build(found)
    before = snapshot(model)
    ni.gradient_stats(model, batch, found.loss_fn, compute_loss=found.compute_loss)
    assert_unchanged(before, model)


def test_a_generator_of_the_model_is_restored(digits_like):
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.generator = nn.Linear(4, 3), torch.Generator()

        def forward(self, x):
            return self.linear(x) + torch.rand(3, generator=self.generator)

    model = Noisy()
    state = model.generator.get_state()
    first = ni.optimize(model, digits_like, method=METHOD)
    assert torch.equal(model.generator.get_state(), state)
    assert ni.optimize(model, digits_like, method=METHOD).scales == first.scales


def test_apply_changes_the_scaled_parameters_and_nothing_else(found):
    model, batches = build(found)
    result = ni.optimize(model, batches, found.loss_fn, METHOD, found.compute_loss)
    before = snapshot(model)
    old = {n: p.detach().clone() for n, p in model.named_parameters()}
    result.apply_(model)
    assert_unchanged(before, model, except_for=("parameters",))
    for name, parameter in model.named_parameters():
        scale = result.scales.get(name.removeprefix("_orig_mod."), 1.0)
        expected = (old[name].float() if old[name].dtype == torch.bfloat16 else old[name]) * scale
        assert torch.equal(parameter, expected.to(parameter.dtype)), name


def test_frozen_unused_and_zero_tensors_keep_their_values(found):
    model, batches = build(found)
    result = ni.optimize(model, batches, found.loss_fn, METHOD, found.compute_loss)
    inner = getattr(model, "_orig_mod", model)
    for name, parameter in inner.named_parameters():
        if not parameter.requires_grad or not parameter.any():
            assert name not in result.scales
        else:
            assert name in result.scales
    if found.name == "unused":
        assert 1.0 in result.scales.values()


def test_a_second_run_gives_the_same_scales(found):
    model, batches = build(found)
    runs = []
    for _ in range(2):
        torch.manual_seed(5)
        run = ni.optimize(model, batches, found.loss_fn, METHOD, found.compute_loss)
        runs.append(run.scales)
    assert runs[0] == runs[1]


def test_no_tensor_of_a_run_stays_in_memory(found):
    model, batches = build(found)
    assert not left_by(
        lambda: ni.optimize(model, batches, found.loss_fn, METHOD, found.compute_loss)
    )


@pytest.mark.parametrize("method", [ni.GradInit(steps=2), ni.MetaInit(steps=2), ni.LSUV()])
def test_nor_does_one_of_another_method(small_model, digits_like, method):
    assert not left_by(lambda: ni.optimize(small_model, digits_like, method=method))


def test_nor_does_one_of_the_automatic_choice(small_model, digits_like):
    def choose():
        ni.auto_(copy.deepcopy(small_model), digits_like, optimizer=torch.optim.Adam, budget=32)

    assert not left_by(choose)


def left_by(run):
    """Tensors that are still there: a graph can hold itself where no garbage collector sees it."""
    run()  # fills caches
    gc.collect()
    gc.freeze()  # what is there is not looked at
    try:
        run()
        gc.collect()
        return [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]
    finally:
        gc.unfreeze()


class Boom(Exception):
    pass


def failing_loader(batches, error):
    yield from batches[:2]
    raise error("on purpose")


@pytest.mark.parametrize("error", [Boom, KeyboardInterrupt])
def test_nothing_changes_when_the_loader_raises(found, error):
    model, batches = build(found)
    before = snapshot(model)
    with pytest.raises(error, match="on purpose"):
        ni.nio_(
            model,
            failing_loader(batches, error),
            found.loss_fn,
            compute_loss=found.compute_loss,
            steps=5,
            sub_batches=2,
        )
    assert_unchanged(before, model)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("error", [Boom, KeyboardInterrupt])
@pytest.mark.parametrize("when", [1, 2, 4, 7])
def test_nothing_changes_when_the_loss_raises(error, when, engine):
    found = case("batch_norm_2d")
    model, batches = build(found)
    before = snapshot(model)
    calls = []

    def loss_fn(output, target):
        calls.append(1)
        if len(calls) == when:
            raise error("on purpose")
        return F.cross_entropy(output, target)

    with pytest.raises(error, match="on purpose"):
        ni.nio_(model, batches, loss_fn, engine=engine, steps=5, sub_batches=2, gamma=1.0)
    assert_unchanged(before, model)


@pytest.mark.parametrize("error", [Boom, KeyboardInterrupt])
def test_nothing_changes_when_a_callback_raises(small_model, digits_like, error):
    before = snapshot(small_model)

    def on_step(record):
        raise error("on purpose")

    with pytest.raises(error, match="on purpose"):
        ni.nio_(small_model, digits_like, on_step=on_step, steps=3)
    assert_unchanged(before, small_model)


def test_a_callback_sees_the_users_own_model(small_model, digits_like):
    before = snapshot(small_model)
    seen = []

    def on_step(record):
        assert_unchanged(before, small_model, except_for=("torch random",))
        seen.append(record.step)

    ni.optimize(small_model, digits_like, method=ni.NIO(steps=3), on_step=on_step)
    assert seen == [0, 1, 2]


def test_apply_interrupted_half_way_changes_nothing(small_model, digits_like, monkeypatch):
    result = ni.optimize(small_model, digits_like, method=ni.NIO(steps=3))
    before = snapshot(small_model)
    calls = []
    original = ni.Result._scaled

    def interrupted(self, name, tensor):
        calls.append(name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, name, tensor)

    monkeypatch.setattr(ni.Result, "_scaled", interrupted)
    with pytest.raises(KeyboardInterrupt):
        result.apply_(small_model)
    assert_unchanged(before, small_model)


def test_random_states_come_back(small_model, digits_like):
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = small_model

        def forward(self, x):
            random.random()
            np.random.rand()
            return self.body(x) + 0.01 * torch.randn(len(x), 3)

    model = Noisy()
    before = snapshot(model)
    results = [
        ni.optimize(model, digits_like, method=ni.NIO(steps=3), engine=engine) for engine in ENGINES
    ]
    assert_unchanged(before, model)
    assert results[0].scales == pytest.approx(results[1].scales, rel=1e-5)


def test_optimizers_made_before_stay_valid(small_model, digits_like):
    optimizer = torch.optim.SGD(small_model.parameters(), lr=0.1)
    ni.nio_(small_model, digits_like, steps=3)
    weight = small_model[0].weight
    F.cross_entropy(small_model(digits_like[0][0]), digits_like[0][1]).backward()
    before = weight.detach().clone()
    optimizer.step()
    assert not torch.equal(weight, before)


def test_works_under_no_grad_and_inference_mode(small_model, digits_like):
    expected = ni.optimize(small_model, digits_like, method=ni.NIO(steps=2)).scales
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            assert ni.optimize(small_model, digits_like, method=ni.NIO(steps=2)).scales == expected


def test_dropout_is_off():
    for name in ("dropout", "functional_dropout", "drop_path", "transformer"):
        found = case(name)
        model, (batch, *_) = build(found)
        values = set()
        for seed in range(3):
            torch.manual_seed(seed)
            stats = ni.gradient_stats(model, batch, found.loss_fn, compute_loss=found.compute_loss)
            values.add(stats.loss)
        assert len(values) == 1


def test_a_blocking_zero_is_reported_and_reinit_zeros_helps():
    found = case("zero_gain")
    model, batches = build(found)
    with pytest.warns(UserWarning, match="All-zero tensors block the gradient of .*reinit_zeros"):
        result = ni.optimize(model, batches, found.loss_fn, METHOD)
    assert result.blocked
    assert "no gradient because of all-zero tensors" in repr(result)

    before = snapshot(model)
    helped = ni.nio_(model, batches, found.loss_fn, steps=3, sub_batches=2, reinit_zeros=0.01)
    assert not helped.blocked
    assert helped.drawn.keys() <= helped.scales.keys()
    assert_unchanged(before, model, except_for=("parameters",))
    for name, parameter in model.named_parameters():
        if name in helped.drawn:
            assert 0 < parameter.std() < 0.05


def test_reinitialized_zeros_survive_saving(tmp_path):
    found = case("zero_gain")
    model, batches = build(found)
    method = ni.NIO(steps=2, sub_batches=2, reinit_zeros=0.01)
    result = ni.optimize(model, batches, found.loss_fn, method)
    result.save(tmp_path / "result.json")
    twin = build(found)[0]
    result.apply_(model)
    ni.load_result(tmp_path / "result.json").apply_(twin)
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)
