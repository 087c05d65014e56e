"""Bad input: one clear error that names argument, value and fix; the model as it was."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit import nio_
from tests.utils.architectures import CONSTANT_LOSS, LAZY, NAN_LOSS
from tests.utils.moving import ni
from tests.utils.snapshots import assert_unchanged, snapshot


def per_token(output, target):
    return torch.zeros(len(output), 2, requires_grad=True) + output.sum()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"batches": []}, ValueError, "`batches` yields nothing"),
        ({"batches": iter([])}, ValueError, "`batches` yields nothing"),
        ({"batches": None}, TypeError, "Pass `batches`, or `example=inputs`"),
        ({"batches": 3}, TypeError, "`batches` should be an iterable of batches"),
        (
            {"batches": (torch.randn(8, 4), torch.zeros(8))},
            TypeError,
            r"tuple` of tensors. Wrap a single batch in a list: `\[\(inputs, targets\)\]`",
        ),
        ({"batches": iter([torch.randn(16, 4)])}, TypeError, "is not a pair .*compute_loss"),
        ({"batches": [{"x": torch.randn(16, 4)}]}, TypeError, "`dict` is not a pair"),
        (
            {"batches": [(torch.randn(16, 4), torch.zeros(16), torch.zeros(16))]},
            TypeError,
            "`tuple` and length 3 is not a pair",
        ),
        (
            {"batches": [(torch.randn(1, 4), torch.zeros(1).long())]},
            ValueError,
            "batch of 1 samples cannot be cut into `sub_batches = 8`",
        ),
        (
            {"batches": [(torch.randn(16, 4), torch.zeros(15).long())]},
            ValueError,
            r"disagree about dimension 0: found sizes \[15, 16\]",
        ),
        ({"loss_fn": "mse"}, TypeError, "`loss_fn` should be callable. Found `loss_fn = 'mse'`"),
        ({"loss_fn": nn.MSELoss}, TypeError, r"the class `MSELoss`: pass `MSELoss\(\)`"),
        ({"loss_fn": lambda y, t: (y.argmax(1) != t).sum()}, TypeError, "Found `torch.int64`"),
        ({"loss_fn": None}, TypeError, "Pass a `loss_fn.*or a `compute_loss"),
        ({"loss_fn": per_token}, ValueError, r"one value per sample. Found shape \(16, 2\) for 16"),
        ({"loss_fn": lambda y, t: 1.0}, TypeError, "loss should be a tensor. Found a `float`"),
        (
            {"loss_fn": lambda y, t: F.cross_entropy(y, t).detach()},
            ValueError,
            "does not depend on any trainable parameter",
        ),
        ({"compute_loss": 3}, TypeError, "`compute_loss` should be callable"),
        (
            {"loss_fn": F.nll_loss, "compute_loss": lambda model, batch: model(batch[0]).sum()},
            TypeError,
            "Found `loss_fn = .*nll_loss.* and `compute_loss`.*Pass one of them",
        ),
        ({"method": "nio"}, TypeError, r"`method` should be a method such as `NIO\(\)`"),
        ({"method": ni.NIO}, TypeError, r"`method` should be a method such as `NIO\(\)`"),
        ({"on_step": 3}, TypeError, "`on_step` should be callable. Found `on_step = 3`"),
        ({"engine": "fast"}, ValueError, "`engine` should be one of 'auto', 'keep', 'stream'"),
        ({"microbatch": 0}, ValueError, "`microbatch` should be an int of at least 1"),
        ({"model": "resnet"}, TypeError, "`model` should be a torch.nn.Module"),
        ({"model": nn.ReLU()}, ValueError, "no trainable parameter"),
        (
            {"method": ni.NIO(include=("*.gain",))},
            ValueError,
            r"Pattern `\*.gain` .*matches no parameter. The parameters are: `0.weight`",
        ),
        ({"method": ni.NIO(exclude=("*",))}, ValueError, "Nothing to scale"),
    ],
)
def test_bad_arguments(small_model, digits_like, arguments, error, message):
    before = snapshot(small_model)
    given = {"model": small_model, "batches": digits_like, "loss_fn": F.cross_entropy, **arguments}
    with pytest.raises(error, match=message):
        ni.optimize(**given)
    assert_unchanged(before, small_model)


def test_an_unknown_field_lists_the_fields(small_model, digits_like):
    with pytest.raises(TypeError, match=r"`step` is not an argument of `nio_`.*steps, lr"):
        ni.nio_(small_model, digits_like, step=3)


def test_lazy_modules_need_a_first_forward(digits_like):
    torch.manual_seed(0)
    with pytest.raises(ValueError, match=r"lazy and have no shape yet.*Run one forward pass first"):
        ni.nio_(LAZY.build(), [LAZY.batch(8)], LAZY.loss_fn)


def complex_weight(model):
    model[0].weight = nn.Parameter(model[0].weight.to(torch.complex64))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda m: m[0].weight.data.fill_(float("nan")), "not finite: `0.weight`"),
        (lambda m: m.to("meta"), "on the meta device: `0.weight`"),
        (complex_weight, "complex: `0.weight`"),
    ],
)
def test_parameters_that_cannot_be_scaled(small_model, digits_like, spoil, message):
    spoil(small_model)
    with pytest.raises(ValueError, match=message):
        ni.nio_(small_model, digits_like)


def test_a_gradient_that_is_exactly_zero():
    torch.manual_seed(0)
    model = CONSTANT_LOSS.build()
    before = snapshot(model)
    with pytest.raises(ValueError, match=r"Step 0: The gradient of sub-batch 0 is exactly zero"):
        ni.nio_(model, [CONSTANT_LOSS.batch(8)], CONSTANT_LOSS.loss_fn, sub_batches=2, gamma=1.0)
    with pytest.raises(ValueError, match=r"gradient of sub-batch 0 is exactly zero"):
        ni.gradient_stats(model, CONSTANT_LOSS.batch(8), CONSTANT_LOSS.loss_fn)
    assert_unchanged(before, model)


def test_a_loss_that_is_not_finite_names_the_step():
    torch.manual_seed(0)
    model = NAN_LOSS.build()
    before = snapshot(model)
    with pytest.raises(ni.NonFiniteError, match=r"Step 0: The loss is not finite: nan"):
        ni.nio_(model, [NAN_LOSS.batch(8)], NAN_LOSS.loss_fn, sub_batches=2, gamma=1.0)
    assert_unchanged(before, model)


def test_a_later_loss_that_is_not_finite_loses_nothing(small_model, digits_like):
    before = snapshot(small_model)
    poisoned = [*digits_like[:3], (digits_like[3][0] / 0.0, digits_like[3][1])]
    with pytest.raises(ni.NonFiniteError, match=r"Step 3: The loss is not finite") as caught:
        ni.nio_(small_model, poisoned, steps=6)
    assert_unchanged(before, small_model)
    partial = caught.value.result
    assert len(partial.history) == 3
    clean = ni.optimize(small_model, digits_like, method=ni.NIO(steps=3))
    assert set(partial.scales) == set(clean.scales)
    partial.apply_(small_model)


def test_a_gradient_that_is_not_finite_names_the_parameter(digits_like):
    class RootAtZero(nn.Module):
        """The loss is finite, its derivative by `root` is not."""

        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 3)
            self.root = nn.Parameter(torch.tensor([1.0, 0.0, 0.0]))

        def forward(self, x):
            return self.body(x) + self.root.sqrt()

    with pytest.raises(ni.NonFiniteError, match=r"Step 0: The gradient .* not finite in `root`"):
        ni.optimize(RootAtZero(), digits_like, method=ni.NIO.paper())
    with pytest.raises(ni.NonFiniteError, match=r"Step 0: The gradient .* not finite in `root`"):
        ni.nio_(RootAtZero(), digits_like, gamma=1.0)


def test_microbatches_need_independent_samples(digits_like):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    expected = "`microbatch = 2` needs a loss in which samples do not depend.*`1` mixes samples"
    with pytest.raises(ValueError, match=expected):
        ni.nio_(model, digits_like, microbatch=2)


def test_statistics_of_the_whole_batch_need_losses_of_samples(digits_like):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    with pytest.raises(ValueError, match=r"`compute_loss` that returns one loss per sample"):
        ni.nio_(
            model,
            digits_like,
            batch_stats="batch",
            compute_loss=lambda m, b: F.cross_entropy(m(b[0]), b[1]),
            gamma=1.0,
        )


def test_the_paper_split_that_leaves_a_sub_batch_empty(small_model, digits_like):
    with pytest.raises(ValueError, match=r"`split = 'paper'` leaves sub-batch .* empty for 16"):
        ni.optimize(small_model, digits_like, method=ni.NIO(split="paper", sub_batches=7))


def test_apply_to_another_model(small_model, digits_like):
    result = ni.optimize(small_model, digits_like, method=ni.NIO(steps=1))
    with pytest.raises(ValueError, match=r"no parameter `0.weight`"):
        result.apply_(nn.Linear(4, 3))
    with pytest.raises(TypeError, match=r"`model` should be a torch.nn.Module"):
        result.apply_(small_model.state_dict())


CALLS = {
    "optimize": lambda model, batches: ni.optimize(model, batches, method=ni.NIO(steps=3)),
    "nio_": lambda model, batches: nio_(model, batches, steps=3, gamma=1.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_warnings_point_at_the_caller_and_are_given_once(name):
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    nn.init.zeros_(model[3].weight)
    batches = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(2)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        CALLS[name](model, iter(batches))
    beginnings = ["BatchNorm needs two", "All-zero tensors", "The batches ended"]
    assert all(str(w.message).startswith(b) for w, b in zip(caught, beginnings, strict=True))
    assert {w.filename for w in caught} == {__file__}


def test_a_warning_about_the_optimizer_points_at_the_caller(small_model, digits_like):
    sgd = torch.optim.SGD(small_model.parameters(), lr=0.1)
    sgd.param_groups[0]["initial_lr"] = 0.2
    with pytest.warns(UserWarning, match="A scheduler has set") as caught:
        nio_(small_model, digits_like, optimizer=sgd, steps=2)
    assert [w.filename for w in caught] == [__file__]


def test_a_sum_over_samples_is_told():
    batches = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(2)]
    with pytest.warns(UserWarning, match=r"sum over samples.*reduction='mean'"):
        nio_(nn.Linear(4, 3), batches, nn.CrossEntropyLoss(reduction="sum"), progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nio_(nn.Linear(4, 3), batches, nn.CrossEntropyLoss(), progress=False)
