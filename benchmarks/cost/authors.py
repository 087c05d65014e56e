"""A step the authors' way: one forward pass, then D backward passes through the whole batch.

Every backward pass keeps its graph (``create_graph``), all of them span the whole batch, and the
objective is differentiated through all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from neuroinit.gradients.sub_batches import sub_batches


def step(model: nn.Module, batch: Any, count: int, overlap: float) -> Tensor:
    """The derivative of GC + GN by one scale a tensor.

    Args:
        model: A classifier of samples or of tokens.
        batch: As in ``workloads.py``.
        count: Number of sub-batches ``D``.
        overlap: Overlap ratio ``r``.
    """
    start = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
    scales = {n: torch.ones((), requires_grad=True) for n in start}
    theta = {n: scales[n] * w for n, w in start.items()}
    buffers = {n: b.clone() for n, b in model.named_buffers()}
    with sdpa_kernel(SDPBackend.MATH):
        losses = _losses(partial(functional_call, model, {**theta, **buffers}), batch)
        gradients = []
        for first, last in sub_batches(len(losses), count, overlap, "cover"):
            found = torch.autograd.grad(
                losses[first:last].mean(), list(theta.values()), create_graph=True
            )
            gradients.append(torch.cat([g.flatten() for g in found]))
        norms = torch.stack([g.norm() for g in gradients])
        mean = sum(g / n for g, n in zip(gradients, norms, strict=True)) / count
        objective = mean @ mean + norms.mean()
        return torch.stack(torch.autograd.grad(objective, list(scales.values())))


def _losses(call: Callable[[Any], Any], batch: Any) -> Tensor:
    """One loss a sample: the cross-entropy, or its mean over tokens."""
    if not isinstance(batch, dict):
        output, targets = call((batch[0],)), batch[1]
    elif "input_ids" in batch:  # Hugging Face: every token predicts the next
        output, targets = call((batch["input_ids"],)).logits[:, :-1], batch["labels"][:, 1:]
    else:
        output, targets = call((batch["image"],)), batch["label"]
    losses = F.cross_entropy(output.movedim(-1, 1), targets, reduction="none")
    return losses.flatten(1).mean(1) if losses.dim() > 1 else losses
