"""A deep network without normalization: Kaiming diverges, the same weights after NIO train.

pip install "neuroinit[demo]"
python examples/normalization_free.py
"""

import argparse
import copy

import torch

import neuroinit as ni
from neuroinit.experiments.data.digits import digits
from neuroinit.experiments.models.small_networks import kaiming, residual_cnn
from neuroinit.experiments.training.simple_loop import train


def main() -> None:
    """Train both starts on scikit-learn's digits with plain SGD."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, for tests")
    quick = parser.parse_args().quick
    torch.manual_seed(0)
    data = digits()
    start = kaiming(residual_cnn(3 if quick else 12))
    optimized = copy.deepcopy(start)
    print(ni.nio_(optimized, data.batches(41, 64, seed=0), steps=3 if quick else 40))
    for name, model in (("Kaiming", start), ("Kaiming, then NIO", optimized)):
        run = train(model, data, lr=0.1, epochs=1 if quick else 5)
        outcome = "diverged" if run.diverged else f"test accuracy {run.accuracy:.1%}"
        print(f"{name}: {outcome}")


if __name__ == "__main__":
    main()
