"""Errors for losses, gradients and derivatives that are not finite or exactly zero."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from neuroinit.common.batches import Batch, map_tensors
from neuroinit.common.errors import NonFiniteError, ZeroGradientError, listed

IGNORED = -100  # the label that cross-entropy ignores
_TOO_LARGE = (
    "The initial weights are too large: scale them down, or compute in a wider dtype with "
    "`model.double()`."
)
_NO_EFFECT = (
    "The loss does not depend on the parameters: look for dead activations, a saturated output "
    "or all-zero tensors (`reinit_zeros=0.01` gives these a small start)."
)


def check_losses(losses: Tensor) -> None:
    """Raise if one of several losses is not finite."""
    bad = losses[~torch.isfinite(losses)]
    if len(bad):
        raise NonFiniteError(
            f"The loss is not finite: {bad[0].item()}. The initial weights are too large, the "
            "inputs are not finite, or the step size `lr` of the scales is too large."
        )


def check_finite(value: float, what: str) -> None:
    """Raise if a number is not finite; ``what`` is the subject of the sentence."""
    if not math.isfinite(value):
        raise NonFiniteError(f"{what} is not finite: {value}.")


def check_graph(loss: Tensor) -> None:
    """Raise for a loss that has no graph."""
    if not loss.requires_grad:
        raise ValueError(
            "The loss does not depend on any trainable parameter. Return it with its graph: no "
            "`.item()`, `.detach()` or `torch.no_grad()` between the model and the loss."
        )


def why_not_finite(batch: Batch) -> str:
    """A sentence about NaN, inf or ignored labels in a batch; empty if there are none."""
    found: list[str] = []

    def look(tensor: Tensor) -> None:
        if tensor.is_nested or not tensor.dim():
            return
        if not torch.isfinite(tensor).all():
            found.append(f" The batch has NaN or inf in a tensor of shape {tuple(tensor.shape)}.")
        elif not tensor.is_floating_point() and not tensor.is_complex():
            masked = (tensor.reshape(len(tensor), -1) == IGNORED).all(1)
            if masked.any():
                found.append(
                    f" All labels of sample {int(masked.nonzero()[0])} are {IGNORED}, so a "
                    "sub-batch may have no label that counts. Remove such samples, or use fewer "
                    "sub-batches."
                )

    map_tensors(look, batch)
    return found[0] if found else ""


@contextmanager
def explained(batch: Batch) -> Iterator[None]:
    """Add the possible cause in the batch to a ``NonFiniteError`` that is raised inside."""
    try:
        yield
    except NonFiniteError as error:
        raise NonFiniteError(f"{error}{why_not_finite(batch)}") from error


def check_norm(norm: float, what: str = "the batch") -> None:
    """Raise for the norm of a gradient that is zero or not finite."""
    if norm == 0:
        raise ZeroGradientError(f"The gradient of {what} is exactly zero. {_NO_EFFECT}")
    if not norm < float("inf"):
        raise NonFiniteError(f"The gradient of {what} is not finite. {_TOO_LARGE}")


def check_zero_norms(norms: Tensor, tolerated: int | None = None) -> None:
    """Raise if more than ``tolerated`` sub-batch gradients are exactly zero.

    Args:
        norms: The norms of the sub-batch gradients.
        tolerated: By default all but one may be zero.
    """
    zero = [d for d, norm in enumerate(norms.tolist()) if norm == 0]
    if len(zero) > (len(norms) - 1 if tolerated is None else tolerated):
        raise ZeroGradientError(
            f"The gradient of sub-batch {zero[0]} is exactly zero, so it has no direction. "
            f"{_NO_EFFECT}"
        )


def check_finite_parts(
    parts: Sequence[Tensor], names: Sequence[str], what: str = "The gradient"
) -> None:
    """Raise if the part of a parameter is not finite, and name the parameters."""
    bad = [n for n, part in zip(names, parts, strict=True) if not torch.isfinite(part).all()]
    if bad:
        raise NonFiniteError(f"{what} is not finite in {listed(bad)}. {_TOO_LARGE}")


def check_derivative(derivative: Tensor, names: Sequence[str]) -> Tensor:
    """Return a derivative by the scales, or raise if it is not finite."""
    finite = torch.isfinite(derivative).tolist()
    bad = [n for n, good in zip(names, finite, strict=True) if not good]
    if bad:
        raise NonFiniteError(f"The derivative by the scale of {listed(bad)} is not finite.")
    return derivative
