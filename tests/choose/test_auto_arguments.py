"""What `auto_` takes, and what it leaves as it was."""

import copy
import math

import pytest
import torch
from torch import nn

import neuroinit as ni
from neuroinit.run.rollout import twin_of
from tests.choose.learnable import FEW, learnable, network, sgd
from tests.utils.snapshots import assert_unchanged, snapshot


def test_what_the_optimizer_does_not_hold_stays():
    model = network()
    with torch.no_grad():
        model[2].weight.mul_(1e4)
    before = [p.clone() for p in model[0].parameters()]
    optimizer = torch.optim.SGD(model[2:].parameters(), lr=0.1)
    result = ni.auto_(model, learnable(), optimizer=optimizer, budget=60, candidates=FEW)
    assert result.winner in FEW
    assert all(torch.equal(a, b) for a, b in zip(before, model[0].parameters(), strict=True))
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("where", [0, -1])
def test_data_that_is_not_finite_is_named(where):
    batches = learnable()
    batches[where][0][2, 3] = math.nan
    with pytest.raises(ValueError, match=f"Batch {where % len(batches)} is not finite"):
        ni.auto_(network(), batches, optimizer=sgd, budget=20, candidates=FEW)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors(layout):
    batch = torch.nested.nested_tensor([torch.randn(n, 4) for n in (2, 3, 5, 4)], layout=layout)

    def compute_loss(model, batch):
        return torch.stack([model(part).mean().square() for part in batch.unbind()])

    result = ni.auto_(
        nn.Linear(4, 3), [batch] * 4, optimizer=sgd, compute_loss=compute_loss, budget=40
    )
    assert result.steps


def test_a_function_that_takes_other_parameters():
    model = network()
    before = snapshot(model)
    with pytest.raises(ValueError, match="of the parameters that it is given"):
        ni.auto_(model, learnable(), optimizer=lambda p: sgd(model.parameters()), candidates=FEW)
    assert_unchanged(before, model)


def test_a_rate_of_zero():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)
    with pytest.raises(ValueError, match="learning rate of `optimizer` is 0"):
        ni.auto_(model, learnable(), optimizer=optimizer)


def test_gradients_of_nothing_else_are_left_behind():
    criterion = nn.Linear(3, 3)
    batches = [(x.requires_grad_(), y) for x, y in learnable(8)]

    def loss_fn(output, target):
        return nn.functional.cross_entropy(criterion(output), target)

    ni.auto_(network(), batches, loss_fn, optimizer=sgd, budget=12, candidates=FEW)
    assert criterion.weight.grad is None
    assert all(x.grad is None for x, _ in batches)


def test_the_optimizer_is_not_touched():
    model = network(gain=30.0)
    optimizer = torch.optim.AdamW(
        [{"params": model[0].parameters(), "lr": 0.5}, {"params": model[2:].parameters()}], lr=1e-3
    )
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    before = copy.deepcopy(optimizer.state_dict())
    ni.auto_(model, learnable(), optimizer=optimizer, budget=20, candidates=FEW)
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    assert torch.equal(after["state"][0]["exp_avg"], before["state"][0]["exp_avg"])
    assert optimizer.param_groups[0]["params"][0] is model[0].weight


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("when", [1, 9, 20])
def test_nothing_changes_when_the_loss_raises(error, when):
    model = network(gain=30.0)
    before = snapshot(model)
    calls = []

    def loss_fn(output, target):
        calls.append(1)
        if len(calls) > when:
            raise error("on purpose")
        return nn.functional.cross_entropy(output, target)

    with pytest.raises(error, match="on purpose"):
        ni.auto_(model, learnable(), loss_fn, optimizer=sgd, budget=40, candidates=FEW)
    assert_unchanged(before, model)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": 3}, "`budget`"),
        ({"batches": []}, "yields nothing"),
        ({"candidates": {"x": "nio"}}, "`candidates`"),
        ({"candidates": {"x": ()}}, "`candidates`"),
        ({"optimizer": lambda p: None}, "`optimizer`"),
        ({"optimizer": "sgd"}, "`optimizer`"),
        ({"batches": None}, "`batches`"),
        ({"batches": learnable(1)[0]}, "Found a `tuple` of tensors. Wrap"),
        ({"candidates": [ni.Kaiming()]}, "`candidates`"),
        ({"candidates": {"x": None}}, "`candidates`"),
        ({"candidates": {1: ni.Kaiming()}}, "`candidates` should be a dict whose keys are names"),
        (
            {"optimizer": torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1.0)},
            "holds no parameter",
        ),
    ],
)
def test_bad_input(changes, message):
    arguments = {"batches": learnable(4), "optimizer": sgd, "candidates": FEW, **changes}
    with pytest.raises((TypeError, ValueError), match=message):
        ni.auto_(network(), **arguments)


def test_frozen_parameters_stay_out_of_a_function_of_parameters():
    model = network()
    model[0].weight.requires_grad_(False)
    values = {
        n: p.detach().clone().requires_grad_(p.requires_grad) for n, p in model.named_parameters()
    }
    held = twin_of(sgd, model, values).param_groups[0]["params"]
    assert all(p.requires_grad for p in held)
    assert len(held) == 5


def test_optimizers_with_closures_and_attributes():
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    result = ni.auto_(model, learnable(), optimizer=optimizer, budget=12, candidates=FEW)
    assert result.steps > 0


def test_a_scheduler_that_lowered_the_rate_is_told():
    model = network()
    optimizer = sgd(model.parameters())
    ni.Warmup(warmup_steps=100).schedule(optimizer)
    with pytest.warns(UserWarning, match="scheduler"):
        ni.auto_(model, learnable(), optimizer=optimizer, budget=12, candidates=FEW)


def test_a_shuffled_loader_leaves_the_random_state():
    inputs, targets = learnable(1, 128)[0]
    data = torch.utils.data.TensorDataset(inputs, targets)
    loader = torch.utils.data.DataLoader(data, batch_size=20, shuffle=True)
    model = network()
    state = torch.get_rng_state()
    ni.auto_(model, loader, optimizer=sgd, budget=12, candidates=FEW)
    assert torch.equal(torch.get_rng_state(), state)
