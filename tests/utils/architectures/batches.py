"""A model with its data and loss, and batches of several kinds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 3
VOCABULARY = 11


@dataclass(frozen=True)
class Case:
    """A model, its data and its loss; the test seeds torch before it calls `build`."""

    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[int], Any]
    loss_fn: Callable | None = F.cross_entropy  # for (inputs, targets) batches
    compute_loss: Callable | None = None  # compute_loss(model, batch), instead of loss_fn
    independent: bool = True  # samples don't see each other, in train mode
    smooth: bool = True  # the gradient is differentiable: finite differences work


def vectors(*shape: int, dtype: torch.dtype = torch.float64) -> Callable[[int], Any]:
    """Normal inputs of this shape (without the batch dimension), and class indices."""

    def batch(n: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(n)
        inputs = torch.randn(n, *shape, generator=generator, dtype=torch.float64).to(dtype)
        return inputs, torch.randint(CLASSES, (n,), generator=generator)

    return batch


def tokens(n: int) -> tuple[Tensor, Tensor]:
    """Five integer tokens a sample, the padding token 0 among them, and the next token."""
    generator = torch.Generator().manual_seed(n)
    sequences = torch.randint(VOCABULARY, (n, 6), generator=generator)
    return sequences[:, :-1], sequences[:, -1]


def token_labels(n: int) -> tuple[Tensor, Tensor]:
    """The same tokens, and class indices."""
    return tokens(n)[0], tokens(n)[1] % CLASSES


def regression(n: int) -> tuple[Tensor, Tensor]:
    """Inputs of size 4 and real targets of size 2."""
    generator = torch.Generator().manual_seed(n)
    inputs, targets = torch.randn(2, n, 4, generator=generator, dtype=torch.float64)
    return inputs, targets[:, :2]


def pairs(n: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """The inputs are one tuple: `model((left, right))`."""
    inputs, targets = vectors(4)(n)
    return (inputs, inputs.flip(1).square()), targets


def dictionary(n: int) -> dict[str, Any]:
    """A nested batch with no (inputs, targets) in sight; it goes in by `model(**batch)`."""
    ids, labels = token_labels(n)
    return {"ids": ids, "extra": {"mask": ids != 0}, "labels": labels}


def double(name: str, factory: Callable[[], nn.Module], batch: Callable, **fields: Any) -> Case:
    return Case(name, lambda: factory().double(), batch, **fields)
