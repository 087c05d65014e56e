"""How good `engine="differences"` is, against the exact engines, for docs/guide/large-models.md.

python -m benchmarks.cost.differences
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neuroinit.gradients.engines import Keep
from neuroinit.gradients.plan import make_plan
from neuroinit.model.problem import Problem
from neuroinit.sharded.differences import Differences, _log_norm_and_cosine


def network(activation: type[nn.Module], norm: str) -> nn.Module:
    """Six layers of width 128, on inputs of size 64."""
    norms = {"none": nn.Identity, "layer": nn.LayerNorm, "batch": nn.BatchNorm1d}
    body = [
        layer
        for k in range(6)
        for layer in (nn.Linear(64 if k == 0 else 128, 128), norms[norm](128), activation())
    ]
    return nn.Sequential(*body, nn.Linear(128, 10))


def errors(activation: type[nn.Module], norm: str, dtype: torch.dtype, seed: int) -> list[float]:
    """Relative error and cosine against the exact derivative, and the error the check sees."""
    torch.manual_seed(seed)
    model = network(activation, norm).to(dtype)
    batch = torch.randn(64, 64, dtype=dtype), torch.randint(10, (64,))
    problem = Problem(model, nn.functional.cross_entropy)
    scales = problem.unit_scales
    point, engine = problem.at(scales), Differences()
    plan = make_plan(problem, batch, 8, 0.0, "cover", "sub-batch")
    exact = Keep().derivative(point, batch, plan, _log_norm_and_cosine).gradient
    found = engine.derivative(point, batch, plan, _log_norm_and_cosine).gradient
    try:
        seen = engine.check(problem, batch, plan, scales)
    except ValueError:
        seen = float("inf")
    return [_relative(found, exact), float(torch.cosine_similarity(found, exact, dim=0)), seen]


def _relative(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm())


def main() -> None:
    """Print the table."""
    print("| network | dtype | error | cosine | seen by the check |")
    print("|---|---|---|---|---|")
    for activation in (nn.GELU, nn.Tanh, nn.ReLU):
        for norm in ("none", "layer", "batch"):
            for dtype in (torch.float64, torch.float32):
                rows = torch.tensor([errors(activation, norm, dtype, seed) for seed in range(5)])
                worst = [rows[:, 0].max(), rows[:, 1].min(), rows[:, 2].max()]
                refused = int(rows[:, 2].isinf().sum())
                seen = f"refused {refused} of 5" if refused else f"{worst[2]:.1e}"
                name = activation.__name__ + ("" if norm == "none" else f", {norm} norm")
                kind = str(dtype).removeprefix("torch.")
                print(f"| {name} | {kind} | {worst[0]:.1e} | {worst[1]:.5f} | {seen} |", flush=True)


if __name__ == "__main__":
    main()
