"""The algorithms of the paper and of the released code, written out."""

import copy
import math
from collections.abc import Callable
from itertools import cycle, islice

import torch
from torch import Tensor, nn

from tests.utils.oracles.derivative import scale_gradient, twice_differentiable
from tests.utils.oracles.gradients import gram, trainable, training_copy
from tests.utils.oracles.measures import cosine, leaves, norm, norms
from tests.utils.oracles.sub_batches import cut, sub_batch_slices_paper, sub_batch_slices_reference

Run = tuple[dict[str, float], list[bool], list[tuple[float, float]]]


def nio_paper(
    model: nn.Module,
    batches: list,
    loss_fn: Callable | None,
    *,
    steps: int,
    lr: float,
    gamma: float,
    D: int,
    r: float,
    min_scale: float = 0.01,
    compute_loss: Callable | None = None,
) -> Run:
    """Alg. 3 to the letter: scales, whether each step was a constraint step, and (GC, GN)."""
    scales = {name: 1.0 for name, p in trainable(model).items() if bool((p != 0).any())}
    constrained, values = [], []
    for batch in islice(cycle(batches), steps):
        slices = sub_batch_slices_paper(len(next(leaves(batch))), D, r)
        K = gram(training_copy(model, scales), batch, slices, loss_fn, compute_loss)
        constrained.append(norms(K).max().item() > gamma)
        values.append((cosine(K).item(), norm(K).item()))
        objective = norm if constrained[-1] else lambda K: cosine(K) + norm(K)
        sign = -1 if constrained[-1] else 1
        gradient = scale_gradient(
            model, batch, slices, objective, loss_fn, compute_loss, scales=scales
        )
        for name in scales:
            scales[name] = max(scales[name] + sign * lr * gradient[name].item(), min_scale)
    return scales, constrained, values


def reference_setup(model: nn.Module) -> tuple[nn.Module, list[nn.Parameter]]:
    """The model in the modes of the authors' code, and the parameters whose gradients it takes."""
    model = copy.deepcopy(model).double().eval()
    measured = []
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
            module.track_running_stats = False
        if isinstance(module, nn.Conv2d | nn.Linear | nn.LayerNorm):
            measured += [p for p in (module.weight, module.bias) if p is not None]
    return model, [p for p in measured if p.requires_grad]


class ReferenceAdam:
    """Adam of one scale: a first moment for each kind of step, one second moment."""

    def __init__(self, lr: float, grad_clip: float) -> None:
        self.lr, self.grad_clip = lr, grad_clip
        self.first, self.count, self.second = {True: 0.0, False: 0.0}, {True: 0, False: 0}, 0.0

    def step(self, gradient: float, kind: bool) -> float:
        """What to subtract from the scale; `kind` says whether this is a constraint step."""
        gradient = min(max(gradient, -self.grad_clip), self.grad_clip)
        self.count[kind] += 1
        self.first[kind] = 0.9 * self.first[kind] + (1 - 0.9) * gradient
        self.second = 0.999 * self.second + (1 - 0.999) * gradient**2
        denominator = math.sqrt(self.second / (1 - 0.999 ** sum(self.count.values()))) + 1e-8
        return self.lr * self.first[kind] / (1 - 0.9 ** self.count[kind]) / denominator


def nio_reference(
    model: nn.Module,
    batches: list,
    loss_fn_per_sample: Callable[[Tensor, Tensor], Tensor],
    *,
    steps: int,
    lr: float,
    gamma: float,
    D: int,
    r: float,
    grad_clip: float = 1.0,
    min_scale: float = 0.01,
) -> Run:
    """The authors' released code, as described; the values are (mean over i != j, mean norm)."""
    model, measured = reference_setup(model)
    named = {k: p for k, p in trainable(model).items() if "weight" in k or "bias" in k}
    start_norms = {name: p.norm().item() for name, p in named.items() if p.norm() != 0}
    scales = dict.fromkeys(start_norms, 1.0)
    optimizers = {name: ReferenceAdam(lr, grad_clip) for name in scales}
    constrained, values = [], []
    for batch in islice(cycle(batches), steps):
        inputs, targets = cut(batch, slice(None))
        model.zero_grad()
        with twice_differentiable():
            losses = loss_fn_per_sample(model(inputs), targets)
            rows = []
            for part in sub_batch_slices_reference(len(losses), D, r):
                loss = losses[part].mean()
                grads = torch.autograd.grad(
                    loss, measured, create_graph=True, materialize_grads=True
                )
                rows.append(torch.cat([g.flatten() for g in grads]))
            lengths = [row.norm() for row in rows]
            units = [row / length for row, length in zip(rows, lengths, strict=True)]
            similarity = sum(u @ v for u in units for v in units if u is not v) / (D**2 - D)
            kind = (sum(lengths) / D).item() > gamma
            (sum(lengths) / D if kind else -similarity - sum(lengths)).backward()
        constrained.append(kind)
        values.append((similarity.item(), (sum(lengths) / D).item()))
        for name, start in start_norms.items():
            p, current = named[name], named[name].norm().item()
            if current == 0 or p.grad is None:
                continue
            step = optimizers[name].step((p.grad * p).sum().item() * start / current, kind)
            scales[name] = max(scales[name] - step, min_scale if "weight" in name else 0.0)
            p.data *= scales[name] * start / current
    return scales, constrained, values
