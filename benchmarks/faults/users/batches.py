"""Batches of every kind: lists, ragged ones, packed and nested ones, objects, few samples."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence

import neuroinit as ni
from benchmarks.faults.users.checks import Case, near, refused, unchanged

MANY = 16
METHOD = ni.NIO(steps=2, rule=ni.HeldNorm(), sub_batches=4, gamma=0.5)


def network(inputs: int = 4) -> nn.Module:
    """A small classifier in float64."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def sample(k: int, length: int = 5) -> Tensor:
    """The inputs of a sample, ``(length, 4)``."""
    generator = torch.Generator().manual_seed(k)
    return torch.randn(length, 4, generator=generator, dtype=torch.float64)


def _lengths(n: int) -> list[int]:
    return [3 + k % 4 for k in range(n)]


def _label(k: int) -> Tensor:
    return torch.tensor(k % 3)


def one(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The loss of one sample: the mean of its positions is classified."""
    return F.cross_entropy(model(x).mean(0), y)


def over(model: nn.Module, xs: Any, ys: Any) -> Tensor:
    """The mean loss of samples."""
    return torch.stack([one(model, x, y) for x, y in zip(xs, ys, strict=True)]).mean()


class Sliced:
    """An object with a length and slices that is neither a list nor a tensor."""

    def __init__(self, rows: list[tuple[Tensor, Tensor]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return Sliced(self.rows[index])


@dataclass
class Fields:
    """A batch as a dataclass."""

    x: list[Tensor]
    y: Tensor


Pair = namedtuple("Pair", "x y")


@dataclass
class Graphs:
    """Several graphs in one: nodes, and which graph each belongs to."""

    nodes: Tensor
    graph: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)


def _cut_graphs(batch: Graphs, i: int, j: int) -> Graphs:
    own = (batch.graph >= i) & (batch.graph < j)
    return Graphs(batch.nodes[own], batch.graph[own] - i, batch.y[i:j])


def _graph_loss(model: nn.Module, batch: Graphs) -> Tensor:
    return over(model, [batch.nodes[batch.graph == k] for k in range(len(batch))], batch.y)


def _ragged(n: int) -> list[Tensor]:
    return [sample(k, length) for k, length in enumerate(_lengths(n))]


def _labels(n: int) -> Tensor:
    return torch.stack([_label(k) for k in range(n)])


def _packed_loss(model: nn.Module, batch: tuple[PackedSequence, Tensor]) -> Tensor:
    x, lengths = pad_packed_sequence(batch[0], batch_first=True)
    return over(model, [row[:n] for row, n in zip(x, lengths, strict=True)], batch[1])


def _pairs(batch: Any) -> tuple[Any, Any]:
    return [row["x"] for row in batch], [row["y"] for row in batch]


Forms = dict[str, tuple[Callable[[int], Any], Callable[..., Tensor], dict[str, Any]]]
FORMS: Forms = {
    "lists of inputs and labels": (
        lambda n: (_ragged(n), [_label(k) for k in range(n)]),
        lambda m, b: over(m, *b),
        {},
    ),
    "tuples of inputs and labels, as torchvision's collate": (
        lambda n: tuple(zip(*((x, _label(k)) for k, x in enumerate(_ragged(n))), strict=True)),
        lambda m, b: over(m, *b),
        {},
    ),
    "a ragged list and a tensor": (
        lambda n: (_ragged(n), _labels(n)),
        lambda m, b: over(m, *b),
        {},
    ),
    "a list of dicts": (
        lambda n: [{"x": x, "y": _label(k)} for k, x in enumerate(_ragged(n))],
        lambda m, b: over(m, *_pairs(b)),
        {},
    ),
    "a dict of lists": (
        lambda n: {"x": _ragged(n), "y": _labels(n)},
        lambda m, b: over(m, b["x"], b["y"]),
        {},
    ),
    "a dict with names of samples": (
        lambda n: {"x": _ragged(n), "y": _labels(n), "file": [f"{k}.png" for k in range(n)]},
        lambda m, b: over(m, b["x"], b["y"]),
        {},
    ),
    "a dataclass": (
        lambda n: Fields(_ragged(n), _labels(n)),
        lambda m, b: over(m, b.x, b.y),
        {},
    ),
    "a named tuple": (
        lambda n: Pair(_ragged(n), _labels(n)),
        lambda m, b: over(m, b.x, b.y),
        {},
    ),
    "PackedSequence": (
        lambda n: (pack_sequence(_ragged(n), enforce_sorted=False), _labels(n)),
        _packed_loss,
        {},
    ),
    "nested tensor": (
        lambda n: (torch.nested.nested_tensor(_ragged(n)), _labels(n)),
        lambda m, b: over(m, b[0].unbind(), b[1]),
        {},
    ),
    "nested tensor, jagged": (
        lambda n: (torch.nested.nested_tensor(_ragged(n), layout=torch.jagged), _labels(n)),
        lambda m, b: over(m, b[0].unbind(), b[1]),
        {},
    ),
    "an object with `__len__` and `__getitem__`": (
        lambda n: Sliced([(x, _label(k)) for k, x in enumerate(_ragged(n))]),
        lambda m, b: over(m, [x for x, _ in b.rows], [y for _, y in b.rows]),
        {},
    ),
    "numpy arrays": (
        lambda n: (np.stack([sample(k).numpy() for k in range(n)]), np.arange(n) % 3),
        lambda m, b: over(m, b[0], b[1]),
        {},
    ),
    "the second dimension, `batch_dim=1`": (
        lambda n: (torch.stack([sample(k) for k in range(n)], 1), _labels(n)),
        lambda m, b: over(m, b[0].unbind(1), b[1]),
        {"batch_dim": 1},
    ),
    "graphs, `cut=`": (
        lambda n: Graphs(
            torch.cat(_ragged(n)),
            torch.repeat_interleave(torch.arange(n), torch.tensor(_lengths(n))),
            _labels(n),
        ),
        _graph_loss,
        {"cut": _cut_graphs},
    ),
    "text with targets, `cut=`": (
        lambda n: (
            [" ".join(str(float(v)) for v in sample(k).flatten()) for k in range(n)],
            _labels(n),
        ),
        lambda m, b: over(
            m,
            [torch.tensor([float(v) for v in t.split()]).double().view(-1, 4) for t in b[0]],
            b[1],
        ),
        {"cut": lambda b, i, j: (b[0][i:j], b[1][i:j])},
    ),
}


def _plain(name: str) -> tuple[Any, Any]:
    """Samples of a form as lists; some forms have samples of equal length."""
    equal = name.startswith(("numpy", "the second", "text"))
    rows = [sample(k) for k in range(MANY)] if equal else _ragged(MANY)
    return rows, [_label(k) for k in range(MANY)]


def form(name: str, call: str) -> None:
    """A form of batches gives the numbers of the same samples in a plain list."""
    make, loss, options = FORMS[name]
    model, batch = network(), make(MANY)
    rows, labels = _plain(name)

    def plain(model: nn.Module, index: Tensor) -> Tensor:
        return over(model, [rows[i] for i in index], [labels[i] for i in index])

    index = torch.arange(MANY)
    with unchanged(model):
        if call == "gradient_stats":
            found = ni.gradient_stats(model, batch, None, 4, compute_loss=loss, **options)
            near(found.norms, ni.gradient_stats(model, index, None, 4, compute_loss=plain).norms)
        else:
            found = ni.optimize(model, [batch] * 3, None, METHOD, loss, **options)
            near(found.scales, ni.optimize(model, [index] * 3, None, METHOD, plain).scales, 1e-7)


def _unclear(batch: Any, *words: str) -> None:
    model = network()
    with unchanged(model), refused(ValueError, *words):
        ni.optimize(model, [batch], None, METHOD, lambda m, b: m(b[0][0]).mean())


def cases() -> Iterator[Case]:
    """Item 6."""
    for name in FORMS:
        for call in ("gradient_stats", "optimize"):
            yield Case(6, f"{name}: `{call}`", partial(form, name, call))
    either = {"images": [torch.zeros(3, 4, 4) for _ in range(5)]}
    yield Case(6, "a list that may be either", partial(_unclear, either, "`cut="))
    unequal = (torch.zeros(4, 2), torch.zeros(5))
    yield Case(6, "tensors that disagree", partial(_unclear, unequal, "disagree", "`cut="))
    dicts = tuple({"x": x, "y": _label(k)} for k, x in enumerate(_ragged(6)))
    yield Case(6, "a tuple of dicts", partial(_unclear, dicts, "disagree", "`cut="))
    yield Case(6, "no tensor at all", partial(_unclear, "text", "holds no tensor", "`cut="))
