"""Finds the residual branches of a model in the autograd graph of its loss.

In ``x + f(x)`` one input of the addition can be reached from the other on the way back: ``x`` is
the skip path and ``f(x)`` the branch. If the skip path has layers, too (a projection), both come
from one tensor, and the branch is the input with more parameters on its way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from torch import Tensor
from torch.autograd.graph import Node

ADDITIONS = ("AddBackward0", "AddBackward1")


def branch_ends(loss: Tensor, names: Mapping[int, str]) -> list[str]:
    """The parameter that scales the end of every residual branch, in the order of the graph.

    It is the weight of the last layer of the branch, or the gain of a normalization layer or layer
    scale after that layer. A parameter at the end of several branches is left out, because in an
    unrolled recurrent layer every step adds the same product.

    Args:
        loss: A loss with its graph; inputs that require a gradient are part of it.
        names: ``id(tensor)`` -> name of the parameters.

    Returns:
        One name per branch; branches without parameters are left out.
    """
    if loss.grad_fn is None:
        return []
    graph = _Graph(loss.grad_fn, names)
    found: list[str] = []
    for node in graph.nodes:
        pair = graph.data_inputs(node)
        if node.name() in ADDITIONS and len(pair) == 2:
            branch = graph.branch(*pair)
            name = graph.last_parameter(*branch) if branch else None
            found += [] if name is None else [name]
    return [name for name in found if found.count(name) == 1]


class _Graph:
    """The nodes of a graph in topological order, and for each node the set of its ancestors.

    Sets of nodes are integers with one bit a node.
    """

    def __init__(self, last: Node, names: Mapping[int, str]) -> None:
        self.nodes = _ordered(last)
        self.place = {node: k for k, node in enumerate(self.nodes)}
        self.names: dict[Node, str] = {}  # of leaves
        self.before: dict[Node, int] = {}  # a node -> its ancestors and itself
        for k, node in enumerate(self.nodes):
            variable = getattr(node, "variable", None)
            if variable is not None:
                self.names[node] = names.get(id(variable), "")
            self.before[node] = 1 << k
            for previous in _inputs(node):
                self.before[node] |= self.before[previous]
        self.leaves = self._set(self.names)
        self.inner = self._set(self.nodes) & ~self.leaves
        inputs = [n for n, name in self.names.items() if not name]
        looked_up = [n for n in self.nodes if "Embedding" in n.name()]
        self.data = self._set([*inputs, *looked_up])

    def data_inputs(self, node: Node) -> list[Node]:
        """The inputs of a node, without parameters and views of one parameter."""
        return [n for n in _inputs(node) if self._is_data(n)]

    def branch(self, first: Node, second: Node) -> tuple[Node, int] | None:
        """The last node of the branch and the set of nodes outside of the branch.

        ``None`` if the sum of the two nodes is not a residual sum.
        """
        skip, end = sorted((first, second), key=self.place.__getitem__)
        if skip is not end and self._in(skip, self.before[end]):
            return end, self.before[skip]
        common = self.before[first] & self.before[second]
        if not common & (self.inner | self.data) or len(_shape(first)) < 2:
            return None
        many, few = sorted((first, second), key=lambda n: -self._parameters(n, common))
        if self._parameters(many, common) == self._parameters(few, common):
            return None
        return many, common

    def last_parameter(self, end: Node, outside: int) -> str | None:
        """The last parameter that a branch uses, by name; biases do not count."""
        level, seen = [end], {end}
        while level:
            for node in level:
                for previous in _inputs(node):
                    if not self._inside(previous, outside) and not self._in(previous, outside):
                        own = [n for n in self._leaves(previous) if not self._in(n, outside)]
                        named = [self.names[n] for n in own if not _is_bias(self.names[n])]
                        if named:
                            return named[-1]
            following = [p for n in level for p in _inputs(n) if self._inside(p, outside)]
            level = [n for n in dict.fromkeys(following) if n not in seen]
            seen.update(level)
        return None

    def _inside(self, node: Node, outside: int) -> bool:
        """Whether a node belongs to the branch and depends on the input of the branch."""
        start = self.inner | self.data
        return not self._in(node, outside) and bool(self.before[node] & outside & start)

    def _in(self, node: Node, nodes: int) -> bool:
        return bool(nodes >> self.place[node] & 1)

    def _is_data(self, node: Node) -> bool:
        """Whether a node depends on inputs, or at least on several parameters."""
        return bool(self.before[node] & self.data) or len(list(self._leaves(node))) > 1

    def _parameters(self, node: Node, common: int) -> int:
        return (self.before[node] & ~common & self.leaves).bit_count()

    def _leaves(self, node: Node) -> Iterator[Node]:
        return (n for n in self.names if self._in(n, self.before[node]))

    def _set(self, nodes: Iterable[Node]) -> int:
        return sum(1 << self.place[n] for n in nodes)


def _is_bias(name: str) -> bool:
    return not name or name.rpartition(".")[2].startswith("bias")


def _inputs(node: Node) -> list[Node]:
    return [n for n, _ in node.next_functions if n is not None]


def _shape(node: Node) -> tuple[int, ...]:
    """The shape of a node's output; empty if it is not known."""
    found = getattr(node, "_input_metadata", None)
    return tuple(found[0].shape) if found else ()


def _ordered(last: Node) -> list[Node]:
    """All nodes of a graph in topological order, inputs first."""
    order: list[Node] = []
    seen = {last}
    stack = [(last, iter(_inputs(last)))]
    while stack:
        node, rest = stack[-1]
        following = next(rest, None)
        if following is None:
            order.append(node)
            stack.pop()
        elif following not in seen:
            seen.add(following)
            stack.append((following, iter(_inputs(following))))
    return order
