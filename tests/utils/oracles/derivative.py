"""The derivative by the scales by autograd through one graph."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from tests.utils.oracles.gradients import Losses, forward_plan, trainable, training_copy
from tests.utils.oracles.measures import agreement
from tests.utils.oracles.sub_batches import Slices


class PlainWeightNorm(TorchFunctionMode):
    """weight_norm by its formula: the fused operator has a wrong double backward (torch 2.13)."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if func is torch._weight_norm:
            v, g, dim = args
            return v * (g / torch.norm_except_dim(v, 2, dim))
        return func(*args, **(kwargs or {}))


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Attention and weight_norm in their plain forms, compiled modules run as plain ones."""
    eager = torch.compiler.set_stance("force_eager")
    with sdpa_kernel(SDPBackend.MATH), PlainWeightNorm(), eager:
        yield


def scale_gradient(
    model: nn.Module,
    batch: Any,
    slices: Slices,
    objective: Callable[..., Tensor],
    loss_fn: Callable | None = F.cross_entropy,
    compute_loss: Callable | None = None,
    batch_stats: str = "sub-batch",
    scales: dict[str, float] | None = None,
    others: list | None = None,
) -> dict[str, Tensor]:
    """d objective(K) / d w_k at `scales` (all ones if not given), theta_k = w_k W_k.

    With `others`, the batch with permuted targets, it is objective(K, agreement).
    """
    original = trainable(training_copy(model))
    w = {
        name: torch.tensor((scales or {}).get(name, 1.0), dtype=torch.float64, requires_grad=True)
        for name in original
    }
    scaled = {name: w[name] * W.detach() for name, W in original.items()}

    def gradients(batch: Any) -> Tensor:
        rows = []
        for samples, parts in forward_plan(batch, slices, batch_stats):
            # The copy holds the same values as `scaled`: a checkpoint recomputes from the copy.
            losses = Losses(training_copy(model, scales), loss_fn, compute_loss)
            swapped = {f"model.{name}": value for name, value in scaled.items()}
            for loss in functional_call(losses, swapped, (samples, parts)):
                grads = torch.autograd.grad(
                    loss, list(scaled.values()), create_graph=True, materialize_grads=True
                )
                rows.append(torch.cat([g.to_dense().flatten() for g in grads]))
        return torch.stack(rows)

    with twice_differentiable():
        G = gradients(batch)
        arguments = [G @ G.T]
        if others is not None:
            H = G - sum(gradients(other) for other in others) / len(others)
            arguments.append(agreement(H @ H.T))
        # Not autograd.grad(..., w): it walks around a @once_differentiable function in silence.
        objective(*arguments).backward()
    return {name: torch.zeros_like(w) if w.grad is None else w.grad for name, w in w.items()}
