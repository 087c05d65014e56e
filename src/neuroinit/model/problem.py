"""A model and its loss, described as functions of the scaled parameters."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from neuroinit.common.batches import Batch, Data, Interval, map_tensors, moved
from neuroinit.common.errors import warn
from neuroinit.common.layout import SAMPLES_FIRST, BatchLayout
from neuroinit.common.process.random_state import new_seed
from neuroinit.common.tensors import (
    HALF,
    at_least_float32,
    dot,
    gram_matrix,
    quick_norms,
    row_norms,
    sum_dtype,
    to_cpu_double,
    to_host,
    unflatten,
)
from neuroinit.distributed.dtensor import is_sharded
from neuroinit.distributed.fsdp import check_not_fsdp1, reshard
from neuroinit.distributed.ranks import ALONE, Ranks
from neuroinit.kernels.cross_entropy import cross_entropies
from neuroinit.model.arguments.validation import (
    check_callables,
    check_finite_parameters,
    check_pair,
    check_parameters,
)
from neuroinit.model.parameters.fresh_values import Draw
from neuroinit.model.parameters.selection import Selection, places, trainable, unwrap
from neuroinit.model.point import Point
from neuroinit.model.session import Session
from neuroinit.model.traits import Traits

LossFunction = Callable[[Data, Data], Tensor]
LossesOfPieces = Callable[[Data, Data, Sequence[Interval]], Tensor | None]
ComputeLoss = Callable[[Any, Batch], Tensor]  # `Any`: the user's own class of modules


class Problem:
    """A model and its loss. Nothing is stored on the model.

    To evaluate it, make a :class:`Point` with :meth:`at` and open a session there.

    Args:
        model: Any module; wrappers (DDP, ``torch.compile``, Fabric) are removed.
        loss_fn: ``loss_fn(output, target)`` for batches ``(inputs, targets)``.
        compute_loss: ``compute_loss(model, batch)`` for any other kind of batch.
        selection: Which parameters get a scale and are differentiated by.
        autocast: Dtype of the forward passes; ``None`` for the dtype of the model.
        ranks: The processes that share the work on every batch.
        layout: Where the samples are in a batch, and how it is cut.

    Attributes:
        parameters: Name -> the user's parameter.
        original: Name -> the user's values, in float32 or wider.
        start: Name -> ``W_k``: ``original``, or fresh values for the tensors that a method draws.
        trainable: Names of the parameters that require a gradient.
        scaled: Names of the parameters that get a scale.
        differentiated: Names of the parameters that the loss is differentiated by.
        zeros: Names of trainable tensors that are all zero.
        losses_of_pieces: ``loss_fn`` of all pieces of a batch at once, or ``None``.
        drawn: Name -> how fresh values are drawn.
        buffers: ``(module, key, buffer)`` for every buffer of the model.
        norm_statistics: ``"batch"`` or ``"running"``, see :meth:`with_norm_statistics`.
        traits: What was found out about the model so far; copies of the problem share it.
    """

    session_type: ClassVar[type[Session]] = Session
    sharded: ClassVar[bool] = False

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction | None,
        compute_loss: ComputeLoss | None = None,
        selection: Selection | None = None,
        autocast: torch.dtype | None = None,
        ranks: Ranks = ALONE,
        layout: BatchLayout = SAMPLES_FIRST,
    ) -> None:
        selection = selection or Selection()
        check_callables(model, loss_fn, compute_loss, selection.needs_loss)
        self.model, self.ranks, self.autocast = unwrap(model), ranks, autocast
        self.traits = Traits(layout)
        self.has_loss = loss_fn is not None or compute_loss is not None
        self.loss_fn: LossFunction = loss_fn or F.cross_entropy
        self.compute_loss = compute_loss
        self.losses_of_pieces: LossesOfPieces = partial(cross_entropies, self.loss_fn)
        check_not_fsdp1(self.model)
        reshard(self.model)
        self.parameters: dict[str, Tensor] = dict(self.model.named_parameters())
        self._check_model(selection)
        self.places = places(self.model)
        self.buffers = [
            (module, key, at_least_float32(buffer))
            for module in self.model.modules()
            for key, buffer in module._buffers.items()
            if buffer is not None
        ]
        self.trainable = trainable(self.parameters)
        self.original = self._values()
        self.drawn = selection.draws(self.model) if selection.draws else {}
        norms = zip(self.original.items(), quick_norms(list(self.original.values())), strict=True)
        self._unusual = {n: t for (n, t), norm in norms if not 0 < norm < math.inf}
        check_finite_parameters({n: t for n, t in self._unusual.items() if n not in self.drawn})
        fresh = {n: self._fresh_values(n, draw) for n, draw in self.drawn.items()}
        self.start = {**self.original, **fresh}
        self.device = self.start[self.trainable[0]].device
        self.zeros = self._all_zero()
        self.scaled = selection.scaled(self.model, self.zeros, self.drawn)
        self.differentiated = selection.differentiated(self.model)
        self.seed = new_seed()
        self.norm_statistics = "batch"
        self._warned: set[str] = set()

    def _values(self) -> dict[str, Tensor]:
        """The user's values, in float32 or wider."""
        return {n: at_least_float32(p.detach()) for n, p in self.parameters.items()}

    def _fresh_values(self, name: str, draw: Draw) -> Tensor:
        return draw.like(self.original[name])

    def _all_zero(self) -> list[str]:
        """Names of trainable tensors that are all zero at the start."""
        candidates = [n for n in self.trainable if n in self._unusual or n in self.drawn]
        return [n for n in candidates if not self.start[n].any()]

    def _check_model(self, selection: Selection) -> None:
        """Raise for a model that cannot be differentiated, or has nothing to train."""
        check_parameters(self.parameters, selection.takes)
        if not self.sharded and any(is_sharded(p) for p in self.parameters.values()):
            raise ValueError(
                "The model is sharded (DTensor parameters), where `torch.autograd.grad` does not "
                "work. Optimize it before `fully_shard` or `parallelize_module`, which is exact; "
                "or pass `engine='differences'` to `optimize`, which is not, see "
                "docs/guide/several-processes.md."
            )
        synced = [n for n, m in self.model.named_modules() if isinstance(m, nn.SyncBatchNorm)]
        if synced and not self.ranks.alone:
            raise ValueError(
                f"`{synced[0]}` is a SyncBatchNorm, which waits for all ranks, but every rank "
                "computes other sub-batches. Optimize before `convert_sync_batchnorm`."
            )
        if not trainable(self.parameters):
            raise ValueError(
                "The model has no trainable parameter: nothing to scale. "
                "Set `requires_grad=True` on the parameters that are to be trained."
            )

    def warn_once(self, message: str) -> None:
        """Warn, unless the same warning was given for this problem before."""
        if message not in self._warned:
            self._warned.add(message)
            warn(message)

    def with_norm_statistics(self, kind: str) -> Problem:
        """This problem with BatchNorm's statistics of the ``"batch"``, or ``"running"`` ones."""
        twin = copy.copy(self)
        twin.norm_statistics = kind
        return twin

    # -- points ------------------------------------------------------------------------------------

    @property
    def unit_scales(self) -> Tensor:
        """All scales one: float64 on the CPU, shape ``(len(scaled),)``."""
        return torch.ones(len(self.scaled), dtype=torch.float64, device="cpu")

    def at(self, scales: Tensor, replaced: Mapping[str, Tensor] | None = None) -> Point:
        """The point ``theta = {w_k W_k}``.

        Args:
            scales: One scale for every name in ``scaled``.
            replaced: Parameter name -> tensor in place of ``W_k``.
        """
        factors = dict(zip(self.scaled, scales.tolist(), strict=True))
        start = {**self.start, **(replaced or {})}
        with torch.no_grad():
            products = torch._foreach_mul(
                list(start.values()), [factors.get(n, 1.0) for n in start]
            )
        values = {
            n: t.requires_grad_(self.parameters[n].requires_grad)
            for n, t in zip(start, products, strict=True)
        }
        return Point(self, values, factors)

    def at_values(self, values: Mapping[str, Tensor]) -> Point:
        """The point with given values, by name; other parameters have their start values."""
        return Point(self, {**self.start, **values}, {})

    # -- batches -----------------------------------------------------------------------------------

    @property
    def layout(self) -> BatchLayout:
        """Where the samples are in a batch, and how it is cut."""
        return self.traits.layout

    def prepare(self, batch: Batch) -> Batch:
        """The batch on the model's device; in float32 if the model is in half precision."""
        if self.has_loss and self.compute_loss is None:
            check_pair(batch)
        self.traits.settle(batch)
        self.layout.size(batch)
        half = any(p.dtype in HALF for p in self.parameters.values())
        prepared = moved(batch, self.device)
        return map_tensors(at_least_float32, prepared) if half else prepared

    @cached_property
    def batch_norms(self) -> list[str]:
        """Names of the modules that normalize over the batch."""
        return [n for n, m in self.model.named_modules() if isinstance(m, _BatchNorm)]

    # -- gradients as flat vectors; of a sharded model every rank holds a part ---------------------

    def norm(self, gradient: Tensor) -> Tensor:
        """The norm of a flat gradient."""
        norm: Tensor = torch.linalg.vector_norm(gradient, dtype=sum_dtype(gradient))
        return norm

    def norms(self, gradients: Tensor) -> Tensor:
        """The norm of every row, of shape ``(rows,)``."""
        return row_norms(gradients)

    def gram(self, gradients: Tensor) -> Tensor:
        """``K[i, j] = <g_i, g_j>`` of the rows, float64 on the CPU."""
        return to_cpu_double(gram_matrix(gradients))

    def sum_over_shards(self, values: Tensor, names: Sequence[str]) -> Tensor:
        """Sum the values (one row per name) over all shards of a parameter; here there is one."""
        return values

    def by_scales(self, gradient: Tensor) -> Tensor:
        """``<W_k, gradient_k>`` for every scale, of a flat gradient by ``differentiated``."""
        names = self.differentiated
        parts = dict(zip(names, unflatten(gradient, [self.start[n] for n in names]), strict=True))
        products = {n: dot(self.start[n], parts[n]) for n in self.scaled if n in parts}
        by_scale = torch.zeros_like(self.unit_scales)
        if products:
            place = [k for k, n in enumerate(self.scaled) if n in products]
            by_scale[place] = torch.stack(to_host(*products.values()))
        return by_scale
