"""timm: after ``create_model``, before DDP and compile.

    pip install "neuroinit[experiments]"
    python examples/timm_model.py

timm's ResNets start with all-zero gains at the end of every branch, which keep the gradient from
the branch; ``reinit_zeros`` gives them a small start.
"""

import argparse

import torch

import neuroinit as ni
from neuroinit.experiments.vision import timm


def main() -> None:
    """A ResNet on random images: what is blocked, and what ``reinit_zeros`` changes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, for tests")
    quick = parser.parse_args().quick
    torch.manual_seed(0)
    model = timm().create_model("resnet10t" if quick else "resnet18", num_classes=10)
    size, count = (32, 3) if quick else (64, 11)
    batches = [(torch.randn(16, 3, size, size), torch.randint(10, (16,))) for _ in range(count)]
    method = ni.NIO(steps=count - 1, sub_batches=4, reinit_zeros=0.01)
    result = ni.optimize(model, batches, method=method)
    print(result)
    print(f"given a small start: {len(result.drawn)} all-zero tensors")
    result.apply_(model)


if __name__ == "__main__":
    main()
