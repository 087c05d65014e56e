"""Batches of lists, packed sequences and nested tensors, sent to all ranks."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence, unpack_sequence

from neuroinit.common.batches import Batch, Data, as_tensor
from neuroinit.common.sealed_json import JSON
from neuroinit.common.tensors import fingerprint
from neuroinit.distributed.ranks import Ranks

TensorForm = tuple[str, Sequence[int]]  # dtype and shape


def batches_of_all(ranks: Ranks, batch: Batch) -> list[Batch]:
    """The batches of all ranks, on every rank; tensors are on the device of this rank's batch.

    Raises:
        ValueError: If a batch has objects that cannot be sent.
    """
    tensors: list[Tensor] = []
    form = _form(batch, tensors)
    device = tensors[0].device if tensors else torch.device("cpu")
    data = [_bytes(t.detach()) for t in tensors]
    forms = [tensor_form(t) for t in tensors]
    notes = [json.loads(text) for text in ranks.texts(json.dumps([form, forms]))]
    sizes = [sum(_size(f) for f in theirs) for _, theirs in notes]
    payload = torch.cat([*data, torch.zeros(0, dtype=torch.uint8, device=device)])
    whole = ranks.concatenated(payload, sizes)
    return [
        _rebuilt(form, _tensors(part, forms))
        for (form, forms), part in zip(notes, torch.split(whole, sizes), strict=True)
    ]


def content(batch: Batch) -> list[JSON]:
    """A value that is equal for two batches exactly if their content is equal."""
    tensors: list[Tensor] = []
    form = _form(batch, tensors)
    return [form, [[fingerprint(t), *tensor_form(t)] for t in tensors]]


def tensor_form(tensor: Tensor) -> TensorForm:
    """The dtype and shape of a tensor; JSON makes lists of the tuples."""
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)


def _form(part: Data, tensors: list[Tensor]) -> JSON:
    """A part of a batch as JSON; appends its tensors to ``tensors``."""
    if isinstance(part, PackedSequence):
        return {"packed": [_form(t, tensors) for t in unpack_sequence(part)]}
    if isinstance(part, Tensor) and part.is_nested:
        entries = [_form(t, tensors) for t in part.unbind()]
        return {"nested": entries, "jagged": part.layout == torch.jagged}
    if isinstance(part, Tensor) or hasattr(part, "__array__"):
        tensors.append(as_tensor(part))
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


def _rebuilt(form: dict[str, Data], tensors: list[Tensor]) -> Data:
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


def _size(form: TensorForm) -> int:
    """The number of bytes of a tensor."""
    name, shape = form
    dtype: torch.dtype = getattr(torch, name)
    return math.prod(shape) * dtype.itemsize


def _tensors(data: Tensor, forms: list[TensorForm]) -> list[Tensor]:
    ends = accumulate((_size(form) for form in forms), initial=0)
    return [
        data[start:stop].clone().view(getattr(torch, name)).reshape(shape)
        for (start, stop), (name, shape) in zip(pairwise(ends), forms, strict=True)
    ]
