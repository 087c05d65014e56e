"""Small layers in float64 with their inputs."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Case:
    """A layer, the shape of its input, and whether one pass over pieces keeps them apart."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    separable: bool = True

    def make(self, first: bool = False) -> tuple[nn.Module, Tensor]:
        torch.manual_seed(0)
        model = Between(self.build(), first).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.rand_like(parameter))
        return model, torch.randn(self.shape, dtype=torch.float64)


class Between(nn.Module):
    """A layer between two scalars, so that gradients come in and go on; or the first of all.

    The result has one value for every sample.
    """

    def __init__(self, layer: nn.Module, first: bool) -> None:
        super().__init__()
        self.before = None if first else nn.Parameter(torch.rand(()) + 0.5)
        self.layer = layer
        self.after = nn.Parameter(torch.rand(()) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.before is None else torch.sin(self.before * x)
        y = self.after * torch.tanh(self.layer(x))
        return (
            (y * torch.linspace(0.5, 2, y[0].numel(), dtype=y.dtype).view_as(y[0]))
            .square()
            .flatten(1)
            .sum(1)
        )


class SelfAttention(nn.Module):
    def __init__(self, **options: bool) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(4, 2, batch_first=True, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


CASES = {
    "linear": Case(lambda: nn.Linear(4, 3), (6, 4)),
    "linear_no_bias": Case(lambda: nn.Linear(4, 3, bias=False), (6, 4)),
    "linear_tokens": Case(lambda: nn.Linear(4, 3), (6, 2, 3, 4)),
    "conv1d": Case(lambda: nn.Conv1d(2, 3, 3, padding=1), (6, 2, 7)),
    "conv2d": Case(lambda: nn.Conv2d(2, 3, 3), (6, 2, 6, 6)),
    "conv2d_stride": Case(
        lambda: nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False), (6, 2, 7, 6)
    ),
    "conv2d_dilated_groups": Case(
        lambda: nn.Conv2d(4, 4, (3, 2), dilation=2, groups=2), (6, 4, 8, 8)
    ),
    "conv2d_same": Case(lambda: nn.Conv2d(2, 3, 3, padding="same"), (6, 2, 5, 5), separable=False),
    "conv2d_circular": Case(
        lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (6, 2, 5, 5)
    ),
    "conv2d_channels_last": Case(
        lambda: nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last), (6, 2, 5, 5)
    ),
    "conv3d": Case(lambda: nn.Conv3d(2, 3, 2), (6, 2, 4, 4, 3)),
    "transposed_1d": Case(lambda: nn.ConvTranspose1d(2, 3, 3, dilation=2), (6, 2, 4)),
    "transposed_2d": Case(
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, padding=1, groups=2),
        (6, 4, 4, 4),
    ),
    "transposed_groups": Case(
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2), (6, 4, 4, 4)
    ),
    "batch_norm_1d": Case(lambda: nn.BatchNorm1d(4), (6, 4), separable=False),
    "batch_norm_tokens": Case(lambda: nn.BatchNorm1d(4), (6, 4, 3), separable=False),
    "batch_norm_2d": Case(lambda: nn.BatchNorm2d(4), (6, 4, 3, 3), separable=False),
    "batch_norm_no_gain": Case(
        lambda: nn.BatchNorm2d(4, affine=False, track_running_stats=False),
        (6, 4, 3, 3),
        separable=False,
    ),
    "batch_norm_no_track": Case(
        lambda: nn.BatchNorm2d(4, track_running_stats=False), (6, 4, 3, 3), separable=False
    ),
    "batch_norm_large_eps": Case(
        lambda: nn.BatchNorm2d(4, eps=0.5), (6, 4, 3, 3), separable=False
    ),
    "layer_norm": Case(lambda: nn.LayerNorm(4), (6, 4)),
    "layer_norm_tokens": Case(lambda: nn.LayerNorm(4), (6, 5, 4)),
    "layer_norm_image": Case(lambda: nn.LayerNorm((2, 3, 4)), (6, 2, 3, 4)),
    "layer_norm_no_bias": Case(lambda: nn.LayerNorm(4, bias=False), (6, 4)),
    "layer_norm_no_gain": Case(lambda: nn.LayerNorm(4, elementwise_affine=False), (6, 4)),
    "layer_norm_large_eps": Case(lambda: nn.LayerNorm(4, eps=0.5), (6, 4)),
    "instance_norm": Case(lambda: nn.InstanceNorm1d(3), (6, 3, 4)),
    "instance_norm_affine": Case(lambda: nn.InstanceNorm2d(3, affine=True, eps=0.1), (6, 3, 2, 3)),
    "group_norm": Case(lambda: nn.GroupNorm(2, 4, eps=0.1), (6, 4, 3)),
    "rms_norm": Case(lambda: nn.RMSNorm(4, eps=0.1), (6, 5, 4)),
    "attention": Case(SelfAttention, (6, 3, 4)),
    "attention_extra_token": Case(
        lambda: SelfAttention(add_bias_kv=True), (6, 3, 4), separable=False
    ),
    "gelu": Case(lambda: nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 3)), (6, 4)),
    "relu_in_place": Case(
        lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)), (6, 4)
    ),
    "conv_batch_norm": Case(
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3),
            nn.BatchNorm2d(4, track_running_stats=False),
            nn.Tanh(),
            nn.Conv2d(4, 2, 2),
        ),
        (6, 2, 5, 5),
        separable=False,
    ),
    "pre_norm_mlp": Case(
        lambda: nn.Sequential(
            nn.LayerNorm(4), nn.Linear(4, 6), nn.SiLU(), nn.LayerNorm(6), nn.Linear(6, 3)
        ),
        (6, 4),
    ),
}  # fmt: skip
