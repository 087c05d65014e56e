"""A callback for the Hugging Face Trainer; needs ``pip install "neuroinit[transformers]"``.

A loop of one's own with Accelerate needs no callback: call :func:`neuroinit.nio_` on the model,
before or after ``accelerator.prepare``.
"""

from __future__ import annotations

import logging
from typing import Any

from torch import Tensor, nn

from neuroinit.common.checks import check_callable
from neuroinit.common.errors import needs_extra
from neuroinit.integrations.common import (
    check_alone,
    checked_method,
    metrics,
    once_for_all,
    undisturbed,
)
from neuroinit.methods.base import Initialization
from neuroinit.model.problem import ComputeLoss
from neuroinit.run.optimize import optimize
from neuroinit.run.result import Result

with needs_extra("transformers"):
    from accelerate.utils import broadcast_object_list
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

log = logging.getLogger(__name__)


def model_loss(model: nn.Module, batch: Any) -> Tensor:
    """The loss that a Hugging Face model computes by itself when a batch has labels."""
    output = model(**batch)
    loss: Tensor | None = output.get("loss") if isinstance(output, dict) else None
    if loss is None:
        raise TypeError(
            f"`{type(model).__name__}` returns no `loss` for a batch with {sorted(batch)}. Give "
            "the batches labels, or pass `compute_loss=lambda model, batch: ...`."
        )
    return loss


class InitCallback(TrainerCallback):
    """Optimizes the initialization when training begins, at step 0 only.

    Parameters change in place, so the trainer's optimizer stays valid; the random state and the
    order of the training samples stay as they would have been. Before, after and every step's
    record are appended to ``trainer.state.log_history``. With several processes the first one
    computes, and all take over its scales.

    Args:
        method: What to optimize; ``NIO()`` by default.
        compute_loss: ``compute_loss(model, batch)``; by default the model's own loss. Needed where
            the trainer has a loss of its own.
        engine: As for :func:`neuroinit.optimize`, as are ``microbatch`` and ``progress``.

    Attributes:
        result: The :class:`neuroinit.Result`, or ``None`` if it has not run.

    Example:
        >>> callback = InitCallback()  # Trainer(model, args, callbacks=[callback], ...).train()
        >>> callback.result is None
        True
    """

    def __init__(
        self,
        method: Initialization | None = None,
        *,
        compute_loss: ComputeLoss | None = None,
        engine: str = "auto",
        microbatch: int | None = None,
        progress: bool = True,
    ) -> None:
        self.method = checked_method(method)
        if compute_loss is not None:
            check_callable("compute_loss", compute_loss)
        self.compute_loss = compute_loss or model_loss
        self.options = {"engine": engine, "microbatch": microbatch, "progress": progress}
        self.result: Result | None = None

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        train_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        """Optimize and apply, unless training goes on from a checkpoint."""
        if state.global_step > 0:
            log.info(
                "neuroinit leaves the weights alone: training goes on at %d.", state.global_step
            )
            return
        if model is None or train_dataloader is None:
            raise ValueError("`InitCallback` needs the trainer's `model` and `train_dataloader`.")
        _check(args, model)
        broadcast = _broadcast if args.world_size > 1 else None
        self.result = once_for_all(
            lambda: self._optimize(model, train_dataloader), args.process_index, broadcast
        )
        self.result.apply_(model)
        for step, values in metrics(self.result):
            state.log_history.append({**values, "neuroinit/step": step, "step": 0})

    def _optimize(self, model: nn.Module, loader: Any) -> Result:
        # below Accelerate's loader, which counts what is read as training steps
        loader = getattr(loader, "base_dataloader", loader)
        with undisturbed(loader):
            return optimize(
                model,
                loader,
                method=self.method,
                compute_loss=self.compute_loss,
                **self.options,  # type: ignore[arg-type]
            )


def _check(args: TrainingArguments, model: nn.Module) -> None:
    sharded = [name for name in ("deepspeed", "fsdp") if getattr(args, name, None)]
    if sharded:
        raise ValueError(
            f"`{sharded[0]}` holds parameters in parts, which cannot be scaled. Call "
            "`neuroinit.nio_(model, loader, compute_loss=...)` before the Trainer is made."
        )
    check_alone(model, args.world_size)


def _broadcast(value: Any) -> Any:
    held = [value]
    broadcast_object_list(held)
    return held[0]
