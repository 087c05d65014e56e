"""A backward pass by the parameters, one more by the scales, and what can be wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from neuroinit.common.errors import (
    REENTRANT,
    NonFiniteError,
    listed,
    named_operator,
    no_double_backward,
)
from neuroinit.common.tensors import filled, unflatten
from neuroinit.gradients.plan import Plan
from neuroinit.model.problem import Problem

ZERO = torch.zeros((), dtype=torch.float64, device="cpu")


def gradient_of(
    problem: Problem,
    loss: Tensor,
    names: Sequence[str] | None = None,
    create_graph: bool = False,
    retain_graph: bool = False,
) -> tuple[Tensor, ...]:
    """The gradient of a loss by every parameter that is looked at; zeros where it is unused."""
    check_loss(loss)
    names = problem.differentiated if names is None else names
    theta = problem.theta(names)
    found = problem.gradient(loss, names, create_graph, retain_graph)
    return filled(found, theta)


def check_loss(loss: Tensor) -> None:
    """Raise for a loss that is not finite, or that no parameter is felt in."""
    if not torch.isfinite(loss):
        raise NonFiniteError(
            f"The loss is not finite: {loss.item()}. The start is too large, the inputs are not "
            "finite, or the learning rate `lr` of the scales is too high."
        )
    if not loss.requires_grad:
        raise ValueError(
            "The loss does not depend on any trainable parameter. Return it with its graph: no "
            "`.item()`, `.detach()` or `torch.no_grad()` between the model and the loss."
        )


def second_backward(
    problem: Problem,
    graphs: Sequence[tuple[Tensor, ...]],
    directions: Sequence[Tensor],
    retain_graph: bool = False,
) -> Tensor:
    """``<W_k, sum_s [H_s v_s]_k>`` for every scale: one backward through the gradients' graphs."""
    gradients = [gradient for graph in graphs for gradient in graph]
    vectors = [v for g, d in zip(graphs, directions, strict=True) for v in unflatten(d, g)]
    return backward_by(problem, gradients, vectors, retain_graph)


def backward_by(
    problem: Problem,
    gradients: Sequence[Tensor],
    directions: Sequence[Tensor],
    retain_graph: bool = False,
) -> Tensor:
    """The same for gradients with their graphs one by one; those without a graph don't count."""
    vectors = [v for g, v in zip(gradients, directions, strict=True) if g.requires_grad]
    outputs = [g for g in gradients if g.requires_grad]
    found = problem.second_backward(outputs, vectors, retain_graph) if outputs else {}
    return torch.stack([found.get(n, ZERO) for n in problem.scaled])


def check_derivative(problem: Problem, derivative: Tensor) -> Tensor:
    """Raise for a derivative by the scales that is not finite."""
    bad = [n for n, g in zip(problem.scaled, derivative, strict=True) if not torch.isfinite(g)]
    if bad:
        raise NonFiniteError(f"The derivative by the scale of {listed(bad)} is not finite.")
    return derivative


def check_graph(problem: Problem, gradient: Sequence[Tensor]) -> None:
    """Raise if the graph cannot be differentiated again, or goes past the scaled parameters.

    ``torch.autograd.grad`` would pass both by without an error and return a wrong derivative.
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


def first_order_graph(problem: Problem, batch: Any, plan: Plan, piece: int) -> tuple[Tensor, ...]:
    """One piece's gradient with its graph, as the engines build it."""
    with problem.session(second_order=True, marked=True), named_operator():
        (loss,) = problem.losses(batch, [plan.pieces[piece]], plan.whole)
        return gradient_of(problem, loss, create_graph=True)
