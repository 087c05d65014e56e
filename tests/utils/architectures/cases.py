"""The list of cases."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from tests.utils.architectures.batches import (
    VOCABULARY,
    Case,
    dictionary,
    double,
    pairs,
    regression,
    token_labels,
    tokens,
    vectors,
)
from tests.utils.architectures.broken import BROKEN, NO_DOUBLE_BACKWARD
from tests.utils.architectures.losses import (
    DictBatch,
    DictOutput,
    WrittenNorm,
    contrastive_loss,
    low_precision,
    penalized_loss,
    penalty_loss,
    per_sample_loss,
    smooth,
    tangent_loss,
    transformed_loss,
)
from tests.utils.architectures.operators import (
    Attention,
    Checkpointed,
    FusedAttention,
    InPlace,
    Normalized,
    Sequences,
    Tokens,
    TwoTowers,
    compiled,
    compiled_inside,
    old_weight_norm,
    transformer,
    weight_norm,
)
from tests.utils.architectures.parameters import (
    Bare,
    Containers,
    DeepResidual,
    Residual,
    Scaled,
    TiedEmbedding,
    TiedLinear,
    Unused,
    UsedTwice,
    frozen,
    nested,
    plain,
    zero_bias,
    zero_gain,
)
from tests.utils.architectures.state import (
    Counting,
    DropPath,
    FunctionalDropout,
    RunningBuffers,
    batch_norm_1d,
    eval_batch_norm,
)

_vector, _image, _series = vectors(4), vectors(2, 6, 6), vectors(5, 8)
_custom: dict[str, Any] = {"loss_fn": None}
_seen: dict[str, Any] = {"independent": False}
_relu: dict[str, Any] = {"smooth": False}

ZOO: list[Case] = [
    double("plain", plain, _vector),
    double("relu", lambda: plain(nn.ReLU()), _vector, **_relu),
    double("regression", lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)),
            regression, loss_fn=F.mse_loss),
    double("tied_embedding", TiedEmbedding, tokens),
    double("tied_linear", TiedLinear, _vector),
    double("frozen", frozen, _vector),
    double("unused", Unused, _vector),
    double("zero_bias", zero_bias, _vector),
    double("zero_gain", zero_gain, _vector),
    double("bare", Bare, _vector),
    double("zero_dimensional", lambda: Scaled(nn.Parameter(torch.tensor(1.5))), _vector),
    double("used_twice", UsedTwice, _vector),
    double("containers", Containers, _vector),
    double("nested", nested, _vector),
    double("deep_residual", DeepResidual, _vector, **_relu),
    double("in_place", InPlace, _image, **_relu),
    double("batch_norm_1d", batch_norm_1d, _vector, **_seen),
    double("batch_norm_2d", lambda: Normalized(nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4),
            nn.ReLU()), _image, **_seen, **_relu),
    double("batch_norm_3d", lambda: Normalized(nn.Conv3d(1, 4, 2), nn.BatchNorm3d(4), nn.Tanh()),
            vectors(1, 3, 3, 3), **_seen),
    double("eval_batch_norm", eval_batch_norm, _vector, **_seen),
    double("group_norm", lambda: Normalized(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.GELU()),
            _image),
    double("layer_norm", lambda: Normalized(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU()),
            _vector, **_relu),
    double("rms_norm", lambda: Normalized(nn.Linear(4, 4), nn.RMSNorm(4), nn.SiLU()), _vector),
    double("instance_norm", lambda: Normalized(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(
            4, affine=True, track_running_stats=True), nn.Tanh()), _image),
    double("conv_1d", lambda: Normalized(nn.Conv1d(5, 4, 3), nn.Identity(), nn.Tanh()),
            _series),
    double("conv_transpose", lambda: Normalized(nn.ConvTranspose2d(2, 4, 3, stride=2),
            nn.Identity(), nn.Softplus()), vectors(2, 3, 3)),
    double("bilinear", TwoTowers, pairs),
    double("embedding", lambda: Tokens(nn.Embedding(VOCABULARY, 6, padding_idx=0)), token_labels),
    double("sparse_embedding", lambda: Tokens(nn.Embedding(VOCABULARY, 6, sparse=True)),
            token_labels),
    double("weight_norm", lambda: weight_norm(parametrizations.weight_norm), _vector),
    double("spectral_norm", lambda: weight_norm(parametrizations.spectral_norm), _vector),
    double("old_weight_norm", old_weight_norm, _vector),
    double("lstm", lambda: Sequences(nn.LSTM(8, 10, batch_first=True), 10), _series),
    double("gru", lambda: Sequences(nn.GRU(8, 5, num_layers=2, dropout=0.1, batch_first=True,
            bidirectional=True), 10), _series),
    double("attention", Attention, _series),
    double("fused_attention", FusedAttention, _series),
    double("transformer", transformer, _series),
    double("checkpoint", Checkpointed, _vector),
    double("compiled", compiled, _vector),
    double("compiled_inside", compiled_inside, _vector),
    double("dropout", lambda: plain(nn.Sequential(nn.Tanh(), nn.Dropout(0.3))), _vector),
    double("functional_dropout", FunctionalDropout, _vector),
    double("drop_path", lambda: Residual(nn.Linear(4, 4), nn.Tanh(), DropPath()), _vector),
    double("running_buffers", RunningBuffers, _vector),
    double("counting", Counting, _vector),
    double("dict_output", DictOutput, _vector, compute_loss=penalized_loss, **_custom),
    double("dict_batch", DictBatch, dictionary, compute_loss=per_sample_loss, **_custom),
    double("gradient_penalty", plain, _vector, compute_loss=penalty_loss, **_custom),
    double("written_norm_penalty", lambda: smooth(WrittenNorm(6)), _vector,
            compute_loss=penalty_loss, **_custom),
    double("func_grad", lambda: smooth(nn.GroupNorm(2, 6)), _vector,
            compute_loss=transformed_loss, **_custom),
    double("func_jvp", plain, _vector, compute_loss=tangent_loss, **_custom),
    double("contrastive", plain, _vector, compute_loss=contrastive_loss, **_custom, **_seen),
    low_precision("float32", torch.float32),
    low_precision("bfloat16", torch.bfloat16),
]  # fmt: skip


INNER_GRADIENT = (penalty_loss, transformed_loss, tangent_loss)  # losses that take a gradient


def case(name: str) -> Case:
    """The case of this name."""
    return next(case for case in [*ZOO, *NO_DOUBLE_BACKWARD, *BROKEN] if case.name == name)
