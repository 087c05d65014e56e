"""Methods side by side, random data, warmup."""

import math
import random
import sys

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import neuroinit as ni
from tests.utils.snapshots import assert_unchanged, snapshot


def network():
    return nn.Sequential(
        nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)
    )


METHODS = [
    None,
    ni.Kaiming(),
    ni.LSUV(),
    ni.GradInit(steps=2),
    ni.MetaInit(steps=2),
    ni.NIO(steps=2, sub_batches=4),
]


def test_one_record_for_each_method_and_seed(digits_like, capsys):
    seeds = [3, 5]
    torch.manual_seed(1)
    state = torch.get_rng_state()
    table = ni.compare(
        network, digits_like, METHODS, seeds, train=lambda m: m[0].weight[0, 0].item()
    )
    assert torch.equal(torch.get_rng_state(), state)
    names = ["as it is", "Kaiming", "LSUV", "GradInit", "MetaInit", "NIO"]
    assert [(r.seed, r.method) for r in table] == [(s, n) for s in seeds for n in names]
    untouched, kaiming = table[0], table[1]
    assert untouched.norm == untouched.norm_before
    assert untouched.cost == 0
    assert untouched.cosine == pytest.approx(table[1].cosine_before)
    assert kaiming.norm != kaiming.norm_before
    torch.manual_seed(3)
    assert untouched.score == float(network()[0].weight[0, 0].detach())
    assert all(r.cost > 0 for r in table if r.method != "as it is")
    printed = capsys.readouterr().out
    assert "GradCosine" in printed
    assert all(name in printed for name in names)


def test_measures_are_those_of_the_first_batch(digits_like):
    (record,) = ni.compare(network, digits_like, [None], [0], show=False)
    torch.manual_seed(0)
    stats = ni.gradient_stats(network(), digits_like[0], sub_batches=8)
    assert record.cosine == pytest.approx(stats.cosine, rel=1e-6)
    assert record.norm == pytest.approx(stats.norm, rel=1e-6)


def test_names_of_your_own_and_twins(digits_like):
    named = {"short": ni.NIO(steps=1), "long": ni.NIO(steps=2)}
    assert ni.compare(network, digits_like, named, [0], show=False).methods == ["short", "long"]
    twins = ni.compare(network, digits_like, [ni.NIO(steps=1), ni.NIO(steps=2)], [0], show=False)
    assert twins.methods == ["NIO", "NIO 2"]


def test_the_start_has_one_row_whatever_it_is_called(digits_like):
    def first_column(methods):
        return [
            row[0] for row in ni.compare(network, digits_like, methods, [0], show=False).rows()[1]
        ]

    assert first_column({"default": None, "ours": ni.NIO(steps=1)}) == ["default", "ours"]
    assert first_column({"ours": ni.NIO(steps=1)}) == ["(before)", "ours"]


def test_one_is_no_plural(digits_like):
    alone = ni.compare(network, digits_like, [None], [0], show=False)
    assert str(alone).startswith("1 method, 1 seed: mean")


def test_warmup_reaches_the_training(digits_like):
    seen = []

    def train(model, warmup):
        seen.append(warmup)
        return 0.0

    warmup = ni.Warmup(warmup_steps=4)
    ni.compare(network, digits_like, [None, warmup], [0], train=train, show=False)
    assert seen == [None, warmup]
    with pytest.raises(TypeError, match=r"train\(model, warmup\)"):
        ni.compare(network, digits_like, [warmup], [0], train=lambda model: 0.0)


def test_warmup_is_linear():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = ni.Warmup(warmup_steps=4).schedule(optimizer)
    rates = []
    for _ in range(6):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


def test_a_method_that_fails_is_a_row(digits_like):
    def broken():
        model = network()
        with torch.no_grad():
            model[0].weight.fill_(1e30)
            model[2].weight.fill_(1e30)
        return model

    table = ni.compare(
        broken, digits_like, [None, ni.MetaInit(steps=1), ni.Kaiming()], [0], show=False
    )
    assert "not finite" in table[1].failed
    assert math.isnan(table[1].norm)
    assert not table[2].failed
    assert table[2].norm > 0
    assert "1 of 1" in str(table)


def test_frame(digits_like):
    pandas = pytest.importorskip("pandas", reason="pandas is an extra")
    frame = ni.compare(network, digits_like, [None], [0, 1], show=False).frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["seed"]) == [0, 1]


def test_without_pandas_and_rich(digits_like, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    table = ni.compare(network, digits_like, [None], [0])
    assert "as it is" in capsys.readouterr().out
    with pytest.raises(ModuleNotFoundError, match=r'pip install "neuroinit\[pandas\]"'):
        table.frame()


def never(*args):
    raise AssertionError("called before all arguments were checked")


def test_printing_leaves_the_random_state(digits_like, monkeypatch):
    table = ni.compare(network, digits_like, [None], [0], show=False)
    for name in [name for name in sys.modules if name.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)  # it draws random numbers when it is imported
    state = random.getstate()
    table.print()
    assert random.getstate() == state


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_factory": network()}, "fresh model on every call"),
        ({"batches": iter([])}, "every method iterates over it"),
        ({"batches": (torch.randn(8, 4), torch.zeros(8))}, "Found a `tuple` of tensors. Wrap"),
        ({"methods": []}, "`methods` is empty"),
        ({"methods": {1: None}}, "`methods` should be a dict whose keys are names"),
        ({"methods": ni.Kaiming()}, "`methods` should be a list"),
        ({"batches": []}, "yields nothing"),
        ({"seeds": 3}, "`seeds`"),
        ({"seeds": []}, "`seeds`"),
        ({"seeds": [2**70]}, "`seeds`"),
        ({"methods": ["nio"]}, "`methods` should hold initializations"),
        ({"train": 3}, "`train` should be callable"),
        ({"engine": "kept"}, "`engine` should be one of"),
        (
            {"methods": [None, ni.GradInit()], "engine": "differences"},
            "`engine = 'differences'` is not supported by `GradInit`",
        ),
    ],
)
def test_bad_input(digits_like, changes, message):
    arguments = {"batches": digits_like, "methods": [None], "train": never, **changes}
    arguments.setdefault("model_factory", never)
    with pytest.raises((TypeError, ValueError), match=message):
        ni.compare(**arguments)


def test_a_factory_that_makes_the_same_model_again(digits_like):
    model = network()
    before = snapshot(model)
    with pytest.raises(TypeError, match=r"`model_factory`.*the same one twice"):
        ni.compare(lambda: model, digits_like, [None, ni.Kaiming()], [0])
    assert_unchanged(before, model)


# -- random data -----------------------------------------------------------------------------------


def test_random_batches_have_the_statistics_of_the_example():
    example = 3 + 2 * torch.randn(4000, 5)
    inputs, labels = next(iter(ni.random_batches(example, classes=4, seed=7)))
    assert inputs.shape == example.shape
    assert inputs.mean().item() == pytest.approx(example.mean().item(), abs=0.05)
    assert inputs.std().item() == pytest.approx(example.std().item(), abs=0.05)
    assert set(labels.tolist()) == {0, 1, 2, 3}


def test_a_shape_has_positive_sizes():
    with pytest.raises(ValueError, match=r"`example\[1\]` should be an int of at least 1"):
        ni.random_batches((4, -1), classes=3)


def test_random_tokens_stay_in_the_vocabulary():
    inputs, _ = next(iter(ni.random_batches(torch.tensor([[0, 6], [3, 2]]), classes=2)))
    assert inputs.dtype == torch.long
    assert 0 <= inputs.min() <= inputs.max() <= 6


def test_random_batches_repeat_themselves():
    batches = ni.random_batches((4, 2), classes=3, seed=1)
    first, second = next(iter(batches)), next(iter(batches))
    assert torch.equal(first[0], second[0])
    assert not torch.equal(first[0], next(iter(ni.random_batches((4, 2), classes=3, seed=2)))[0])


# -- promises --------------------------------------------------------------------------------------


LEARNED = [ni.gradinit_, ni.metainit_, ni.lsuv_]


@pytest.mark.parametrize("in_place", LEARNED)
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_changes_when_the_loss_raises(in_place, error, digits_like):
    model = network()
    before = snapshot(model)
    calls = []

    def loss_fn(output, target):
        calls.append(1)
        if len(calls) > 3:
            raise error("on purpose")
        return nn.functional.cross_entropy(output, target)

    with pytest.raises(error, match="on purpose"):
        in_place(model, digits_like, loss_fn, steps=6)
    assert_unchanged(before, model)


def test_an_optional_argument_of_train_is_its_own(digits_like):
    seen = []

    def train(model, epochs=5):
        seen.append(epochs)
        return 0.0

    ni.compare(network, digits_like, [None], [0], train=train, show=False)
    assert seen == [5]


def test_a_shuffled_loader_leaves_the_random_state(digits_like):
    data = torch.utils.data.TensorDataset(*digits_like[0])
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
    state = torch.get_rng_state()
    ni.compare(network, loader, [None, ni.Kaiming()], [0], show=False)
    assert torch.equal(torch.get_rng_state(), state)


def test_models_that_cannot_be_copied(digits_like):
    def normed():
        with pytest.warns(FutureWarning):
            return nn.utils.weight_norm(nn.Linear(4, 3))

    model = normed()
    model(torch.randn(2, 4))
    assert len(ni.compare(normed, digits_like, [None, ni.NIO(steps=1)], [0], show=False)) == 2


def test_shapes_of_one_and_small_integers():
    inputs, _ = next(iter(ni.random_batches((1,), classes=3)))
    assert torch.isfinite(inputs).all()
    inputs, _ = next(iter(ni.random_batches(torch.tensor([[3, 1]], dtype=torch.uint8), 3)))
    assert inputs.dtype == torch.uint8
    with pytest.raises(TypeError, match="`example`"):
        ni.random_batches(16, 3)


def test_a_training_step_of_checkpointed_modules_is_timed(digits_like):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16), nn.GELU())
            self.head = nn.Linear(16, 3)

        def forward(self, x):
            return self.head(checkpoint(self.block, x, use_reentrant=False))

    (record,) = ni.compare(Checkpointed, digits_like, [None], [0], show=False)
    assert not record.failed
