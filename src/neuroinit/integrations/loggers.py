"""``on_step`` functions that send the record of every step to an experiment tracker.

You pass the tracker's own object, so nothing else has to be installed::

    ni.nio_(model, loader, on_step=loggers.tensorboard(SummaryWriter()))
"""

from __future__ import annotations

from typing import Protocol

from neuroinit.integrations.common import CURVES, PREFIX, curves
from neuroinit.run.loop.run import OnStep
from neuroinit.run.results.result import StepRecord


class _TensorBoardWriter(Protocol):
    def add_scalar(self, tag: str, value: float, step: int, /) -> object: ...


class _WandbRun(Protocol):
    def define_metric(self, name: str, /, *, step_metric: str) -> object: ...
    def log(self, values: dict[str, float], /) -> object: ...


class _MLflowLogger(Protocol):
    def log_metrics(self, metrics: dict[str, float], /, *, step: int) -> object: ...


def tensorboard(writer: _TensorBoardWriter, prefix: str = PREFIX) -> OnStep:
    """Write to TensorBoard.

    Args:
        writer: A ``torch.utils.tensorboard.SummaryWriter``, or any object with its ``add_scalar``.
        prefix: Comes before the names ``loss``, ``cosine``, ``norm``, ``norm_max``, ``norm_min``.

    Returns:
        A function for ``on_step``.

    Example:
        >>> class Writer:
        ...     def add_scalar(self, tag, value, step):
        ...         print(tag, value, step)
        >>> tensorboard(Writer())(StepRecord(3, 2.5, float("nan"), 1.0, 1.2, 0.8, False, 0.1))
        neuroinit/loss 2.5 3
        neuroinit/norm 1.0 3
        neuroinit/norm_max 1.2 3
        neuroinit/norm_min 0.8 3
    """

    def on_step(record: StepRecord) -> None:
        for name, value in curves(record, prefix).items():
            writer.add_scalar(name, value, record.step)

    return on_step


def wandb(run: _WandbRun, prefix: str = PREFIX) -> OnStep:
    """Log to Weights & Biases, over a separate axis: training steps still begin at zero.

    Args:
        run: The run that ``wandb.init()`` returned.
        prefix: Comes before the names, as for :func:`tensorboard`.

    Returns:
        A function for ``on_step``.

    Example:
        >>> class Run:
        ...     def define_metric(self, name, step_metric): ...
        ...     def log(self, values):
        ...         print(values)
        >>> wandb(Run(), "init/")(StepRecord(3, 2.5, 0.5, 1.0, 1.0, 1.0, False, 0.1))
        {'init/step': 3, 'init/loss': 2.5, ...}
    """
    axis = f"{prefix}step"
    for name in CURVES:
        run.define_metric(prefix + name, step_metric=axis)

    def on_step(record: StepRecord) -> None:
        run.log({axis: record.step, **curves(record, prefix)})

    return on_step


def mlflow(logger: _MLflowLogger, prefix: str = PREFIX) -> OnStep:
    """Log to MLflow.

    Args:
        logger: The module ``mlflow`` with an active run, or any object with its ``log_metrics``.
        prefix: Comes before the names, as for :func:`tensorboard`.

    Returns:
        A function for ``on_step``.

    Example:
        >>> class Logger:
        ...     def log_metrics(self, metrics, step):
        ...         print(metrics, step)
        >>> mlflow(Logger(), "init/")(StepRecord(3, 2.5, 0.5, 1.0, 1.0, 1.0, False, 0.1))
        {'init/loss': 2.5, ...} 3
    """

    def on_step(record: StepRecord) -> None:
        logger.log_metrics(curves(record, prefix), step=record.step)

    return on_step
