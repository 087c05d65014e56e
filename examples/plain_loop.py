"""A plain training loop: one line before the optimizer.

python examples/plain_loop.py
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import neuroinit as ni


class Block(nn.Module):
    """A residual block without normalization."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the branch."""
        return x + self.inner(x)


def network(blocks: int) -> nn.Module:
    """A residual perceptron with Kaiming's weights."""
    layers = [nn.Linear(20, 64), *(Block(64) for _ in range(blocks)), nn.Linear(64, 4)]
    model = nn.Sequential(*layers)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.kaiming_normal_(parameter)
    return model


def train(model: nn.Module, loader: DataLoader, epochs: int) -> float:
    """Plain SGD without warmup; the last loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(epochs):
        for inputs, targets in loader:
            loss = F.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


def main() -> None:
    """Train the same start twice: as it is, and after NIO."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, for tests")
    quick = parser.parse_args().quick
    torch.manual_seed(0)
    inputs = torch.randn(2000, 20)
    targets = (inputs @ torch.randn(20, 4)).argmax(1)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=64, shuffle=True)
    start = network(4 if quick else 20)
    optimized = copy.deepcopy(start)
    print(ni.nio_(optimized, loader, steps=5 if quick else 40))
    for name, model in (("as it was", start), ("after NIO", optimized)):
        print(f"{name}: last training loss {train(model, loader, 1 if quick else 5):.4g}")


if __name__ == "__main__":
    main()
