"""Checks of the models, losses and batches that users pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils.data import DataLoader

from neuroinit.common.batches import Batch, map_tensors
from neuroinit.common.checks import check_callable
from neuroinit.common.errors import listed, warn


def mean_loss(loss: object, size: int) -> Tensor:
    """The mean of a loss that is a scalar or has one value per sample."""
    if not isinstance(loss, Tensor):
        raise TypeError(
            f"The loss should be a tensor. Found a `{type(loss).__name__}`. "
            "Return the loss itself, for example `model(**batch).loss`."
        )
    if not loss.is_floating_point():
        raise TypeError(
            f"The loss should have a floating-point dtype. Found `{loss.dtype}`. Return the loss "
            "itself, not a count or an index."
        )
    if loss.dim() == 0 or loss.shape == (size,):
        return loss.mean()
    raise ValueError(
        f"The loss should be a scalar or one value per sample. Found shape {tuple(loss.shape)} for "
        f"{size} samples. Reduce it, for example with `loss.flatten(1).mean(1)`."
    )


def check_batches(batches: object, pairs: bool, again: bool = False) -> None:
    """Raise for anything that is not an iterable of batches, such as a single batch.

    Args:
        batches: The user's argument.
        pairs: Whether a batch is ``(inputs, targets)``.
        again: Whether ``batches`` is iterated over more than once.
    """
    found = f"a `{type(batches).__name__}`"
    single = isinstance(batches, (Tensor, Mapping))
    if pairs and isinstance(batches, (tuple, list)) and any(isinstance(b, Tensor) for b in batches):
        found, single = f"{found} of tensors", True
    if single or not isinstance(batches, Iterable):
        raise TypeError(
            f"Parameter `batches` should be an iterable of batches. Found {found}. "
            "Wrap a single batch in a list: `[(inputs, targets)]`; a data set, in a DataLoader."
        )
    if again and isinstance(batches, Iterator):
        raise TypeError(
            "Parameter `batches` should be a list or a DataLoader, because every method iterates "
            f"over it. Found {found}."
        )


def check_values(batches: Sequence[Batch]) -> None:
    """Raise for batches with NaN or inf."""
    for k, batch in enumerate(batches):
        tensors: list[Tensor] = []
        map_tensors(tensors.append, batch)
        for tensor in tensors:
            if not _finite(tensor):
                shape = tuple(tensor.shape)
                raise ValueError(f"Batch {k} is not finite: found NaN or inf in a tensor {shape}.")


def check_pair(batch: Batch) -> None:
    """Raise for a batch that is not a pair ``(inputs, targets)``."""
    if isinstance(batch, DataLoader):
        raise TypeError("Found a DataLoader in place of a batch. Pass `next(iter(loader))`.")
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise TypeError(
            f"A batch of type `{type(batch).__name__}`"
            + (f" and length {len(batch)}" if isinstance(batch, (tuple, list)) else "")
            + " is not a pair `(inputs, targets)`. Yield pairs, or pass `compute_loss`, "
            "for example `compute_loss=lambda model, batch: model(**batch).loss`."
        )


def check_callables(
    model: object, loss_fn: object, compute_loss: object, needed: bool = True
) -> None:
    """Raise for a model, loss or ``compute_loss`` of a wrong type."""
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError(
            "A scripted or traced model cannot be optimized: its parameters cannot be replaced. "
            "Optimize the module it was made from, then script it."
        )
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"Parameter `model` should be a torch.nn.Module. Found `{type(model).__name__}`."
        )
    for name, value in (("loss_fn", loss_fn), ("compute_loss", compute_loss)):
        if value is not None:
            check_callable(name, value)
            _check_no_class(name, value)
    if getattr(loss_fn, "reduction", "mean") == "sum":
        warn(
            f"`loss_fn = {loss_fn!r}` is a sum over samples, so its gradients grow with the batch. "
            "The methods are for means: use `reduction='mean'`."
        )
    if compute_loss is not None and loss_fn not in (None, F.cross_entropy):  # not the default
        raise TypeError(
            f"Found `loss_fn = {loss_fn!r}` and `compute_loss`, which computes the loss alone. "
            "Pass one of them."
        )
    if needed and loss_fn is None and compute_loss is None:
        raise TypeError("Pass a `loss_fn(output, target)` or a `compute_loss(model, batch)`.")


def _check_no_class(name: str, value: object) -> None:
    if isinstance(value, type) and issubclass(value, nn.Module):
        raise TypeError(
            f"Parameter `{name}` should be a function or a module. Found the class "
            f"`{value.__name__}`: pass `{value.__name__}()`."
        )


def check_parameters(named: Mapping[str, Tensor], takes_part: Callable[[str], bool]) -> None:
    """Raise for parameters that cannot be scaled, and name them all.

    Args:
        named: Name -> the user's parameter.
        takes_part: ``takes_part(name)``: whether a parameter may get a scale.
    """
    lazy = [n for n, p in named.items() if is_lazy(p)]
    if lazy:
        raise ValueError(
            f"These parameters are lazy and have no shape yet: {listed(lazy)}. "
            "Run one forward pass first, for example `model(inputs)`."
        )
    bad = [n for n, p in named.items() if p.is_complex() and p.requires_grad and takes_part(n)]
    if bad:
        raise ValueError(
            f"These parameters are complex: {listed(bad)}. "
            "Complex parameters are not supported; methods such as `NIO` can `exclude` them."
        )
    bad = [n for n, p in named.items() if p.is_meta]
    if bad:
        raise ValueError(
            f"These parameters are on the meta device: {listed(bad)}. Initialize them first."
        )


def check_finite_parameters(parameters: Mapping[str, Tensor]) -> None:
    """Raise for parameters with NaN or inf."""
    bad = [n for n, p in parameters.items() if not _finite(p)]
    if bad:
        raise ValueError(f"These parameters are not finite: {listed(bad)}. Initialize them first.")


def _finite(tensor: Tensor) -> bool:
    parts = tensor.unbind() if tensor.is_nested else (tensor,)  # torch cannot test nested ones
    return all(bool(torch.isfinite(part.detach()).all()) for part in parts)
