"""A Lightning callback; needs ``pip install "neuroinit[lightning]"``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Unpack

from torch import Tensor, nn

from neuroinit.common.errors import needs_extra
from neuroinit.common.process.random_state import isolated
from neuroinit.integrations.common import (
    check_alone,
    leave_alone,
    metrics,
    muted,
    once_for_all,
    undisturbed,
)
from neuroinit.integrations.options import CallbackOptions, callback_settings, show_options
from neuroinit.integrations.past import (
    UNCOUNTED_LOADS,
    Event,
    Reason,
    note,
    reason_to_leave,
    record_loads,
)
from neuroinit.methods.base import Initialization
from neuroinit.run.results.result import Result

with needs_extra("lightning"):
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.loggers.logger import DummyLogger
    from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
    from lightning.pytorch.trainer.states import TrainerStatus
    from lightning.pytorch.utilities.combined_loader import CombinedLoader
    from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature


class InitCallback(Callback):
    """Optimizes the initialization when a fit begins, for the loss of ``training_step``.

    A module is initialized once, and never after a training step. It is left alone in
    ``fast_dev_run``, when a fit resumes from a checkpoint, and, with a warning, when its weights
    were loaded or trained before. One callback can be used for several modules.

    Parameters change in place, so optimizers stay valid. The random state and the order of the
    training samples are the same as without the callback. Values that ``training_step`` logs during
    the initialization are dropped. With several processes the first one computes, and all use its
    scales.

    Args:
        method: The method; by default NIO with the fields below, for the trainer's optimizer at
            the highest learning rate of its schedule. A method that you pass is not changed.
        force: Initialize a module whose weights were loaded or trained before.
        verify: As for :func:`neuroinit.nio_`: short trainings on copies of the parameters verify
            the result. By default that is done if it is possible: not for a ``method`` that you
            pass, nor with several optimizers.
        log_metrics: Send the record of every step, and the statistics before and after, to the
            trainer's loggers.
        **options: Fields of :class:`neuroinit.NIO`, such as ``steps=20`` or ``gamma=2.0``, and
            arguments of :func:`neuroinit.optimize`, such as ``engine="stream"``.

    Attributes:
        done: Whether the callback has run, in this process or before the resumed checkpoint.
        result: The last :class:`neuroinit.Result`, or ``None`` if there is none in this process.

    Example:
        >>> callback = InitCallback(steps=20)  # Trainer(callbacks=[callback]).fit(module, loader)
        >>> callback.method.steps, callback.done
        (20, False)
    """

    @show_options
    def __init__(
        self,
        method: Initialization | None = None,
        *,
        force: bool = False,
        verify: bool | None = None,
        log_metrics: bool = True,
        **options: Unpack[CallbackOptions],
    ) -> None:
        self.settings = callback_settings(method, options, verify)
        self.force, self.log_metrics = force, log_metrics
        self.done = False
        self.result: Result | None = None

    @property
    def method(self) -> Initialization:
        """The method, as it was passed or made from the options."""
        return self.settings.method

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Optimize and apply, unless there is a reason not to."""
        broadcast = trainer.strategy.broadcast if trainer.world_size > 1 else None
        reason = self._reason_to_leave(trainer, pl_module)
        if leave_alone(reason, trainer.global_rank, broadcast):
            return
        _check(trainer, pl_module)
        self.result = once_for_all(
            lambda: self._optimize(trainer, pl_module), trainer.global_rank, broadcast
        )
        self.result.apply_(pl_module)
        self.done = True
        note(pl_module, Event.USED)
        if self.log_metrics and trainer.is_global_zero:
            for step, values in metrics(self.result):
                for logger in trainer.loggers:
                    logger.log_metrics(values, step=step)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Mark the module as trained."""
        note(pl_module, Event.USED)

    def _reason_to_leave(self, trainer: Trainer, module: LightningModule) -> Reason | None:
        left = f"`InitCallback` left `{type(module).__name__}` alone"
        if trainer.fast_dev_run:  # type: ignore[attr-defined]  # set by `setattr`
            return Reason(f"{left}: this is a `fast_dev_run`.", expected=True)
        resumes = trainer.ckpt_path is not None and not _restored_by_tuner(trainer)
        if resumes or trainer.global_step > 0:
            return Reason(f"{left}: this fit continues an earlier one.", expected=True)
        return reason_to_leave(module, self.method, self.force)

    def _optimize(self, trainer: Trainer, module: LightningModule) -> Result:
        with ExitStack() as stack:
            stack.enter_context(isolated())
            batches = _Batches(trainer, module)
            for loader in batches.loaders.flattened:
                stack.enter_context(undisturbed(loader))
            stack.enter_context(_silent(trainer, module))
            return self.settings.run(module, batches, _training_loss, trainer.optimizers)

    def state_dict(self) -> dict[str, bool]:
        """The state that a checkpoint keeps."""
        return {"done": self.done}

    def load_state_dict(self, state_dict: dict[str, bool]) -> None:
        """Restore the state of a checkpoint."""
        self.done = bool(state_dict["done"])


def _restored_by_tuner(trainer: Trainer) -> bool:
    """Whether the trainer's checkpoint is from the learning rate finder or batch size finder.

    These save a checkpoint, train for some steps and restore it.
    """
    return Path(trainer.ckpt_path or "").name.startswith((".lr_find_", ".scale_batch_size_"))


class _Batches:
    """The batches of the user's loader, converted as for ``training_step``.

    The trainer's iterator is not used, because training would miss the batches that are read here.
    """

    def __init__(self, trainer: Trainer, module: LightningModule) -> None:
        self.trainer, self.module = trainer, module
        found = trainer.fit_loop._data_source.dataloader()
        combined = isinstance(found, CombinedLoader)
        self.loaders = found if combined else CombinedLoader(found, "max_size_cycle")

    def __iter__(self) -> Iterator[object]:
        for batch, _, _ in self.loaders:
            batch = self.trainer.precision_plugin.convert_input(batch)
            batch = self.module._on_before_batch_transfer(batch, dataloader_idx=0)
            yield self.trainer.strategy.batch_to_device(batch, dataloader_idx=0)


def _training_loss(module: LightningModule, batch: object) -> Tensor:
    """The loss that ``training_step`` returns, as a tensor or in a dict."""
    two = is_param_in_hook_signature(module.training_step, "batch_idx", min_args=2)
    output = module.training_step(batch, 0) if two else module.training_step(batch)
    loss = output.get("loss") if isinstance(output, dict) else output
    if not isinstance(loss, Tensor):
        found = f"keys {sorted(output)}" if isinstance(output, dict) else f"`{output!r}`"
        raise TypeError(
            "`training_step` should return a loss, or a dict with a `loss`: it is what the "
            f"initialization is optimized for. Found {found}."
        )
    return loss


def _check(trainer: Trainer, module: LightningModule) -> None:
    if not module.automatic_optimization:
        raise ValueError(
            "`InitCallback` needs a `training_step` that returns its loss; with "
            "`automatic_optimization = False` it steps the optimizers by itself. Call "
            "`neuroinit.nio_(module, loader, compute_loss=...)` before `trainer.fit`."
        )
    if type(trainer.strategy) not in (SingleDeviceStrategy, DDPStrategy):
        raise ValueError(
            f"`InitCallback` works on one device and with DDP. Found `strategy = "
            f"{type(trainer.strategy).__name__}`, which may shard parameters. Call "
            "`neuroinit.nio_(module, loader, compute_loss=...)` before `trainer.fit`."
        )
    check_alone(module, trainer.world_size)


@contextmanager
def _silent(trainer: Trainer, module: LightningModule) -> Iterator[None]:
    """A context in which values that ``training_step`` logs are dropped."""
    loggers = trainer.loggers
    trainer.loggers = [DummyLogger() for _ in loggers]
    try:
        with muted(module, "log", "log_dict"):
            yield
    finally:
        trainer.loggers = loggers


def _loaded_by_tuner(module: nn.Module) -> bool:
    """Whether a tuner restores this module now, so that loading does not mean training."""
    if not isinstance(module, LightningModule) or module._trainer is None:
        return False
    running = module.trainer.state.status == TrainerStatus.RUNNING
    return running and _restored_by_tuner(module.trainer)


UNCOUNTED_LOADS.append(_loaded_by_tuner)
record_loads()  # at import: weights are loaded before a callback is made
