"""``on_step`` adapters: the numbers of every step reach a tracker."""

import math

import pytest

import neuroinit as ni
from neuroinit.integrations import loggers

NAMES = ("loss", "cosine", "norm", "norm_max", "norm_min")


class Recorder:
    """Takes what the three trackers take."""

    def __init__(self):
        self.axes, self.seen = {}, []

    def add_scalar(self, tag, scalar_value, global_step):
        self.seen.append((global_step, {tag: scalar_value}))

    def define_metric(self, name, step_metric):
        self.axes[name] = step_metric

    def log(self, data):
        self.seen.append((data.pop("neuroinit/step"), data))

    def log_metrics(self, metrics, step):
        self.seen.append((step, metrics))

    def steps(self):
        found = {}
        for step, values in self.seen:
            found.setdefault(step, {}).update(values)
        return found


@pytest.mark.parametrize("adapter", [loggers.tensorboard, loggers.wandb, loggers.mlflow])
def test_every_number_of_every_step_is_logged(adapter, small_model, digits_like):
    recorder = Recorder()
    result = ni.optimize(
        small_model,
        digits_like,
        method=ni.NIO(steps=3, tolerance=0, gamma=2.0),
        on_step=adapter(recorder),
    )
    expected = {r.step: {f"neuroinit/{n}": r[n] for n in NAMES} for r in result.history}
    assert recorder.steps() == expected
    assert set(recorder.axes.values()) <= {"neuroinit/step"}


def test_numbers_that_a_method_does_not_compute_are_left_out():
    recorder = Recorder()
    loggers.mlflow(recorder, prefix="init.")(
        ni.StepRecord(5, 2.0, math.nan, math.inf, 1.0, 1.0, False, 0.1)
    )
    assert recorder.seen == [(5, {"init.loss": 2.0, "init.norm_max": 1.0, "init.norm_min": 1.0})]


def test_tensorboard_itself(tmp_path, small_model, digits_like):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        result = ni.optimize(
            small_model,
            digits_like,
            method=ni.NIO(steps=2, gamma=2.0),
            on_step=loggers.tensorboard(writer),
        )
    events = EventAccumulator(str(tmp_path)).Reload().Scalars("neuroinit/norm")
    assert [event.step for event in events] == [0, 1]
    assert events[0].value == pytest.approx(result.history[0].norm)


def test_wandb_itself(tmp_path, small_model, digits_like):
    wandb = pytest.importorskip("wandb")
    with wandb.init(mode="offline", dir=tmp_path, settings=wandb.Settings(silent=True)) as run:
        result = ni.optimize(
            small_model, digits_like, method=ni.NIO(steps=2, gamma=2.0), on_step=loggers.wandb(run)
        )
        assert run.summary["neuroinit/norm"] == pytest.approx(result.history[-1].norm)


def test_mlflow_itself(tmp_path, small_model, digits_like):
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    with mlflow.start_run() as run:
        result = ni.optimize(
            small_model,
            digits_like,
            method=ni.NIO(steps=2, gamma=2.0),
            on_step=loggers.mlflow(mlflow),
        )
    found = mlflow.MlflowClient().get_metric_history(run.info.run_id, "neuroinit/norm")
    assert [m.value for m in found] == pytest.approx([r.norm for r in result.history])
