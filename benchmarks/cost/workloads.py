"""Models, batches and losses of `make bench`: the networks that people have, and our own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.cost.cases import MODELS
from benchmarks.text.char_gpt import CONTEXT, GPT
from neuroinit.experiments import vision
from neuroinit.experiments.models.small_networks import residual_mlp

CLASSES, LETTERS, TOKENS, LENGTH = 10, 65, 5000, 64


@dataclass(frozen=True)
class Workload:
    """A model, a batch, and the arguments of `optimize` that say what the loss is."""

    model: nn.Module
    batch: Any
    arguments: dict[str, Any]

    def loss(self) -> Tensor:
        """The mean loss of the batch."""
        if "compute_loss" in self.arguments:
            found: Tensor = self.arguments["compute_loss"](self.model, self.batch)
            return found
        inputs, targets = self.batch
        loss: Tensor = self.arguments["loss_fn"](self.model(inputs), targets)
        return loss


def workload(name: str, size: int) -> Workload:
    """A case's model with a random batch of a size."""
    if name in REAL:
        return REAL[name](size)
    return Workload(MODELS[name](), images(size, 32), {"loss_fn": F.cross_entropy})


def images(size: int, pixels: int) -> tuple[Tensor, Tensor]:
    """Random images and classes."""
    return torch.randn(size, 3, pixels, pixels), torch.randint(CLASSES, (size,))


def _timm(name: str, pixels: int, **options: Any) -> Callable[[int], Workload]:
    def make(size: int) -> Workload:
        model = vision.timm().create_model(name, num_classes=CLASSES, **options)
        return Workload(model, images(size, pixels), {"loss_fn": F.cross_entropy})

    return make


def _vit(size: int) -> Workload:
    model = vision.timm().create_model(
        "vit_tiny_patch16_224", img_size=64, patch_size=8, num_classes=CLASSES
    )
    inputs, targets = images(size, 64)

    def compute_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch["image"]), batch["label"])

    batch = {"image": inputs, "label": targets}
    return Workload(model, batch, {"compute_loss": compute_loss})


def _gpt2(size: int) -> Workload:
    vision.torchvision()  # transformers imports it
    from transformers import GPT2Config, GPT2LMHeadModel

    settings: dict[str, Any] = {"n_layer": 6, "n_embd": 384, "n_head": 6, "n_positions": LENGTH}
    ends: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=TOKENS, **settings, **ends))
    ids = torch.randint(TOKENS, (size, LENGTH))

    def compute_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        found: Tensor = model(**batch).loss
        return found

    return Workload(model, {"input_ids": ids, "labels": ids}, {"compute_loss": compute_loss})


class Recurrent(nn.Module):
    """Two layers of an LSTM and a classifier of the last output."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(16, 64, 2, batch_first=True), nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Classes of sequences ``(samples, time, 16)``."""
        found: Tensor = self.head(self.lstm(x)[0][:, -1])
        return found


def _lstm(size: int) -> Workload:
    batch = torch.randn(size, 32, 16), torch.randint(CLASSES, (size,))
    return Workload(Recurrent(), batch, {"loss_fn": F.cross_entropy})


def _demo(size: int) -> Workload:
    batch = torch.rand(size, 1, 8, 8), torch.randint(CLASSES, (size,))
    return Workload(residual_mlp(24), batch, {"loss_fn": F.cross_entropy})


def _text(size: int) -> Workload:
    ids = torch.randint(LETTERS, (size, CONTEXT + 1))

    def loss_fn(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output.flatten(0, 1), target.flatten())

    batch = ids[:, :-1].clone(), ids[:, 1:].clone()
    return Workload(GPT(LETTERS, 12, "post"), batch, {"loss_fn": loss_fn})


# The names are those of `cases.PEOPLES`
REAL: dict[str, Callable[[int], Workload]] = {
    "ResNet-50, 64 pixels": _timm("resnet50", 64, zero_init_last=False),
    "ConvNeXt-atto, 64 pixels": _timm("convnext_atto", 64),
    "EfficientNet-B0, 64 pixels": _timm("efficientnet_b0", 64),
    "ViT-tiny, compute_loss": _vit,
    "GPT-2, Hugging Face": _gpt2,
    "LSTM, 2 layers": _lstm,
    "demo, 24 blocks": _demo,
    "text GPT, 12 blocks": _text,
}
