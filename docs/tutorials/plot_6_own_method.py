"""
Writing your own method
=======================

There are two ways. A new *objective* is a function of a few numbers, and neuroinit computes its exact derivative. A new
*method* is a class with a ``step``.
"""

# %%
# An objective
# ------------
# An objective is a function of the :class:`~neuroinit.Moments` of the sub-batch gradients: their norms, their mean cosine
# and, with ``gram=True``, their whole Gram matrix. This one prefers equal norms.

from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import torch

import neuroinit as ni
from neuroinit.experiments.data.digits import digits
from neuroinit.experiments.models.small_networks import plain_mlp

data = digits()
batches = data.batches(21, 64, seed=0)


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    model = plain_mlp(depth=4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 2.5
    return model


def alike(moments: ni.Moments) -> torch.Tensor:
    return -moments.norms.var() / moments.norm**2


rule = ni.BoundedAscent(alike)
method = ni.NIO(rule=rule, gamma=2.3, lr=0.05, steps=20)
by_objective = ni.optimize(network(), batches, method=method, progress=False)
print(by_objective)

# %%
# A method
# --------
# A method returns new scales. neuroinit handles the loop, the lower clamp of the scales, the history, checkpoints and
# several processes. This method shrinks all tensors by the same factor while the gradient norm is above a target.

from neuroinit.gradients.engines import Engine
from neuroinit.gradients.plan import Plan, make_plan
from neuroinit.gradients.statistics.gradient_stats import measure
from neuroinit.methods.base import Step
from neuroinit.methods.updates import Position
from neuroinit.model.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Tame(ni.Method):
    target: float = 1.0

    def plan(self, problem: Problem, batch: Any, microbatch: int | None) -> Plan:
        """Four sub-batches, no overlap."""
        return make_plan(problem, batch, 4, 0.0, "cover", "sub-batch", microbatch)

    def step(
        self, problem: Problem, batch: Any, plan: Plan, engine: Engine, position: Position
    ) -> Step:
        """Measure, then shrink by ten percent or stay."""
        stats = measure(problem.at(position.scales), batch, plan)
        above = stats.norm > self.target
        return Step(
            scales=position.scales * (0.9 if above else 1.0),
            state=position.state,
            constrained=above,
            loss=stats.loss,
            cosine=stats.cosine,
            norm=stats.norm,
            norm_max=stats.norm_max,
            norm_min=stats.norm_min,
        )


tamed = ni.optimize(network(), batches, method=Tame(steps=20, target=2.3), progress=False)
print(tamed)

# %%
# Both runs have a history, as with the built-in methods.

figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
for name, result in (("objective: norms alike", by_objective), ("method: Tame", tamed)):
    axes.semilogy([record.norm for record in result.history], label=name)
axes.axhline(2.3, color="black", linewidth=0.8, linestyle=":")
axes.set(xlabel="step", ylabel="gradient norm")
legend = axes.legend()
