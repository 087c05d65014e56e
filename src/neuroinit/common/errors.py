"""Exceptions, warnings and error messages."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from neuroinit.run.results.result import Result


class GradientError(ValueError):
    """A gradient is zero or not finite; ``result`` has the earlier steps, if there were any.

    Example:
        >>> import torch
        >>> import neuroinit as ni
        >>> batch = torch.ones(8, 2), torch.zeros(8, dtype=torch.long)
        >>> try:
        ...     _ = ni.gradient_stats(torch.nn.Linear(2, 2), batch, lambda y, t: y.sum() / 0)
        ... except ni.GradientError as error:
        ...     print(type(error).__name__)
        NonFiniteError
    """

    result: Result | None = None


class NonFiniteError(GradientError):
    """A loss or a gradient is not finite.

    Example:
        >>> import torch
        >>> import neuroinit as ni
        >>> batch = torch.full((8, 2), torch.inf), torch.zeros(8, dtype=torch.long)
        >>> ni.gradient_stats(torch.nn.Linear(2, 2), batch)
        Traceback (most recent call last):
        ...
        neuroinit.common.errors.NonFiniteError: ...
    """


class ZeroGradientError(GradientError):
    """A gradient is exactly zero, so it has no direction.

    Example:
        >>> import torch
        >>> import neuroinit as ni
        >>> batch = torch.ones(8, 2), torch.zeros(8, dtype=torch.long)
        >>> def dead(outputs, targets):
        ...     return (outputs * 0).sum() + 1
        >>> ni.nio_(torch.nn.Linear(2, 2), [batch], dead, gamma=1.0, progress=False)
        Traceback (most recent call last):
        ...
        neuroinit.common.errors.ZeroGradientError: ...
    """


class LostRankError(RuntimeError):
    """Another process has ended, or executes another part of the program.

    Example:
        Start again, from a checkpoint if there is one:

        >>> import neuroinit as ni
        >>> def initialize(model, loader):
        ...     try:
        ...         return ni.nio_(model, loader, checkpoint="init.json")
        ...     except ni.LostRankError as error:
        ...         raise SystemExit(f"restart me: {error}") from error
    """


def warn(message: str) -> None:
    """Warn with the location of the user's line that called this package."""
    frame, level, package = sys._getframe(), 1, __name__.partition(".")[0]
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def listed(names: Sequence[str], most: int = 6) -> str:
    """Names for an error message; long lists are abbreviated."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"`{n}`" for n in names[:most]) + more


_NO_DERIVATIVE = re.compile(
    r"derivative for '?(?:aten::)?_?(?P<name>\w+?)(?:_backward)?'? is not implemented"
)


REENTRANT = (
    "Reentrant checkpointing hides its parameters from `torch.autograd.grad`. Use "
    "`checkpoint(..., use_reentrant=False)`; for a Hugging Face model "
    "`model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})`."
)


LACKS = "has no double backward"


@contextmanager
def named_operator(message: Callable[..., str] | None = None) -> Iterator[None]:
    """Replace torch's errors about a missing double backward by one that names the operator.

    Args:
        message: ``message(operator, detail)``: the new text, with torch's text as ``detail``; by
            default :func:`no_double_backward`.
    """
    message = message or no_double_backward
    try:
        yield
    except RuntimeError as error:
        match = _NO_DERIVATIVE.search(str(error))
        if match:
            raise RuntimeError(message(f"`{match['name']}`")) from error
        if "use_reentrant" in str(error):
            raise RuntimeError(REENTRANT) from error
        if LACKS in str(error):  # a message of this module
            raise
        if "double backward" in str(error) or "once_differentiable" in str(error):
            raise RuntimeError(message("An operator", str(error))) from error
        raise


def in_loss_with_gradient(operator: str, detail: str = "") -> str:
    """The message if a loss takes a gradient through an operator without double backward."""
    return (
        f"{operator} {LACKS}, which a loss that takes a gradient itself needs, in "
        f"training as well{f' (torch says: {detail})' if detail else ''}. Replace it by operators "
        f"that compute the same{_replacement(operator)}."
    )


def no_double_backward(operator: str, detail: str = "") -> str:
    """The message for an operator that can be differentiated only once."""
    help = _replacement(operator)
    return (
        f"{operator} of this model {LACKS}, which the derivative by the scales "
        f"needs{f' (torch says: {detail})' if detail else ''}. Replace it for the initialization "
        f"by operators that compute the same{help}, or pass `engine='differences'`, which needs "
        "first derivatives only and is approximate."
    )


_REPLACEMENTS = {
    "cdist": ", for example `(a[:, None] - b).norm(dim=-1)` for `torch.cdist(a, b)`",
    "embedding_bag": ", for example a mean over `nn.Embedding` for `nn.EmbeddingBag`",
    "attention": ": compute attention inside of `torch.nn.attention.sdpa_kernel(SDPBackend.MATH)`",
}


def _replacement(operator: str) -> str:
    """An example of a replacement for an operator; may be empty."""
    return next((text for name, text in _REPLACEMENTS.items() if name in operator.lower()), "")


_DEMO = ("tyro", "rich", "matplotlib", "sklearn")
PACKAGES = {  # extra -> the names by which its packages are imported
    "plots": ("matplotlib",),
    "pandas": ("pandas",),
    "cli": ("tyro", "rich"),
    "demo": _DEMO,
    "lightning": ("lightning",),
    "transformers": ("transformers", "accelerate"),
    "report": ("matplotlib",),
    "experiments": (*_DEMO, "torchvision", "timm", "safetensors"),
}


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """A context in which imports that fail name the extra of neuroinit to install.

    Other errors of a package, such as a version that does not fit torch, are raised unchanged.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES[extra]:
            raise
        raise ModuleNotFoundError(
            f'This needs `{error.name}`: pip install "neuroinit[{extra}]".', name=error.name
        ) from error


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that memory ran out, on any device."""
    words = ("not enough memory", "out of memory", "can't allocate memory")
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or (
        isinstance(error, RuntimeError) and any(w in str(error).lower() for w in words)
    )
