"""LSUV: an orthonormal start, then every layer's output brought to unit variance, in order.

Mishkin and Matas, *All you need is a good init*, ICLR 2016. Inputs are enough: no loss, no labels,
no gradient.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from neuroinit.common.batches import Batch
from neuroinit.common.checks import check_count, check_number
from neuroinit.common.errors import NonFiniteError
from neuroinit.gradients.engines import Engine
from neuroinit.gradients.plan import Plan
from neuroinit.methods.base import Initialization, Step
from neuroinit.methods.classic import Orthogonal
from neuroinit.methods.layers import EMBEDDINGS, is_affine
from neuroinit.methods.updates import Position
from neuroinit.model.fresh_values import Draw
from neuroinit.model.point import Point
from neuroinit.model.problem import Problem
from neuroinit.model.selection import places


@dataclass(frozen=True, kw_only=True)
class LSUV(Initialization):
    """Layer-sequential unit variance, in one forward pass a batch.

    A layer's input is final once the layers before it are done, so each layer is brought to unit
    variance on the spot, by its own forward pass alone. Only weights are scaled; a layer that runs
    twice is scaled where it runs first. One whose output is constant is left alone, as is a weight
    that it shares with an embedding.

    Args:
        steps: Batches; each goes once through the network.
        tolerance_var: How far from 1 the variance of a layer's output may be.
        tries: Most corrections of a layer on one batch.

    Example:
        >>> LSUV(tries=5).tolerance_var
        0.1
    """

    steps: int = 1
    tolerance_var: float = 0.1
    tries: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps", self.steps, 1)
        check_number("tolerance_var", self.tolerance_var, 0.0)
        check_count("tries", self.tries, 1)

    def draws(self, model: nn.Module) -> dict[str, Draw]:
        """Orthonormal weights, zero biases, and the rest as the classic starts have it."""
        start = Orthogonal(include=self.include, exclude=self.exclude, nonlinearity="linear")
        return start.draws(model)

    def step(
        self, problem: Problem, batch: Batch, plan: Plan, engine: Engine, position: Position
    ) -> Step:
        """One forward pass in which every layer is rescaled when it runs."""
        scales = dict(zip(problem.scaled, position.scales.tolist(), strict=True))
        point = problem.at(position.scales)
        corrected = _Corrected(self, point, scales)
        with point.session() as session, torch.no_grad(), ExitStack() as stack:
            for module in problem.model.modules():
                if is_affine(module):
                    hook = module.register_forward_hook(corrected, with_kwargs=True)
                    stack.callback(hook.remove)
            session.run(batch)
        moved = [scales[name] for name in problem.scaled]
        return Step(torch.tensor(moved, dtype=torch.float64, device="cpu"), {})


class _Corrected:
    """A forward hook that scales a layer's weight until its output has unit variance."""

    def __init__(self, method: LSUV, point: Point, scales: dict[str, float]) -> None:
        self.method, self.scales, problem = method, scales, point.problem
        shared = {n for module, _, n in places(problem.model) if isinstance(module, EMBEDDINGS)}
        own = [n for n in problem.scaled if n not in shared]
        self.names = {id(tensor): n for n, tensor in zip(own, point.tensors(own), strict=True)}
        self.done: set[str] = set()

    def __call__(
        self, module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Tensor
    ) -> Tensor:
        weight = module._parameters.get("weight")
        name = self.names.get(id(weight))
        if weight is None or name is None or name in self.done:
            return output
        self.done.add(name)
        for _ in range(self.method.tries):
            variance = float(output.var(correction=0))
            if not math.isfinite(variance):
                raise NonFiniteError(f"The output of the layer with `{name}` is not finite.")
            if variance == 0 or abs(variance - 1) < self.method.tolerance_var:
                break
            weight.mul_(variance**-0.5)
            self.scales[name] *= variance**-0.5
            output = module.forward(*inputs, **keywords)
        return output
