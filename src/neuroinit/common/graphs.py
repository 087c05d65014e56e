"""Autograd graphs."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from torch import Tensor
from torch.autograd.graph import Node


def graph_nodes(outputs: Sequence[Tensor], ends: Container[Node | None] = ()) -> Iterator[Node]:
    """Yield every node of the autograd graph of some tensors, once.

    Args:
        outputs: Those without a graph are ignored.
        ends: Nodes that are yielded, but whose parents are not visited from them.
    """
    waiting: list[Node] = [t.grad_fn for t in outputs if t.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        yield node
        if node not in ends:
            new = {parent for parent, _ in node.next_functions if parent is not None} - seen
            seen |= new
            waiting.extend(new)
