"""Slow, obvious float64 oracles: ordinary autograd, one graph, everything flattened."""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import cycle, islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

Slices = list[slice]
Run = tuple[dict[str, float], list[bool], list[tuple[float, float]]]


# --- Sub-batches ---


def sub_batch_slices_paper(B: int, D: int, r: float) -> Slices:
    """Eq. 7, in exact arithmetic and cut at the end of the batch (a late slice may be empty)."""
    ratio = Fraction(str(r))
    N = math.ceil(B / (D - ratio))
    starts = [math.floor(N * (d - 1) * (1 - ratio)) for d in range(1, D + 1)]
    return [slice(min(start, B), min(start + N, B)) for start in starts]


def sub_batch_slices_reference(B: int, D: int, r: float) -> Slices:
    """The slices of the authors' code, in its floating point arithmetic."""
    n = int(B / D)
    slices = []
    for i in range(D):
        start = 0 if i == 0 else int((1 - r) * n * i)
        stop = B if i == D - 1 else int((1 + r) * n * (i + 1))
        slices.append(slice(start, min(stop, B)))
    return slices


def sub_batch_slices_cover(B: int, D: int, r: float) -> Slices:
    """Evenly spaced slices that cover the batch, in exact arithmetic."""
    N = math.ceil(B / (D - Fraction(str(r)) * (D - 1)))
    starts = [(B - N) * d // (D - 1) for d in range(D)] if D > 1 else [0]
    return [slice(start, start + N) for start in starts]


def cut(batch: Any, part: slice) -> Any:
    """The samples `part` of a nested batch, floating point tensors in float64."""
    if isinstance(batch, Tensor):
        return batch[part].double() if batch.is_floating_point() else batch[part]
    if isinstance(batch, dict):
        return {key: cut(value, part) for key, value in batch.items()}
    return type(batch)(cut(value, part) for value in batch)


# --- Losses and gradients ---


def training_copy(model: nn.Module, scales: dict[str, float] | None = None) -> nn.Module:
    """A float64 copy in train mode without dropout; parameters times their scales."""
    graphs = {  # tensors with a graph can't be copied (old weight_norm, cached outputs)
        id(value): value.detach().clone()
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and value.grad_fn is not None
    }
    model = copy.deepcopy(model, graphs).double().train()
    for module in model.modules():
        for name in ("p", "dropout", "drop_prob"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    for name, parameter in model.named_parameters():
        parameter.data = (scales or {}).get(name, 1.0) * parameter.data
    return model


class Losses(nn.Module):
    """The mean losses of some sub-batches, from one forward of the batch they are slices of."""

    def __init__(
        self, model: nn.Module, loss_fn: Callable | None, compute_loss: Callable | None
    ) -> None:
        super().__init__()
        self.model, self.loss_fn, self.compute_loss = model, loss_fn, compute_loss

    def forward(self, batch: Any, slices: Slices) -> list[Tensor]:
        if self.compute_loss is None:
            inputs, targets = batch
            outputs = self.model(inputs)
            assert self.loss_fn is not None
            return [self.loss_fn(outputs[part], targets[part]).mean() for part in slices]
        losses = self.compute_loss(self.model, batch)
        if losses.ndim == 0:
            assert slices == [slice(None)], "a scalar loss can't be taken apart"
            return [losses]
        return [losses[part].mean() for part in slices]


def forward_plan(batch: Any, slices: Slices, batch_stats: str) -> list[tuple[Any, Slices]]:
    """What is given to the model at once: (samples, sub-batches as slices of these samples)."""
    if batch_stats == "batch":
        return [(cut(batch, slice(None)), slices)]
    return [(cut(batch, part), [slice(None)]) for part in slices]


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Every parameter that requires a gradient, tied ones once."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def sub_batch_gradients(
    model: nn.Module,
    batch: Any,
    slices: Slices,
    loss_fn: Callable | None = F.cross_entropy,
    compute_loss: Callable | None = None,
    batch_stats: str = "sub-batch",
) -> list[dict[str, Tensor]]:
    """The gradient of each sub-batch's mean loss by name; zero where a parameter is unused."""
    gradients = []
    for samples, parts in forward_plan(batch, slices, batch_stats):
        fresh = training_copy(model)
        parameters = trainable(fresh)
        with torch.compiler.set_stance("force_eager"):
            losses = Losses(fresh, loss_fn, compute_loss)(samples, parts)
        for loss in losses:
            grads = torch.autograd.grad(
                loss, list(parameters.values()), retain_graph=True, allow_unused=True
            )
            gradients.append({
                name: torch.zeros_like(p) if grad is None else grad.to_dense()
                for (name, p), grad in zip(parameters.items(), grads, strict=True)
            })  # fmt: skip
    return gradients


def gram(model: nn.Module, batch: Any, slices: Slices, *args: Any, **options: Any) -> Tensor:
    """K[i, j] = <g_i, g_j>; the arguments after `slices` are those of `sub_batch_gradients`."""
    gradients = sub_batch_gradients(model, batch, slices, *args, **options)
    G = torch.stack([torch.cat([g.flatten() for g in grads.values()]) for grads in gradients])
    return G @ G.T


def layer_grams(
    model: nn.Module, batch: Any, slices: Slices, *args: Any, **options: Any
) -> dict[str, Tensor]:
    """The same for each parameter by itself."""
    gradients = sub_batch_gradients(model, batch, slices, *args, **options)
    stacked = {name: torch.stack([g[name].flatten() for g in gradients]) for name in gradients[0]}
    return {name: G @ G.T for name, G in stacked.items()}


# --- Measures ---


def norms(K: Tensor) -> Tensor:
    """The norm of each gradient."""
    return K.diagonal().sqrt()


def norm(K: Tensor) -> Tensor:
    """GN: Alg. 1 line 4."""
    return norms(K).mean()


def cosine(K: Tensor) -> Tensor:
    """GC: Alg. 1 line 6, over all pairs."""
    D = len(K)
    return sum(K[i, j] / (K[i, i] * K[j, j]).sqrt() for i in range(D) for j in range(D)) / D**2


def norm_ratio(K: Tensor) -> Tensor:
    """Largest by smallest norm."""
    return norms(K).max() / norms(K).min()


def variance(K: Tensor) -> Tensor:
    """Mean squared distance of the gradients from their mean."""
    return K.diagonal().mean() - K.mean()


def theta(K: Tensor, smoothness: float = 1.0) -> Tensor:
    """Eq. 4."""
    n, g_max = len(K), norms(K).max()
    cosines = K / torch.outer(norms(K), norms(K))
    total = sum(norm_ratio(K) - cosines[i, j] for i in range(n) for j in range(n))
    return smoothness * g_max**2 / n * total


def agreement(K: Tensor) -> Tensor:
    """The mean cosine of pairs i != j, from the Gram matrix of the gradients h_d."""
    D, pairs = len(K), []
    for i in range(D):
        for j in range(D):
            if i != j:
                known = K[i, i] > 0 and K[j, j] > 0
                pairs.append(K[i, j] / (K[i, i] * K[j, j]).sqrt() if known else 0 * K[i, j])
    return torch.stack(pairs).mean()


def with_permuted_targets(batch: Any, count: int = 4) -> list:
    """The batch with targets of other samples: moved by multiples of B / (count + 1)."""
    B = len(next(leaves(batch)))
    count = min(count, B - 1)
    orders = [[(i + k * B // (count + 1)) % B for i in range(B)] for k in range(1, count + 1)]
    if isinstance(batch, dict):
        return [{**batch, "labels": batch["labels"][order]} for order in orders]
    return [(batch[0], batch[1][order]) for order in orders]


def contrast_gram(
    model: nn.Module, batch: Any, slices: Slices, *args: Any, **options: Any
) -> Tensor:
    """The Gram matrix of h_d: the gradients minus the mean of those with permuted targets."""

    def flat(batch: Any) -> Tensor:
        found = sub_batch_gradients(model, batch, slices, *args, **options)
        return torch.stack([torch.cat([g.flatten() for g in grads.values()]) for grads in found])

    others = with_permuted_targets(batch)
    H = flat(batch) - sum(flat(other) for other in others) / len(others)
    return H @ H.T


def gradsign(model: nn.Module, batch: Any, *args: Any, **options: Any) -> float:
    """sum_k |sum_i sign(g_ik)| over sample-wise gradients."""
    B = len(next(leaves(batch)))
    samples = [slice(i, i + 1) for i in range(B)]
    gradients = sub_batch_gradients(model, batch, samples, *args, **options)
    signs = [torch.cat([g.flatten() for g in grads.values()]).sign() for grads in gradients]
    return torch.stack(signs).sum(0).abs().sum().item()


def leaves(batch: Any) -> Iterator[Tensor]:
    """The tensors of a nested batch."""
    if isinstance(batch, Tensor):
        yield batch
    else:
        for value in batch.values() if isinstance(batch, dict) else batch:
            yield from leaves(value)


# --- The derivative by the scales ---


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


# --- The algorithms ---


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
