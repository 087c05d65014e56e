"""A network, data that it can learn, an optimizer and two candidates."""

import torch
from torch import nn

import neuroinit as ni

FEW = {"Kaiming": ni.Kaiming(), "NIO": ni.NIO(steps=3, sub_batches=4)}


def learnable(count=24, size=32):
    """Batches whose labels depend on the inputs."""
    generator = torch.Generator().manual_seed(0)
    teacher = torch.randn(8, 3, generator=generator)
    found = []
    for _ in range(count):
        inputs = torch.randn(size, 8, generator=generator)
        found.append((inputs, (inputs @ teacher).argmax(1)))
    return found


def network(gain=1.0):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)
    )
    ni.kaiming_(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(gain)
    return model


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
