"""The short training loop."""

import math

import torch
from torch import nn
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import LambdaLR

from neuroinit.experiments.data.split import Split
from neuroinit.experiments.training.simple_loop import accuracy, train


def separable(count=96):
    """Two classes on the two sides of zero."""
    inputs = torch.randn(count, 3, generator=torch.Generator().manual_seed(0))
    targets = (inputs[:, 0] > 0).long()
    return Split((inputs, targets), (inputs, targets))


def test_it_is_sgd():
    data, model, same = separable(), nn.Linear(3, 2), nn.Linear(3, 2)
    same.load_state_dict(model.state_dict())
    result = train(model, data, lr=0.5, momentum=0.9, epochs=2, batch_size=32, seed=4)
    optimizer, losses = SGD(same.parameters(), lr=0.5, momentum=0.9), []
    for inputs, targets in data.batches(6, 32, seed=4):
        loss = nn.functional.cross_entropy(same(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert result.losses == losses
    assert torch.equal(model.weight, same.weight)
    assert result.accuracy == accuracy(same, data) > 0.8
    assert not result.diverged


def test_a_loss_that_is_not_finite_ends_it():
    model = nn.Linear(3, 2)
    model.weight.data.fill_(math.inf)
    result = train(model, separable())
    assert result.diverged
    assert len(result.losses) == 1


def test_an_optimizer_and_a_schedule_of_ones_own():
    rates = []

    def schedule(optimizer):
        def factor(step):
            rates.append(step)
            return 0.0

        return LambdaLR(optimizer, factor)

    model = nn.Linear(3, 2)
    before = model.weight.detach().clone()
    train(
        model,
        separable(),
        epochs=1,
        batch_size=32,
        make_optimizer=lambda p: Adam(p, lr=1.0),
        schedule=schedule,
    )
    assert torch.equal(model.weight, before)  # the rate is zero from the first step on
    assert rates == [0, 1, 2, 3]
