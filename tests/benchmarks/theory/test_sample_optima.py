"""The quantities of the theory against slow, obvious ones."""

import pytest
import torch

from benchmarks.theory.run import NETWORKS, Samples, squared
from benchmarks.theory.sample_optima import hull_distance, theta_of


def test_theta_is_equation_2():
    paths = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    norms = [float(p.norm()) for p in paths]
    cosines = [float(a @ b) / (float(a.norm()) * float(b.norm())) for a in paths for b in paths]
    ratio = max(norms) / min(norms)
    theta, cosine = theta_of(paths)
    assert theta == pytest.approx(max(norms) ** 2 / 5 * sum(ratio - c for c in cosines))
    assert cosine == pytest.approx(sum(cosines) / 25)


def test_the_distance_from_a_hull():
    corners = torch.eye(2, dtype=torch.float64)
    assert hull_distance(corners.mean(0), corners) == pytest.approx(0, abs=1e-6)
    assert hull_distance(torch.zeros(2, dtype=torch.float64), corners) == pytest.approx(0.5**0.5)
    assert hull_distance(torch.tensor([3.0, 0.0]).double(), corners) == pytest.approx(2)


def test_the_curvature_is_the_largest_eigenvalue():
    torch.manual_seed(0)
    model = NETWORKS["MLP, 1 tanh layer"]()
    inputs, targets = torch.randn(1, 1, 8, 8, dtype=torch.float64), torch.tensor([3])
    samples = Samples(model, squared, inputs, targets)
    start = samples.start()
    hessian = torch.autograd.functional.hessian(samples.together, start)
    largest = float(torch.linalg.eigvalsh(hessian).abs().max())
    assert float(samples.curvature(start[None])) == pytest.approx(largest, rel=0.02)
