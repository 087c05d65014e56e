"""Compare initializations: measured and trained, a few seeds each.

pip install "neuroinit[demo]"
python examples/compare_methods.py --figure compare.pdf
"""

import argparse
from pathlib import Path

import torch
from torch import nn

import neuroinit as ni
from neuroinit.experiments.data.digits import digits
from neuroinit.experiments.models.small_networks import residual_mlp
from neuroinit.experiments.training.simple_loop import train


def main() -> None:
    """A residual network without normalization on scikit-learn's digits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=Path, help="draw the test accuracy here")
    parser.add_argument("--quick", action="store_true", help="a short run, for tests")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = digits()
    steps, epochs = (2, 1) if options.quick else (40, 5)

    def accuracy(model: nn.Module) -> float:
        return train(model, data, lr=0.1, epochs=epochs).accuracy

    records = ni.compare(
        lambda: residual_mlp(2 if options.quick else 24),
        data.batches(steps + 1, 64, seed=0),
        {
            "torch's own": None,
            "Kaiming": ni.Kaiming(),
            "Xavier": ni.Xavier(),
            "LSUV": ni.LSUV(),
            "NIO": ni.NIO(steps=steps),
        },
        seeds=(0,) if options.quick else (0, 1, 2),
        train=accuracy,
    )
    if options.figure:
        ni.plots.compare(records, "score").savefig(options.figure)


if __name__ == "__main__":
    main()
