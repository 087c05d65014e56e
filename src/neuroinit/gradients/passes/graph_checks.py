"""A check, once for every problem, that the graph of a gradient can be differentiated again."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from neuroinit.common.batches import Batch
from neuroinit.common.errors import REENTRANT, listed, no_double_backward
from neuroinit.common.graphs import graph_nodes
from neuroinit.common.tensors import dot
from neuroinit.model.double import in_double
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem

SAMPLES = 8  # with which custom autograd functions are tested
STEP = 1e-6  # step of central differences in float64, relative to the parameters
TOLERANCE = 1e-3  # relative error of a directional derivative in float64


def check_double_backward(problem: Problem, batch: Batch, gradient: Sequence[Tensor]) -> None:
    """Raise if a gradient cannot be differentiated again; only the first one is checked.

    Custom ``autograd.Function`` classes are tested, see :func:`_check_custom_functions`.

    Args:
        problem: The model and its loss.
        batch: A prepared batch.
        gradient: Computed with its graph.
    """

    def check() -> bool:
        custom = _check_graph(gradient)
        if custom:
            small = problem.at(0.1 * problem.unit_scales)  # those at scale 1 may not be finite
            _check_custom_functions(small, batch, sorted(custom))
        return True

    problem.traits.find("differentiable twice", check)


def _check_graph(gradient: Sequence[Tensor]) -> set[str]:
    """Raise if the graph has a function that cannot be differentiated.

    ``torch.autograd.grad`` would return a wrong derivative without an error.

    Returns:
        The names of the user's own autograd functions in the graph.
    """
    custom: set[str] = set()
    for node in graph_nodes(gradient):
        kind = node.name()
        if "autograd::Error" in kind:
            raise RuntimeError(no_double_backward("A function marked `@once_differentiable`"))
        if kind.startswith("CheckpointFunction"):
            raise RuntimeError(REENTRANT)
        if _is_custom(node):
            custom.add(type(node).__name__.removesuffix("Backward"))
    return custom


def _is_custom(node: object) -> bool:
    """Whether a node is of an autograd function that neither torch nor this package defines."""
    if not isinstance(node, BackwardCFunction):
        return False
    module = type(node).__module__.partition(".")[0]
    owner = getattr(type(node), "_forward_cls", type(node)).__module__.partition(".")[0]
    return "neuroinit" not in (module, owner) and owner != "torch"


def _check_custom_functions(point: Point, batch: Batch, names: list[str]) -> None:
    """Warn if the Hessian disagrees with the change of the gradient along one direction.

    Compares ``<u, H v>`` by a double backward with ``<u, g(theta + hv) - g(theta - hv)> / 2h``, for
    random ``u`` and ``v``, on a few samples and a copy of the model in float64. A custom function
    with a wrong double backward would give wrong scales without an error. A model that cannot be
    copied or run in float64 is not tested.
    """
    problem = point.problem
    samples = problem.layout.cut(batch, 0, min(SAMPLES, problem.layout.size(batch)))
    generator = torch.Generator().manual_seed(0)
    u, v = (_directions(problem, point.values, generator) for _ in range(2))
    try:
        twin, samples = in_double(point, samples)
        exact = _second_derivative(twin, samples, u, v)
        around = [twin.moved({n: step * t for n, t in v.items()}) for step in (STEP, -STEP)]
        slopes = [_slope(at, samples, u) for at in around]
    except (RuntimeError, ValueError, TypeError):
        return
    change = (slopes[0] - slopes[1]) / (2 * STEP)
    if abs(exact - change) > TOLERANCE * max(abs(exact), abs(change)):
        problem.warn_once(
            f"The double backward of {listed(names)} seems to be wrong: along one direction the "
            f"second derivative is {exact:.6g}, and the gradient changes by {change:.6g}. Scales "
            "would be wrong, too. Write its `backward` with differentiable operators, or pass "
            "`engine='differences'`."
        )


def _directions(
    problem: Problem, values: dict[str, Tensor], generator: torch.Generator
) -> dict[str, Tensor]:
    """A random direction: each tensor has entries of about the size of the parameter's entries."""
    return {
        n: torch.randn(t.shape, generator=generator, dtype=torch.float64, device="cpu").to(t.device)
        * t.detach().double().abs().mean().clamp_min(1e-3)
        for n, t in values.items()
        if n in problem.differentiated
    }


def _slope(point: Point, batch: Batch, u: dict[str, Tensor]) -> float:
    """``<u, g>``."""
    names = list(u)
    with point.session() as session:
        gradient = session.gradient(session.loss(batch), names)
    return sum(float(dot(u[n], g)) for n, g in zip(names, gradient, strict=True))


def _second_derivative(
    point: Point, batch: Batch, u: dict[str, Tensor], v: dict[str, Tensor]
) -> float:
    """``<u, H v>`` by a double backward."""
    names = list(u)
    with point.session(second_order=True) as session:
        gradient = session.gradient(session.loss(batch), names, create_graph=True)
        along = torch.stack([dot(u[n], g) for n, g in zip(names, gradient, strict=True)]).sum()
        second = session.gradient(along, names)
    return sum(float(dot(v[n], g)) for n, g in zip(names, second, strict=True))
