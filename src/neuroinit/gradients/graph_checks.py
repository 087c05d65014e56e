"""Graphs that cannot be differentiated a second time, found before any step is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from neuroinit.common.batches import Batch, Interval
from neuroinit.common.errors import REENTRANT, named_operator, no_double_backward
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem


def check_double_backward(point: Point, batch: Batch, piece: Interval, one_forward: bool) -> None:
    """Compute one gradient with its graph, and raise if it cannot be differentiated again.

    Args:
        point: Where the parameters stand.
        batch: A prepared batch.
        piece: Which samples.
        one_forward: Take a slice of one forward pass of the whole batch.
    """
    with (
        point.session(second_order=True, scale_variables=True) as session,
        named_operator(),
    ):
        (loss,) = session.losses(batch, [piece], one_forward)
        gradient = session.gradient(loss, point.problem.differentiated, create_graph=True)
        _check_graph(point.problem, gradient)


def _check_graph(problem: Problem, gradient: Sequence[Tensor]) -> None:
    """Raise if the graph has a function that cannot be differentiated, or an unscaled parameter.

    ``torch.autograd.grad`` would return a wrong derivative for both without an error.
    """
    originals = {id(p): n for n, p in problem.parameters.items()}
    waiting: list[Any] = [g.grad_fn for g in gradient if g.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if "autograd::Error" in node.name():
            raise RuntimeError(no_double_backward("A function marked `@once_differentiable`"))
        if node.name().startswith("CheckpointFunction"):
            raise RuntimeError(REENTRANT)
        name = originals.get(id(getattr(node, "variable", None)))
        if name is not None:
            raise ValueError(
                f"The forward pass uses `{name}` through a reference of its own, past the module "
                "that holds it, so it cannot be scaled there. Read it as an attribute of its "
                "module in `forward`, or keep such tensors in an `nn.ParameterList`."
            )
        new = {parent for parent, _ in node.next_functions if parent is not None} - seen
        seen |= new
        waiting.extend(new)
