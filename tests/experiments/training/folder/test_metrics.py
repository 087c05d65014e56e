"""Metrics of a run: what is written is read, up to the last checkpoint."""

import math

from neuroinit.experiments.training.folder.metrics import open_metrics, read_metrics


def test_records_after_the_last_checkpoint_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with open_metrics(path, 0) as log:
        log.write({"loss": 2.5, "lr": 0.1}, 0)
        log.write({"accuracy": 0.5}, 0)
        log.write({"loss": math.nan, "lr": 0.1}, 1)
        size = log.flush()
        log.write({"loss": 1.5, "lr": 0.1}, 2)
    losses, accuracies = read_metrics(path, size)
    assert losses[0] == 2.5
    assert math.isnan(losses[1])
    assert len(losses) == 2
    assert accuracies == [0.5]
    assert path.stat().st_size == size


def test_a_run_that_continues_appends(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for step in range(2):
        with open_metrics(path, step) as log:
            log.write({"loss": float(step)}, step)
            size = log.flush()
    assert read_metrics(path, size) == ([0.0, 1.0], [])
