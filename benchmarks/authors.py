"""A step the authors' way: one forward pass, then D backward passes through the whole batch.

Every backward pass keeps its graph (``create_graph``), all of them span the whole batch, and the
objective is differentiated through all of them at once.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from neuroinit.gradients.sub_batches import sub_batches


def step(model: nn.Module, batch: tuple[Tensor, Tensor], count: int, overlap: float) -> Tensor:
    """The derivative of GC + GN by one scale a tensor."""
    inputs, targets = batch
    start = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
    scales = {n: torch.ones((), requires_grad=True) for n in start}
    theta = {n: scales[n] * w for n, w in start.items()}
    buffers = {n: b.clone() for n, b in model.named_buffers()}
    with sdpa_kernel(SDPBackend.MATH):
        output = functional_call(model, {**theta, **buffers}, (inputs,))
        losses = F.cross_entropy(output, targets, reduction="none")
        gradients = []
        for first, last in sub_batches(len(targets), count, overlap, "cover"):
            found = torch.autograd.grad(
                losses[first:last].mean(), list(theta.values()), create_graph=True
            )
            gradients.append(torch.cat([g.flatten() for g in found]))
        norms = torch.stack([g.norm() for g in gradients])
        mean = sum(g / n for g, n in zip(gradients, norms, strict=True)) / count
        objective = mean @ mean + norms.mean()
        return torch.stack(torch.autograd.grad(objective, list(scales.values())))
