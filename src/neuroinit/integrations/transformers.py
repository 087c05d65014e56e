"""A callback for the Hugging Face Trainer; needs ``pip install "neuroinit[transformers]"``.

A training loop with Accelerate needs no callback: call :func:`neuroinit.nio_` on the model, before
or after ``accelerator.prepare``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Unpack

from torch import nn
from torch.optim import Optimizer

from neuroinit.common.checks import check_callable
from neuroinit.common.errors import needs_extra, warn
from neuroinit.integrations.common import (
    check_alone,
    leave_alone,
    metrics,
    muted,
    once_for_all,
    undisturbed,
)
from neuroinit.integrations.options import CallbackOptions, callback_settings, show_options
from neuroinit.integrations.past import Event, Reason, note, reason_to_leave, record_loads
from neuroinit.methods.base import Initialization
from neuroinit.model.problem import ComputeLoss
from neuroinit.run.results.result import Result

with needs_extra("transformers"):
    from accelerate.utils import broadcast_object_list
    from transformers import (
        Trainer,
        TrainerCallback,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )

    from neuroinit.integrations.hf_trainer import (
        Inputs,
        TrainerBatches,
        TrainerLoss,
        calling_trainer,
        own_training_step,
        stepped,
        torch_optimizer,
    )


class InitCallback(TrainerCallback):
    """Optimizes the initialization when training begins, for the trainer's loss.

    A model is initialized once, and never after a training step. It is left alone when training
    resumes from a checkpoint, and, with a warning, when its weights come from ``from_pretrained``
    or were trained before. One callback can be used for several models.

    Parameters change in place, so the trainer's optimizer stays valid. The random state and the
    order of the training samples are the same as without the callback. The record of every step,
    and the statistics before and after, go to ``on_log`` of all callbacks and to
    ``trainer.state.log_history``. With several processes the first one computes, and all use its
    scales.

    Args:
        method: The method; by default NIO with the fields below, for the trainer's optimizer at
            the highest learning rate of its schedule. A method that you pass is not changed.
        compute_loss: ``compute_loss(model, batch)``; by default ``compute_loss`` of the trainer,
            with its label smoothing or ``compute_loss_func``.
        force: Initialize a model whose weights were loaded or trained before.
        verify: As for :func:`neuroinit.nio_`: short trainings on copies of the parameters verify
            the result. By default that is done if it is possible: not for a ``method`` that you
            pass, nor with several optimizers.
        **options: Fields of :class:`neuroinit.NIO`, such as ``steps=20`` or ``gamma=2.0``, and
            arguments of :func:`neuroinit.optimize`, such as ``engine="stream"``.

    Attributes:
        result: The last :class:`neuroinit.Result`, or ``None`` if it has not run.

    Example:
        >>> callback = InitCallback(steps=20)  # Trainer(model, callbacks=[callback], ...).train()
        >>> callback.method.steps, callback.result
        (20, None)
    """

    @show_options
    def __init__(
        self,
        method: Initialization | None = None,
        *,
        compute_loss: ComputeLoss | None = None,
        force: bool = False,
        verify: bool | None = None,
        **options: Unpack[CallbackOptions],
    ) -> None:
        self.settings = callback_settings(method, options, verify)
        if compute_loss is not None:
            check_callable("compute_loss", compute_loss)
        self.compute_loss, self.force = compute_loss, force
        self.result: Result | None = None

    @property
    def method(self) -> Initialization:
        """The method, as it was passed or made from the options."""
        return self.settings.method

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        train_dataloader: Iterable[Inputs] | None = None,
        optimizer: Optimizer | None = None,
        **kwargs: object,
    ) -> TrainerControl:
        """Optimize and apply, unless there is a reason not to."""
        if model is None or train_dataloader is None:
            raise ValueError("`InitCallback` needs the trainer's `model` and `train_dataloader`.")
        broadcast = _broadcast if args.world_size > 1 else None
        optimizer = torch_optimizer(optimizer)
        reason = self._reason_to_leave(state, model, optimizer)
        if not leave_alone(reason, args.process_index, broadcast):
            _check(args, model)
            trainer = calling_trainer()
            self.result = once_for_all(
                lambda: self._optimize(model, optimizer, trainer, train_dataloader),
                args.process_index,
                broadcast,
            )
            self.result.apply_(model)
            control = _logged(self.result, trainer, args, state, control)
        note(model, Event.USED)
        return control

    def _reason_to_leave(
        self, state: TrainerState, model: nn.Module, optimizer: Optimizer | None
    ) -> Reason | None:
        if state.global_step > 0:
            name, step = type(model).__name__, state.global_step
            return Reason(f"`InitCallback` left `{name}` alone: training is at step {step}.", True)
        return reason_to_leave(model, self.method, self.force, stepped(optimizer))

    def _optimize(
        self,
        model: nn.Module,
        optimizer: Optimizer | None,
        trainer: Trainer | None,
        loader: Iterable[Inputs],
    ) -> Result:
        # the loader inside of Accelerate's, which would count these batches as training steps
        loader = getattr(loader, "base_dataloader", loader)
        compute_loss = self.compute_loss or _loss_of(trainer)
        with undisturbed(loader), muted(trainer, "log") if trainer else nullcontext():
            optimizers = [] if optimizer is None else [optimizer]
            batches = TrainerBatches(trainer, loader)
            return self.settings.run(model, batches, compute_loss, optimizers)


def _loss_of(trainer: Trainer | None) -> ComputeLoss:
    """The trainer's loss; warn if the trainer overrides ``training_step``."""
    if trainer is None:
        raise ValueError(
            "`InitCallback` found no Trainer that calls it, so it does not know the loss. Pass "
            "`InitCallback(compute_loss=lambda model, batch: ...)`."
        )
    if own_training_step(trainer):
        warn(
            f"`{type(trainer).__name__}` overrides `training_step`. The initialization uses its "
            "`compute_loss`. If training uses another loss, pass `InitCallback(compute_loss=...)`."
        )
    return TrainerLoss(trainer)


def _logged(
    result: Result,
    trainer: Trainer | None,
    args: TrainingArguments,
    state: TrainerState,
    control: TrainerControl,
) -> TrainerControl:
    """Send the record of every step to ``on_log`` of all callbacks."""
    for step, values in metrics(result):
        state.log_history.append({**values, "neuroinit/step": step, "step": state.global_step})
        if trainer is not None:
            shown = copy.copy(state)  # loggers read the step; the trainer's state stays unchanged
            shown.global_step = step
            control = trainer.callback_handler.on_log(args, shown, control, dict(values))
    return control


def _check(args: TrainingArguments, model: nn.Module) -> None:
    sharded = [name for name in ("deepspeed", "fsdp") if getattr(args, name, None)]
    if sharded:
        raise ValueError(
            f"`{sharded[0]}` shards the parameters, which cannot be scaled then. Call "
            "`neuroinit.nio_(model, loader, compute_loss=...)` before the Trainer is made."
        )
    check_alone(model, args.world_size)


def _broadcast(value: object) -> object:
    held = [value]
    broadcast_object_list(held)
    return held[0]


record_loads()  # at import: weights are loaded before a callback is made
