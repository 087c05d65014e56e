"""A method of one's own: one class, thirty lines; the loop, the clamp and the report are there.

python examples/own_method.py
"""

import argparse
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import neuroinit as ni
from neuroinit.gradients.engines import Engine
from neuroinit.gradients.plan import Plan, make_plan
from neuroinit.gradients.statistics.gradient_stats import measure
from neuroinit.methods.base import Step
from neuroinit.methods.updates import Position
from neuroinit.model.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Tame(ni.Method):
    """Shrinks all tensors alike while the gradient norm is above a target."""

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
            **{
                key: getattr(stats, key)
                for key in ("loss", "cosine", "norm", "norm_max", "norm_min")
            },
        )


def main() -> None:
    """Tame a network whose gradients are too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, for tests")
    steps = 4 if parser.parse_args().quick else 40
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 3
    batches = [(torch.randn(32, 10), torch.randint(3, (32,))) for _ in range(steps + 1)]
    print(ni.optimize(model, batches, method=Tame(steps=steps, target=1.0)))


if __name__ == "__main__":
    main()
