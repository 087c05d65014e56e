"""A Lightning callback; needs ``pip install "neuroinit[lightning]"``."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor

from neuroinit.common.errors import needs_extra
from neuroinit.common.random_state import isolated
from neuroinit.integrations.common import (
    check_alone,
    checked_method,
    metrics,
    once_for_all,
    undisturbed,
)
from neuroinit.methods.base import Initialization
from neuroinit.run.optimize import optimize
from neuroinit.run.result import Result

with needs_extra("lightning"):
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.loggers.logger import DummyLogger
    from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
    from lightning.pytorch.utilities.combined_loader import CombinedLoader
    from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature

log = logging.getLogger(__name__)


class InitCallback(Callback):
    """Optimizes the initialization when a fit begins, through the module's own ``training_step``.

    It runs once: not when a fit resumes from a checkpoint, not in ``fast_dev_run``, and a
    checkpoint remembers that it has run. Parameters change in place, so optimizers stay valid; the
    random state and the order of the training samples stay as they would have been. What
    ``training_step`` logs meanwhile is dropped. With several processes the first one computes, and
    all take over its scales.

    Args:
        method: What to optimize; ``NIO()`` by default.
        engine: As for :func:`neuroinit.optimize`, as are ``microbatch`` and ``progress``.
        log_metrics: Send every step's record, and before and after, to the trainer's loggers.

    Attributes:
        done: Whether it has run. One callback is for one model: make a new one for another.
        result: The :class:`neuroinit.Result`, or ``None`` if it has not run in this process.

    Example:
        >>> callback = InitCallback()  # Trainer(callbacks=[callback]).fit(module, loader)
        >>> callback.done
        False
    """

    def __init__(
        self,
        method: Initialization | None = None,
        *,
        engine: str = "auto",
        microbatch: int | None = None,
        progress: bool = True,
        log_metrics: bool = True,
    ) -> None:
        self.method = checked_method(method)
        self.options = {"engine": engine, "microbatch": microbatch, "progress": progress}
        self.log_metrics = log_metrics
        self.done = False
        self.result: Result | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Optimize and apply, unless there is a reason not to."""
        reason = self._reason_to_skip(trainer)
        if reason:
            log.info("neuroinit leaves the initialization alone: %s.", reason)
            return
        _check(trainer, pl_module)
        broadcast = trainer.strategy.broadcast if trainer.world_size > 1 else None
        self.result = once_for_all(
            lambda: self._optimize(trainer, pl_module), trainer.global_rank, broadcast
        )
        self.result.apply_(pl_module)
        self.done = True
        if self.log_metrics and trainer.is_global_zero:
            for step, values in metrics(self.result):
                for logger in trainer.loggers:
                    logger.log_metrics(values, step=step)

    def _reason_to_skip(self, trainer: Trainer) -> str:
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return "this is a `fast_dev_run`"
        if trainer.ckpt_path is not None or trainer.global_step > 0:
            return "this fit goes on from an earlier one"
        return "this callback has run already" if self.done else ""

    def _optimize(self, trainer: Trainer, module: LightningModule) -> Result:
        with ExitStack() as stack:
            stack.enter_context(isolated())
            batches = _Batches(trainer, module)
            for loader in batches.loaders.flattened:
                stack.enter_context(undisturbed(loader))
            stack.enter_context(_silent(trainer, module))
            return optimize(
                module,
                batches,
                method=self.method,
                compute_loss=_training_loss,
                **self.options,  # type: ignore[arg-type]
            )

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"done": self.done}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What a checkpoint has kept."""
        self.done = bool(state_dict["done"])


class _Batches:
    """The batches of the loader that the trainer was given, as they reach ``training_step``.

    The trainer's own iterator is not touched: it reads ahead, and would miss what is read here.
    """

    def __init__(self, trainer: Trainer, module: LightningModule) -> None:
        self.trainer, self.module = trainer, module
        found = trainer.fit_loop._data_source.dataloader()
        combined = isinstance(found, CombinedLoader)
        self.loaders = found if combined else CombinedLoader(found, "max_size_cycle")

    def __iter__(self) -> Iterator[Any]:
        for batch, _, _ in self.loaders:
            batch = self.trainer.precision_plugin.convert_input(batch)
            batch = self.module._on_before_batch_transfer(batch, dataloader_idx=0)
            yield self.trainer.strategy.batch_to_device(batch, dataloader_idx=0)


def _training_loss(module: LightningModule, batch: Any) -> Tensor:
    """The loss that ``training_step`` returns, by itself or in a dict."""
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
            f"{type(trainer.strategy).__name__}`, which may hold parameters in parts. Call "
            "`neuroinit.nio_(module, loader, compute_loss=...)` before `trainer.fit`."
        )
    check_alone(module, trainer.world_size)


@contextmanager
def _silent(trainer: Trainer, module: LightningModule) -> Iterator[None]:
    """Whatever a ``training_step`` logs goes nowhere: no training step has been made yet."""
    loggers, had = trainer.loggers, {k: v for k, v in vars(module).items() if k in _LOGS}
    trainer.loggers = [DummyLogger() for _ in loggers]
    for name in _LOGS:
        object.__setattr__(module, name, _nothing)
    try:
        yield
    finally:
        trainer.loggers = loggers
        for name in _LOGS:
            object.__delattr__(module, name)
        vars(module).update(had)


_LOGS = ("log", "log_dict")


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Stands in for ``self.log``."""
