"""Batches of lists, packed sequences and nested tensors, sent to all ranks."""

from __future__ import annotations

import json
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence, unpack_sequence

from neuroinit.common.batches import Batch, Data
from neuroinit.common.tensors import fingerprint
from neuroinit.distributed.ranks import Ranks


def batches_of_all(ranks: Ranks, batch: Batch) -> list[Batch]:
    """The batches of all ranks, on every rank; tensors are on the device of this rank's batch.

    Raises:
        ValueError: If a batch has objects that cannot be sent.
    """
    tensors: list[Tensor] = []
    form = _form(batch, tensors)
    device = tensors[0].device if tensors else torch.device("cpu")
    data = [_bytes(t.detach()) for t in tensors]
    forms = [[str(t.dtype).removeprefix("torch."), *t.shape] for t in tensors]
    notes = [json.loads(text) for text in ranks.texts(json.dumps([form, forms]))]
    sizes = [sum(_size(f) for f in theirs) for _, theirs in notes]
    payload = torch.cat([*data, torch.zeros(0, dtype=torch.uint8, device=device)])
    whole = ranks.concatenated(payload, sizes)
    return [
        _rebuilt(form, _tensors(part, forms))
        for (form, forms), part in zip(notes, torch.split(whole, sizes), strict=True)
    ]


def content(batch: Batch) -> list[Any]:
    """A value that is equal for two batches exactly if their content is equal."""
    tensors: list[Tensor] = []
    form = _form(batch, tensors)
    return [form, [[fingerprint(t), str(t.dtype), *t.shape] for t in tensors]]


def _form(part: Data, tensors: list[Tensor]) -> Any:
    """A part of a batch as JSON; appends its tensors to ``tensors``."""
    if isinstance(part, PackedSequence):
        return {"packed": [_form(t, tensors) for t in unpack_sequence(part)]}
    if isinstance(part, Tensor) and part.is_nested:
        entries = [_form(t, tensors) for t in part.unbind()]
        return {"nested": entries, "jagged": part.layout == torch.jagged}
    if isinstance(part, Tensor) or hasattr(part, "__array__"):
        tensors.append(torch.as_tensor(part))
        return {"tensor": len(tensors) - 1}
    if type(part) in (list, tuple):
        return {type(part).__name__: [_form(entry, tensors) for entry in part]}
    if type(part) is dict and all(isinstance(key, str) for key in part):
        return {"dict": {key: _form(value, tensors) for key, value in part.items()}}
    if part is None or isinstance(part, (bool, int, float, str)):
        return {"value": part}
    raise ValueError(
        f"A batch with a `{type(part).__name__}` cannot be joined with those of other ranks. Yield "
        "tensors, or lists, tuples and dicts of them, or initialize in one process, save the "
        "result, and apply it on all ranks."
    )


def _rebuilt(form: Any, tensors: list[Tensor]) -> Any:
    """The part that :func:`_form` describes."""
    (kind, value), *more = form.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "value":
        return value
    if kind == "dict":
        return {key: _rebuilt(entry, tensors) for key, entry in value.items()}
    entries = [_rebuilt(entry, tensors) for entry in value]
    if kind == "packed":
        return pack_sequence(entries, enforce_sorted=False)
    if kind == "nested":
        layout = torch.jagged if more[0][1] else torch.strided
        return torch.nested.as_nested_tensor(entries, layout=layout)
    return tuple(entries) if kind == "tuple" else entries


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _size(form: list[Any]) -> int:
    """The number of bytes of a tensor."""
    kind, *shape = form
    dtype: torch.dtype = getattr(torch, kind)
    return torch.Size(shape).numel() * dtype.itemsize


def _tensors(data: Tensor, forms: list[list[Any]]) -> list[Tensor]:
    ends = accumulate((_size(form) for form in forms), initial=0)
    return [
        data[start:stop].clone().view(getattr(torch, kind)).reshape(shape)
        for (start, stop), (kind, *shape) in zip(pairwise(ends), forms, strict=True)
    ]
