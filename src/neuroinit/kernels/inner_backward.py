"""Backward passes that the user's code starts while layers are replaced."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

STARTERS: tuple[Callable[..., object], ...] = (
    torch.autograd.grad,
    torch.autograd.backward,
    Tensor.backward,
)


def inner_backward(
    mode: TorchFunctionMode,
    func: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[object] | None:
    """Run one of ``STARTERS`` with a function mode active, as it was in the forward pass.

    torch disables function modes in these functions, so that a checkpointed module would run again
    with other layers than in the forward pass. The autograd engine below them keeps the modes.

    Returns:
        The result in a tuple of one; ``None`` for calls that are left to torch: batched gradients,
        graph edges, and wrong arguments, for which torch has the error.
    """
    given = inspect.signature(func).bind(*args, **kwargs).arguments
    outputs = _tensors(given.get("outputs", given.get("tensors", given.get("self"))))
    inputs = _tensors(given.get("inputs") or ())
    vectors = given.get("grad_outputs", given.get("grad_tensors", given.get("gradient")))
    vectors = _vectors(outputs, vectors) if outputs else None
    gradients_wanted = func is torch.autograd.grad
    if outputs is None or inputs is None or vectors is None or given.get("is_grads_batched"):
        return None
    if gradients_wanted and not inputs:
        return None
    create_graph = bool(given.get("create_graph"))
    retain_graph = given.get("retain_graph")
    materialize = bool(given.get("materialize_grads"))
    allow_unused = given.get("allow_unused")
    with mode:
        found = torch.autograd.Variable._execution_engine.run_backward(
            outputs,
            vectors,
            create_graph if retain_graph is None else retain_graph,
            create_graph,
            inputs,
            allow_unreachable=not gradients_wanted or bool(allow_unused or materialize),
            accumulate_grad=not gradients_wanted,
        )
    if not gradients_wanted:
        return (None,)
    if materialize:
        found = tuple(
            torch.zeros_like(x, requires_grad=create_graph) if g is None else g
            for g, x in zip(found, inputs, strict=True)
        )
    return (found,)


def _tensors(part: object) -> tuple[Tensor, ...] | None:
    """A tensor or a sequence or dict of them as a tuple; ``None`` for anything else."""
    if isinstance(part, Tensor):
        return (part,)
    entries = part.values() if isinstance(part, dict) else part
    if not isinstance(entries, Iterable):
        return None
    found = tuple(entries)
    return found if all(isinstance(t, Tensor) for t in found) else None


def _vectors(outputs: Sequence[Tensor], given: object) -> tuple[Tensor | None, ...] | None:
    """The gradients of the outputs, with torch's defaults; ``None`` if torch would raise."""
    if given is None:
        vectors: tuple[Tensor | None, ...] = (None,) * len(outputs)
    elif isinstance(given, Tensor):
        vectors = (given,)
    elif isinstance(given, Iterable):
        vectors = tuple(given)
    else:
        return None
    if len(vectors) != len(outputs):
        return None
    found = []
    for output, vector in zip(outputs, vectors, strict=True):
        fits = output.numel() == 1 if vector is None else vector.shape == output.shape
        if not fits or not output.requires_grad or output.is_complex():
            return None
        found.append(torch.ones_like(output) if vector is None else vector)
    return tuple(found)
