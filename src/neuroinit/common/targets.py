"""Finds and replaces the targets in a batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from neuroinit.common.batches import Batch, Data, is_dataclass_value, rebuilt

Key = str | int
Targets = Key | tuple[Key, ...]

LABELS = "labels"  # the targets in the batches of Hugging Face models


def check_targets(targets: object, custom: bool) -> None:
    """Raise for anything but a key, an index, or a tuple of them.

    Args:
        targets: The user's argument.
        custom: Whether batches are cut by the user's function.
    """
    keys = targets if isinstance(targets, tuple) else (targets,)
    names = [key for key in keys if isinstance(key, str) or (type(key) is int and key >= 0)]
    if targets is not None and (not keys or len(names) < len(keys)):
        raise TypeError(
            "Parameter `targets` should be the key or index of the targets in a batch, such as "
            f'"labels" or 1, or a tuple of several. Found `targets = {targets!r}`.'
        )
    if targets is not None and custom:
        raise TypeError(
            f"Found `cut` and `targets = {targets!r}`. The targets of batches with `cut` cannot be "
            "permuted: leave `targets` out."
        )


def target_keys(batch: Batch, targets: Targets | None) -> tuple[Key, ...]:
    """The keys of the targets: ``targets``, or else 1 for a pair, or else ``"labels"``.

    Raises:
        ValueError: If the batch has no such entry; or if ``targets`` is ``None``, and the batch is
            no pair and has no labels.
    """
    if targets is not None:
        keys = targets if isinstance(targets, tuple) else (targets,)
        for key in keys:
            entry(batch, key)
        return keys
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return (1,)
    if isinstance(batch, Mapping) and LABELS in batch:
        return (LABELS,)
    raise ValueError(
        f"Which part of a batch of type `{type(batch).__name__}` are the targets? Name it: "
        '`targets="labels"` for an entry of a dict or a field, `targets=1` for one of a tuple.'
    )


def entry(batch: Batch, key: Key) -> Data:
    """An entry of a tuple, list or dict, or a field of a dataclass or named tuple.

    Raises:
        ValueError: If there is no such entry.
    """
    try:
        return getattr(batch, str(key)) if _is_field(batch, key) else batch[key]
    except (AttributeError, KeyError, IndexError, TypeError) as error:
        raise ValueError(
            f"A batch of type `{type(batch).__name__}` has no entry `targets = {key!r}`."
        ) from error


def with_entry(batch: Batch, key: Key, value: Data) -> Batch:
    """A copy of the container with another entry."""
    if _is_field(batch, key) and is_dataclass_value(batch):
        return dataclasses.replace(batch, **{str(key): value})
    if _is_field(batch, key):
        return batch._replace(**{str(key): value})
    keys = iter(batch if isinstance(batch, Mapping) else range(len(batch)))
    return rebuilt(batch, lambda part: value if next(keys) == key else part)


def _is_field(batch: Batch, key: Key) -> bool:
    named_tuple = isinstance(batch, tuple) and hasattr(batch, "_fields")
    return isinstance(key, str) and (is_dataclass_value(batch) or named_tuple)
