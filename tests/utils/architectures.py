"""A zoo of small awkward modules, each with a batch and a loss."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

CLASSES = 3
VOCABULARY = 11


@dataclass(frozen=True)
class Case:
    """A model, its data and its loss; the test seeds torch before it calls `build`."""

    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[int], Any]
    loss_fn: Callable | None = F.cross_entropy  # for (inputs, targets) batches
    compute_loss: Callable | None = None  # compute_loss(model, batch), instead of loss_fn
    independent: bool = True  # samples don't see each other, in train mode
    smooth: bool = True  # the gradient is differentiable: finite differences work


# --- Batches ---


def vectors(*shape: int, dtype: torch.dtype = torch.float64) -> Callable[[int], Any]:
    """Normal inputs of this shape (without the batch dimension), and class indices."""

    def batch(n: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(n)
        inputs = torch.randn(n, *shape, generator=generator, dtype=torch.float64).to(dtype)
        return inputs, torch.randint(CLASSES, (n,), generator=generator)

    return batch


def tokens(n: int) -> tuple[Tensor, Tensor]:
    """Five integer tokens a sample, the padding token 0 among them, and the next token."""
    generator = torch.Generator().manual_seed(n)
    sequences = torch.randint(VOCABULARY, (n, 6), generator=generator)
    return sequences[:, :-1], sequences[:, -1]


def token_labels(n: int) -> tuple[Tensor, Tensor]:
    """The same tokens, and class indices."""
    return tokens(n)[0], tokens(n)[1] % CLASSES


def regression(n: int) -> tuple[Tensor, Tensor]:
    """Inputs of size 4 and real targets of size 2."""
    generator = torch.Generator().manual_seed(n)
    inputs, targets = torch.randn(2, n, 4, generator=generator, dtype=torch.float64)
    return inputs, targets[:, :2]


def pairs(n: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """The inputs are one tuple: `model((left, right))`."""
    inputs, targets = vectors(4)(n)
    return (inputs, inputs.flip(1).square()), targets


def dictionary(n: int) -> dict[str, Any]:
    """A nested batch with no (inputs, targets) in sight; it goes in by `model(**batch)`."""
    ids, labels = token_labels(n)
    return {"ids": ids, "extra": {"mask": ids != 0}, "labels": labels}


# --- Parameters ---


class TiedEmbedding(nn.Module):
    """The output head is the embedding's own weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 6)
        self.mix = nn.Linear(6, 6)
        self.head = nn.Linear(6, VOCABULARY)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.mix(self.embedding(ids))).mean(1))


class TiedLinear(nn.Module):
    """Two Linear modules share one Parameter, under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Unused(nn.Module):
    """One parameter never meets the loss, and one has no elements."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(5, 2)
        self.empty = nn.Parameter(torch.zeros(0, 4))
        self.body = plain()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(torch.cat([x, self.empty.to(x)]))


class Residual(nn.Module):
    """A residual branch and a head."""

    def __init__(self, *branch: nn.Module) -> None:
        super().__init__()
        self.branch = nn.Sequential(*branch)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(x + self.branch(x)))


class Bare(nn.Module):
    """Parameters on the root itself, named neither weight nor bias; one is not contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(6, 4).t())
        self.out = nn.Parameter(torch.randn(6, CLASSES) / 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.matrix) @ self.out


class Scaled(nn.Module):
    """The output times a factor: a 0-dimensional parameter, 0 (constant loss), or nan."""

    def __init__(self, factor: float | nn.Parameter) -> None:
        super().__init__()
        self.body = plain()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) * self.factor


class UsedTwice(nn.Module):
    """One sub-module runs twice in a forward, and is registered under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.again = self.step
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.again(self.step(x)))


class Containers(nn.Module):
    """Parameters live in a ParameterList and a ParameterDict, under numbers and odd keys."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(4, 4) / 2 for _ in range(3)])
        self.named = nn.ParameterDict({"to logits": torch.randn(4, CLASSES), "äöü": torch.ones(4)})

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = F.silu(x @ weight)
        return (x * self.named["äöü"]) @ self.named["to logits"]


class DeepResidual(nn.Module):
    """24 residual blocks without normalization: the gradient explodes from Kaiming."""

    def __init__(self, width: int = 7, blocks: int = 24) -> None:
        super().__init__()
        self.stem = nn.Linear(4, width)
        self.inner = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.outer = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.head = nn.Linear(width, CLASSES)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.kaiming_normal_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for inner, outer in zip(self.inner, self.outer, strict=True):
            x = x + outer(F.relu(inner(x)))
        return self.head(x)


def plain(activation: nn.Module | None = None, size: int = 4) -> nn.Sequential:
    """Two Linear layers: nothing is awkward here."""
    return nn.Sequential(nn.Linear(size, 6), activation or nn.Tanh(), nn.Linear(6, CLASSES))


def frozen() -> nn.Module:
    """A whole layer and one more bias do not require gradients."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.GELU(), plain(size=6))
    model[0].requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


def zero_bias() -> nn.Module:
    """Every bias is all zero, as after most initializations."""
    model = plain()
    nn.init.zeros_(model[0].bias)
    nn.init.zeros_(model[2].bias)
    return model


def zero_gain() -> nn.Module:
    """A zero gain ends the residual branch, so the branch has a gradient of exactly zero."""
    model = Residual(nn.Linear(4, 4), nn.Tanh(), nn.LayerNorm(4))
    nn.init.zeros_(model.branch[2].weight)
    return model


def nested() -> nn.Module:
    """Sequentials in Sequentials, with an empty one."""
    inner = nn.Sequential(nn.Sequential(nn.Linear(4, 5), nn.ELU()), nn.Sequential())
    return nn.Sequential(inner, nn.Sequential(nn.Sequential(nn.Linear(5, CLASSES))))


# --- Operators ---


class InPlace(nn.Module):
    """Activations and sums overwrite their inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True))
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.head(self.second(x).add_(x).relu_().mean((2, 3)))


class Normalized(nn.Module):
    """A normalization layer, with gains and biases moved off 1 and 0, follows a convolution."""

    def __init__(self, convolution: nn.Module, norm: nn.Module, activation: nn.Module) -> None:
        super().__init__()
        self.convolution, self.norm, self.activation = convolution, norm, activation
        self.head = nn.Linear(4, CLASSES)
        for parameter in norm.parameters():
            nn.init.uniform_(parameter, 0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.activation(self.norm(self.convolution(x)))
        return self.head(x if x.ndim == 2 else x.flatten(2).square().mean(2))


class TwoTowers(nn.Module):
    """The input is a tuple, and a Bilinear layer joins its halves."""

    def __init__(self) -> None:
        super().__init__()
        self.join = nn.Bilinear(4, 4, 5)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        return self.head(torch.sigmoid(self.join(*inputs)))


class Tokens(nn.Module):
    """Integer inputs: no gradient can flow to them, and a padding row gets none."""

    def __init__(self, embedding: nn.Module) -> None:
        super().__init__()
        self.embedding = embedding
        self.head = plain(size=6)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        return self.head(x if x.ndim == 2 else x.mean(1))


class Sequences(nn.Module):
    """nn.LSTM and nn.GRU keep a private list of their weights, and dropout in a number."""

    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        return self.head((x[0] if isinstance(x, tuple) else x).mean(1))


class Attention(nn.Module):
    """nn.MultiheadAttention calls a fused kernel, and its dropout is a number, not a module."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x, x, x, need_weights=False)[0].square().mean(1))


class FusedAttention(nn.Module):
    """F.scaled_dot_product_attention, causal: no double backward but in its math form."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24, bias=False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, 2, 4)).transpose(1, 3).unbind(2)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.head(attended.transpose(1, 2).flatten(2).mean(1))


def transformer() -> nn.Module:
    """Fused attention, and dropout in three places of a layer."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.1, activation="gelu", batch_first=True)
    return Sequences(nn.TransformerEncoder(layer, num_layers=2), 8)


class Checkpointed(nn.Module):
    """Part of the forward is run again, from the module's own attributes, in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh())
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(checkpoint(self.first, x, use_reentrant=False))


def weight_norm(wrap: Callable[[nn.Module], nn.Module]) -> nn.Module:
    """The weight is computed from other parameters in each forward."""
    return nn.Sequential(wrap(nn.Linear(4, 6)), nn.Tanh(), wrap(nn.Linear(6, CLASSES)))


def old_weight_norm() -> nn.Module:
    """The weight is a plain attribute with a graph behind it, so `deepcopy` of the model fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return weight_norm(torch.nn.utils.weight_norm)


def compiled() -> nn.Module:
    """Compiled as a whole: every name begins with `_orig_mod.`, and no double backward."""
    return torch.compile(plain().double(), backend="aot_eager")  # type: ignore[return-value]


def compiled_inside() -> nn.Module:
    """One sub-module of a plain model is compiled."""
    body = torch.compile(plain(nn.Softplus()).double(), backend="eager")
    return nn.Sequential(body, nn.Tanh(), nn.Linear(CLASSES, CLASSES))


# --- State and randomness ---


class FunctionalDropout(nn.Module):
    """Dropout without a module, in a module that has parameters of its own."""

    def __init__(self, p: float = 0.3) -> None:
        super().__init__()
        self.p = p
        self.weight = nn.Parameter(torch.randn(6, 4) / 2)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(torch.tanh(x @ self.weight.t()), self.p, self.training))


class DropPath(nn.Module):
    """Drops whole samples of a residual branch at random; not an nn.Dropout of any kind."""

    def __init__(self, drop_prob: float = 0.3) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        keep = 1 - self.drop_prob
        return x * x.new_empty(x.shape[0], 1).bernoulli_(keep) / keep


class RunningBuffers(nn.Module):
    """A forward changes one buffer in place and another by reassignment."""

    in_place: Tensor
    reassigned: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.body = plain()
        self.register_buffer("in_place", torch.zeros(4))
        self.register_buffer("reassigned", torch.zeros((), dtype=torch.long), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        shift = 0.1 * self.in_place.clone() + 0.1 * self.reassigned
        self.in_place.add_(x.detach().mean(0))
        self.reassigned = self.reassigned + 1
        return self.body(x + shift)


class Counting(nn.Module):
    """A forward changes a plain attribute, and keeps its last output."""

    def __init__(self) -> None:
        super().__init__()
        self.body = plain(nn.SiLU())
        self.calls = 0
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = self.body(x)
        return self.last


def batch_norm_1d() -> nn.Module:
    """Samples see each other, and the running statistics change in a forward."""
    return Normalized(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh())


def eval_batch_norm() -> nn.Module:
    """The user left the model in eval mode."""
    return batch_norm_1d().eval()


# --- Losses ---


class DictOutput(nn.Module):
    """The output is a dict with the loss's parts in it, and a method takes part in the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.body = plain()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.body(x), "features": self.body[0](x)}

    def penalty(self) -> Tensor:
        return torch.stack([p.square().sum() for p in self.parameters()]).sum()


class DictBatch(nn.Module):
    """Called by keywords, like a Hugging Face model; returns per-sample losses."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 6)
        self.head = plain(size=6)

    def forward(self, *, ids: Tensor, extra: dict, labels: Tensor) -> dict[str, Tensor]:
        embedded = self.embedding(ids) * extra["mask"].unsqueeze(-1)
        losses = F.cross_entropy(self.head(embedded.mean(1)), labels, reduction="none")
        return {"losses": losses}


def penalized_loss(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """A scalar: cross entropy of a dict output, plus a term in the parameters alone."""
    outputs = model(batch[0])
    loss = F.cross_entropy(outputs["logits"], batch[1]) + 0.1 * outputs["features"].square().mean()
    return loss + 0.01 * model.penalty()


def per_sample_loss(model: Any, batch: dict[str, Any]) -> Tensor:
    """One loss per sample."""
    return model(**batch)["losses"]


def contrastive_loss(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Each sample is to find its noisy self among the samples of the batch."""
    first, second = F.normalize(model(batch[0]), dim=1), F.normalize(model(batch[0] ** 2), dim=1)
    return F.cross_entropy(first @ second.t(), torch.arange(len(first), device=first.device))


def penalty_loss(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """A gradient penalty: the loss takes a gradient by the inputs."""
    x = batch[0].requires_grad_()
    output = model(x)
    (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    return F.cross_entropy(output, batch[1]) + (slope.norm(dim=1) - 1).square().mean()


def transformed_loss(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """A gradient for every sample by ``torch.func``, as physics-informed networks take it."""
    slopes = torch.func.vmap(torch.func.grad(lambda x: model(x[None]).square().sum()))(batch[0])
    return F.cross_entropy(model(batch[0]), batch[1]) + slopes.square().mean()


def tangent_loss(model: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """A directional derivative by forward-mode differentiation."""
    output, tangent = torch.func.jvp(model, (batch[0],), (torch.ones_like(batch[0]),))
    return F.cross_entropy(output, batch[1]) + tangent.square().mean()


class WrittenNorm(nn.Module):
    """Layer normalization by plain operators; torch's own has a wrong third derivative (2.13)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        return centred * (variance + 1e-5).rsqrt() * self.weight + self.bias


def smooth(norm: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), norm, nn.Softplus(), nn.Linear(6, CLASSES))


def low_precision(name: str, dtype: torch.dtype) -> Case:
    """Parameters and inputs are not float64."""

    def build() -> nn.Module:
        first, head = nn.Linear(4, 6), nn.Linear(6, CLASSES)
        return nn.Sequential(first, nn.LayerNorm(6), nn.GELU(), head).to(dtype)

    return Case(name, build, vectors(4, dtype=dtype))


# --- The list ---


def _double(name: str, factory: Callable[[], nn.Module], batch: Callable, **fields: Any) -> Case:
    return Case(name, lambda: factory().double(), batch, **fields)


_vector, _image, _series = vectors(4), vectors(2, 6, 6), vectors(5, 8)
_custom: dict[str, Any] = {"loss_fn": None}
_seen: dict[str, Any] = {"independent": False}
_relu: dict[str, Any] = {"smooth": False}

ZOO: list[Case] = [
    _double("plain", plain, _vector),
    _double("relu", lambda: plain(nn.ReLU()), _vector, **_relu),
    _double("regression", lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)),
            regression, loss_fn=F.mse_loss),
    _double("tied_embedding", TiedEmbedding, tokens),
    _double("tied_linear", TiedLinear, _vector),
    _double("frozen", frozen, _vector),
    _double("unused", Unused, _vector),
    _double("zero_bias", zero_bias, _vector),
    _double("zero_gain", zero_gain, _vector),
    _double("bare", Bare, _vector),
    _double("zero_dimensional", lambda: Scaled(nn.Parameter(torch.tensor(1.5))), _vector),
    _double("used_twice", UsedTwice, _vector),
    _double("containers", Containers, _vector),
    _double("nested", nested, _vector),
    _double("deep_residual", DeepResidual, _vector, **_relu),
    _double("in_place", InPlace, _image, **_relu),
    _double("batch_norm_1d", batch_norm_1d, _vector, **_seen),
    _double("batch_norm_2d", lambda: Normalized(nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4),
            nn.ReLU()), _image, **_seen, **_relu),
    _double("batch_norm_3d", lambda: Normalized(nn.Conv3d(1, 4, 2), nn.BatchNorm3d(4), nn.Tanh()),
            vectors(1, 3, 3, 3), **_seen),
    _double("eval_batch_norm", eval_batch_norm, _vector, **_seen),
    _double("group_norm", lambda: Normalized(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.GELU()),
            _image),
    _double("layer_norm", lambda: Normalized(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU()),
            _vector, **_relu),
    _double("rms_norm", lambda: Normalized(nn.Linear(4, 4), nn.RMSNorm(4), nn.SiLU()), _vector),
    _double("instance_norm", lambda: Normalized(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(
            4, affine=True, track_running_stats=True), nn.Tanh()), _image),
    _double("conv_1d", lambda: Normalized(nn.Conv1d(5, 4, 3), nn.Identity(), nn.Tanh()),
            _series),
    _double("conv_transpose", lambda: Normalized(nn.ConvTranspose2d(2, 4, 3, stride=2),
            nn.Identity(), nn.Softplus()), vectors(2, 3, 3)),
    _double("bilinear", TwoTowers, pairs),
    _double("embedding", lambda: Tokens(nn.Embedding(VOCABULARY, 6, padding_idx=0)), token_labels),
    _double("sparse_embedding", lambda: Tokens(nn.Embedding(VOCABULARY, 6, sparse=True)),
            token_labels),
    _double("weight_norm", lambda: weight_norm(parametrizations.weight_norm), _vector),
    _double("spectral_norm", lambda: weight_norm(parametrizations.spectral_norm), _vector),
    _double("old_weight_norm", old_weight_norm, _vector),
    _double("lstm", lambda: Sequences(nn.LSTM(8, 10, batch_first=True), 10), _series),
    _double("gru", lambda: Sequences(nn.GRU(8, 5, num_layers=2, dropout=0.1, batch_first=True,
            bidirectional=True), 10), _series),
    _double("attention", Attention, _series),
    _double("fused_attention", FusedAttention, _series),
    _double("transformer", transformer, _series),
    _double("checkpoint", Checkpointed, _vector),
    _double("compiled", compiled, _vector),
    _double("compiled_inside", compiled_inside, _vector),
    _double("dropout", lambda: plain(nn.Sequential(nn.Tanh(), nn.Dropout(0.3))), _vector),
    _double("functional_dropout", FunctionalDropout, _vector),
    _double("drop_path", lambda: Residual(nn.Linear(4, 4), nn.Tanh(), DropPath()), _vector),
    _double("running_buffers", RunningBuffers, _vector),
    _double("counting", Counting, _vector),
    _double("dict_output", DictOutput, _vector, compute_loss=penalized_loss, **_custom),
    _double("dict_batch", DictBatch, dictionary, compute_loss=per_sample_loss, **_custom),
    _double("gradient_penalty", plain, _vector, compute_loss=penalty_loss, **_custom),
    _double("written_norm_penalty", lambda: smooth(WrittenNorm(6)), _vector,
            compute_loss=penalty_loss, **_custom),
    _double("func_grad", lambda: smooth(nn.GroupNorm(2, 6)), _vector,
            compute_loss=transformed_loss, **_custom),
    _double("func_jvp", plain, _vector, compute_loss=tangent_loss, **_custom),
    _double("contrastive", plain, _vector, compute_loss=contrastive_loss, **_custom, **_seen),
    low_precision("float32", torch.float32),
    low_precision("bfloat16", torch.bfloat16),
]  # fmt: skip


INNER_GRADIENT = (penalty_loss, transformed_loss, tangent_loss)  # losses that take a gradient


def case(name: str) -> Case:
    """The case of this name."""
    return next(case for case in [*ZOO, *NO_DOUBLE_BACKWARD, *BROKEN] if case.name == name)


# --- Cases that must end in an error ---


def cdist_has_double_backward() -> bool:
    """Since torch 2.15. Not to be called on import: the test device has to be registered first."""
    points = torch.randn(2, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(
        torch.cdist(points, points + 1).sum(), points, create_graph=True
    )
    try:
        gradient.sum().backward()
    except RuntimeError:
        return False
    return True


class Distances(nn.Module):
    """torch.cdist has no double backward before torch 2.15."""

    def __init__(self) -> None:
        super().__init__()
        self.centers = nn.Parameter(torch.randn(CLASSES, 4))

    def forward(self, x: Tensor) -> Tensor:
        return -torch.cdist(x, self.centers)


class CubeOnce(torch.autograd.Function):
    """``x ** 3``, whose backward cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return 3 * ctx.saved_tensors[0] ** 2 * grad


class OnceDifferentiable(nn.Module):
    """A custom function whose backward can't be differentiated."""

    def __init__(self) -> None:
        super().__init__()
        self.body = plain()

    def forward(self, x: Tensor) -> Tensor:
        return CubeOnce.apply(self.body(x))


def lazy() -> nn.Module:
    """A LazyLinear that has seen no data has no parameters to scale yet."""
    return nn.Sequential(nn.LazyLinear(6), nn.Tanh(), nn.Linear(6, CLASSES))


NO_DOUBLE_BACKWARD: list[Case] = [
    _double("cdist", Distances, _vector),
    _double("once_differentiable", OnceDifferentiable, _vector),
    _double("embedding_bag", lambda: Tokens(nn.EmbeddingBag(VOCABULARY, 6)), token_labels),
]
LAZY = _double("lazy", lazy, _vector)
CONSTANT_LOSS = _double("constant_loss", lambda: Scaled(0.0), _vector)
NAN_LOSS = _double("nan_loss", lambda: Scaled(float("nan")), _vector)
BROKEN: list[Case] = [LAZY, CONSTANT_LOSS, NAN_LOSS]
