"""Networks, data that they can learn, and an optimizer."""

import torch
from torch import nn

from neuroinit.common import progress


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x):
        return x + self.branch(x)


def network(blocks=2, gain=1.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), *[Block(32) for _ in range(blocks)], nn.Linear(32, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= gain
    return model


def learnable(count=20, size=32):
    """Batches whose labels depend on the inputs."""
    generator = torch.Generator().manual_seed(0)
    teacher = torch.randn(8, 3, generator=generator)
    inputs = [torch.randn(size, 8, generator=generator) for _ in range(count)]
    return [(x, (x @ teacher).argmax(1)) for x in inputs]


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def values(model):
    return [p.detach().clone() for p in model.parameters()]


def same(model, before):
    return all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def plain(depth=6):
    """Deep and plain: torch's own start is not dead, and trains slowly."""
    torch.manual_seed(1)
    layers = [m for _ in range(depth) for m in (nn.Linear(32, 32), nn.Tanh())]
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), *layers, nn.Linear(32, 3))


def shrunk(model, factor=0.3):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= factor
    return model


def phases(monkeypatch):
    """What the progress bar says, as it comes."""
    seen = []
    monkeypatch.setattr(progress.Progress, "show", lambda bar, k, text: seen.append(text))
    return seen
