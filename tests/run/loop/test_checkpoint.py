"""A run that is killed goes on as if nothing had happened."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from neuroinit.gradients.passes import trials
from neuroinit.run.loop.checkpoint import FORMAT
from tests.run.loop.resumed import METHODS, result
from tests.utils.moving import ni

ROOT = Path(__file__).parents[3]


class Stop(Exception):
    """What ends a run in the middle."""


def stop_at(step):
    def on_step(record):
        if record.step == step:
            raise Stop

    return on_step


def run(*arguments, **options):
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=600, **options)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("step", [2, 7])
def test_a_stopped_run_continues_bit_identically(tmp_path, name, step):
    path = tmp_path / "run.json"
    with pytest.raises(Stop):
        result(name, path, stop_at(step))
    assert path.exists()
    assert result(name, path) == result(name)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_continues_bit_identically(tmp_path):
    killed = run("tests.run.loop.resumed", str(tmp_path), "5")
    assert killed.returncode == -signal.SIGKILL
    assert len(json.loads((tmp_path / "run.json").read_text())["history"]) == 4
    assert run("tests.run.loop.resumed", str(tmp_path), "5").returncode == 0
    assert json.loads((tmp_path / "found0.json").read_text()) == result("nio")
    assert not (tmp_path / "run.json").exists()


def test_torchrun_restarts_a_killed_rank(tmp_path):
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1")
    done = run(*torchrun, "-m", "tests.run.loop.resumed", str(tmp_path), "5")
    assert done.returncode == 0, done.stderr.decode()
    assert (tmp_path / "killed").exists()
    found = [json.loads((tmp_path / f"found{rank}.json").read_text()) for rank in (0, 1)]
    assert found[0] == found[1]
    scales, records, *_ = result("nio")
    assert found[0][0] == pytest.approx(scales, rel=1e-4)
    assert len(found[0][1]) == len(records)


def test_a_checkpoint_of_something_else_is_refused(tmp_path, small_model, digits_like):
    path = tmp_path / "run.json"

    def again(model, method):
        ni.optimize(
            model,
            digits_like,
            method=method,
            checkpoint=path,
            checkpoint_every=1,
            on_step=stop_at(2),
        )

    with pytest.raises(Stop):
        again(small_model, ni.NIO(steps=4))
    with pytest.raises(ValueError, match="with another method, or other settings"):
        again(small_model, ni.NIO(steps=5))
    linear, _, head = small_model
    with pytest.raises(ValueError, match="with another model: other types of modules"):
        again(torch.nn.Sequential(linear, torch.nn.ReLU(), head), ni.NIO(steps=4))
    torch.nn.init.normal_(small_model[0].weight)
    with pytest.raises(ValueError, match="with another model, or other initial"):
        again(small_model, ni.NIO(steps=4))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is damaged: it is no JSON"),
        ("[1]", "is no checkpoint of this version"),
        (json.dumps({"format": FORMAT}), "its checksum is wrong"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path, small_model, digits_like, text, message):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        ni.optimize(small_model, digits_like, checkpoint=path)
    assert path.read_text() == text


def test_a_checkpoint_that_lacks_anything_is_refused(tmp_path, small_model, digits_like):
    path = tmp_path / "run.json"
    options = {"method": ni.NIO(steps=3), "checkpoint": path, "checkpoint_every": 1}
    with pytest.raises(Stop):
        ni.optimize(small_model, digits_like, on_step=stop_at(2), **options)
    whole = json.loads(path.read_text())
    for key in whole.keys() - {"format"}:
        path.write_text(json.dumps({k: v for k, v in whole.items() if k != key}))
        with pytest.raises(ValueError, match="its checksum is wrong"):
            ni.optimize(small_model, digits_like, **options)


def test_bad_arguments(tmp_path, small_model, digits_like):
    with pytest.raises(ValueError, match="in a folder that exists"):
        ni.optimize(small_model, digits_like, checkpoint=tmp_path / "none" / "run.json")
    with pytest.raises(ValueError, match="which is no file"):
        ni.optimize(small_model, digits_like, checkpoint=tmp_path)
    with pytest.raises(TypeError, match="`checkpoint` should be the path of a file"):
        ni.optimize(small_model, digits_like, checkpoint=3)
    with pytest.raises(ValueError, match="should be a file"):  # one may be read without end
        ni.optimize(small_model, digits_like, checkpoint=os.devnull)
    with pytest.raises(ValueError, match="checkpoint_every = 0"):
        ni.optimize(small_model, digits_like, checkpoint=tmp_path / "r", checkpoint_every=0)


def test_what_was_found_out_about_the_model_is_not_tested_again(tmp_path, small_model, digits_like):
    options = {"method": ni.NIO.paper(steps=3), "engine": "keep", "checkpoint_every": 1}
    options["checkpoint"] = tmp_path / "run.json"
    with pytest.raises(Stop):
        ni.optimize(small_model, digits_like, on_step=stop_at(1), **options)
    assert json.loads(options["checkpoint"].read_text())["traits"]["separable"] is True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials, "agree", None)
        ni.optimize(small_model, digits_like, **options)


def test_a_run_that_ended_with_its_batches_is_resumed(tmp_path):
    """It has no batch left to measure on."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    batches = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(10)]
    options = {"method": ni.NIO(gamma=1.0, steps=20, tolerance=0.0), "checkpoint": tmp_path / "run"}

    def generator(fails):
        yield from batches
        if fails:
            raise Stop

    torch.manual_seed(1)
    with pytest.raises(Stop):
        ni.optimize(model, generator(True), **options)
    torch.manual_seed(1)
    with pytest.warns(UserWarning, match="The batches ended after 10 of 20 steps"):
        found = ni.optimize(model, generator(False), **options)
    assert len(found.history) == 10
    assert found.before is None
