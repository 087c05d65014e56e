"""Digests of the loss and the data of a run, to compare them with those of another run."""

from __future__ import annotations

import functools
import hashlib
import json
import types
from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from neuroinit.common.batches import END, Batch, Data, map_tensors
from neuroinit.common.sample_lists import children, is_container
from neuroinit.common.sealed_json import JSON
from neuroinit.common.tensors import fingerprint


def batch_digest(batch: Batch) -> str:
    """A digest of all tensors of a batch, also of those that objects hold as attributes."""
    found: list[JSON] = []
    if batch is not END:
        _add_tensors(batch, found, set())
    return _digest(found)


def _add_tensors(part: Data, found: list[JSON], seen: set[int]) -> None:
    """Describe every tensor in a part of a batch; objects in ``seen`` are left out."""
    if isinstance(part, Tensor) and part.is_nested:
        found.extend(_described(t) for t in part.unbind())
    elif isinstance(part, (Tensor, PackedSequence)) or hasattr(part, "__array__"):
        map_tensors(lambda t: found.append(_described(t)), part)
    elif is_container(part):
        for entry in children(part):
            _add_tensors(entry, found, seen)
    elif hasattr(part, "__dict__") and not callable(part) and id(part) not in seen:
        seen.add(id(part))
        for _, value in _items(vars(part)):
            _add_tensors(value, found, seen)


def function_digest(function: object) -> str:
    """A digest of a loss: its code and constants.

    Constants are the numbers, strings, tensors and functions among its defaults, captured variables
    and arguments of ``functools.partial``; for a module, its attributes and tensors. Global names
    and other objects are ignored.
    """
    return _digest(_described(function))


def _described(value: object) -> JSON:
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value)
    if isinstance(value, Tensor):
        return [str(value.dtype), *value.shape, fingerprint(value)]
    if isinstance(value, tuple):
        return [_described(item) for item in value]
    if isinstance(value, types.CodeType):
        return [value.co_code.hex(), list(value.co_names), _described(value.co_consts)]
    if isinstance(value, types.FunctionType):
        keywords = tuple(sorted((value.__kwdefaults__ or {}).items()))
        parts = (value.__code__, value.__defaults__, keywords, _captured(value))
        return [value.__qualname__, *(_described(part) for part in parts)]
    if isinstance(value, types.MethodType):
        return _described(value.__func__)
    if isinstance(value, functools.partial):
        return [_described(value.func), _described(value.args), _described(_items(value.keywords))]
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    if isinstance(value, nn.Module):
        public = {k: v for k, v in vars(value).items() if not k.startswith("_")}
        return [name, _described(_items({**public, **value.state_dict()}))]
    return name


def _items(mapping: Mapping[str, object]) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(mapping.items(), key=lambda item: item[0]))


def _captured(function: types.FunctionType) -> tuple[object, ...]:
    """The values of captured variables; modules among them are not part of the loss."""
    found: list[object] = []
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            value = None
        found.append(type(value).__qualname__ if isinstance(value, nn.Module) else value)
    return tuple(found)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]
