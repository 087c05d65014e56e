"""Small residual branches, as in GPT-2, for any model.

Radford et al., *Language Models are Unsupervised Multitask Learners*, 2019, Sec. 2.3: the weights
of residual layers are divided by the root of the number of these layers. Their released code draws
all weights and embeddings with a standard deviation of 0.02.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from neuroinit.common.batches import Batch, map_tensors
from neuroinit.common.checks import check_number
from neuroinit.common.tensors import quick_norms
from neuroinit.gradients.engines import Engine
from neuroinit.gradients.plan import Plan
from neuroinit.methods.base import Initialization, Step
from neuroinit.methods.classic.layers import EMBEDDINGS, is_weight
from neuroinit.methods.updates import Position
from neuroinit.model.parameters.branches import branch_ends
from neuroinit.model.problem import Problem

SAMPLES = 2  # BatchNorm needs two


@dataclass(frozen=True, kw_only=True)
class SmallBranches(Initialization):
    """Divide the last layer of every residual branch by the root of the number of branches.

    Branches are the summands of skip paths in the autograd graph of the loss. With ``n`` branches,
    the variance of their sum is then that of one branch before. If a branch ends in a normalization
    layer or a layer scale, its gain is divided. Biases do not change. A model without residual
    branches is left alone, unless ``std`` is given.

    Args:
        factor: The factor of the last layers; ``None`` for ``1 / sqrt(n)``. With a small number,
            such as 0.01, residual blocks start near the identity, as with FixUp and zero gains.
        std: Scale the weights of all layers and embeddings to this standard deviation first, for
            example 0.02 as in GPT-2; ``None`` leaves them as they are.

    Raises:
        TypeError, ValueError: If a field has the wrong type or is out of range.

    Example:
        >>> SmallBranches(factor=0.01).steps
        1
    """

    factor: float | None = None
    std: float | None = None

    needs_loss: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.factor is not None:
            check_number("factor", self.factor, 0.0)
        if self.std is not None:
            check_number("std", self.std, 0.0)

    @property
    def steps(self) -> int:
        """Always 1, because the graph of one batch is enough."""
        return 1

    def step(
        self, problem: Problem, batch: Batch, plan: Plan, engine: Engine, position: Position
    ) -> Step:
        """One forward pass of a few samples."""
        ends = self.ends(problem, batch)
        factor = self.factor if self.factor is not None else max(1, len(ends)) ** -0.5
        sizes = {} if self.std is None else factors_to(self.std, problem)
        factors = [
            (factor if name in ends else 1.0) * sizes.get(name, 1.0) for name in problem.scaled
        ]
        return Step(position.scales * torch.tensor(factors, dtype=torch.float64, device="cpu"), {})

    @staticmethod
    def ends(problem: Problem, batch: Batch) -> list[str]:
        """The names of the parameters at the ends of branches, one per branch."""
        few = problem.layout.cut(batch, 0, min(SAMPLES, problem.layout.size(batch)))
        few = map_tensors(_followed, few)  # a skip path may begin at the input
        point = problem.at(problem.unit_scales)
        with point.session() as session:
            names = {id(tensor): name for name, tensor in point.values.items()}
            return branch_ends(session.loss(few), names)


def factors_to(std: float, problem: Problem) -> dict[str, float]:
    """Name -> factor that gives a weight or an embedding this root mean square."""
    tensors = {
        name: problem.start[name]
        for module, key, name in problem.places
        if isinstance(module, EMBEDDINGS) or is_weight(module, key, problem.start[name])
    }
    norms = zip(tensors.items(), quick_norms(list(tensors.values())), strict=True)
    return {
        n: std * math.sqrt(t.numel()) / norm if 0 < norm < math.inf else 1.0
        for (n, t), norm in norms
    }


def _followed(tensor: Tensor) -> Tensor:
    """A copy that requires a gradient, if it is floating point."""
    copied = tensor.detach().clone()
    return copied.requires_grad_() if copied.is_floating_point() else copied
