"""Training runs: their files, and that a killed run continues as if it had not been killed."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from neuroinit.experiments.data import image_folders, images
from neuroinit.experiments.data.augmentation import Augmentation
from neuroinit.experiments.data.datasets import load
from neuroinit.experiments.models import build
from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.folder.files import Busy
from neuroinit.experiments.training.run import Run
from neuroinit.experiments.training.train import train, train_model
from neuroinit.methods.nio.method import NIO
from tests.experiments.noise import write_noise

PLAIN = Augmentation(crop=1, flip=False)


def small(**changes):
    values = {
        "model": "resnet-8",
        "train_images": 128,
        "test_images": 64,
        "batch_size": 32,
        "epochs": 2,
        "augmentation": PLAIN,
    }
    return Config(**{**values, **changes})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_noise(tmp_path_factory.mktemp("images"), train=16, val=16, height=40, width=40)


def losses_of(folder):
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if "loss" in record]


CHILD = """
import json, sys
from pathlib import Path
from neuroinit.experiments.data import image_folders, images
from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.train import train
import torch
torch.set_num_threads(1)
image_folders.MEMORY, images.WORKERS = int(sys.argv[3]), 1
train(Config.from_json(json.loads(sys.argv[1])), Path(sys.argv[2]), minutes=0.0)
"""


@pytest.mark.parametrize(
    "changes",
    [
        {"clip": 1.0, "method": "nio:steps=2,sub_batches=2"},
        {"model": "fixup-resnet-8", "method": "fixup", "lr": 0.01},
        {"model": "torchvision:squeezenet1_1", "batch_size": 8, "image_size": 32, "lr": 0.01},
        {"model": "swin-cifar", "optimizer": "adamw", "lr": 1e-3, "warmup_epochs": 1.0,
         "augmentation": Augmentation(crop=1, mixup=0.8, cutout=2)},
    ],
    ids=["sgd", "two rates", "dropout and files", "adamw"],
)  # fmt: skip
def test_a_killed_run_continues_bit_by_bit(tmp_path, folder, changes, monkeypatch):
    if "image_size" in changes:  # a folder, decoded by a worker
        changes = {**changes, "data": f"folder:{folder}"}
        monkeypatch.setattr(image_folders, "MEMORY", 0)
        monkeypatch.setattr(images, "WORKERS", 1)
    config = small(epochs=5, **changes)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    expected = train(config, whole)
    command = [sys.executable, "-c", CHILD, json.dumps(config.to_json())]
    command += [str(killed), str(image_folders.MEMORY)]
    metrics = killed / "metrics.jsonl"
    environment = {**os.environ, "COLUMNS": "80"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as child:
        while not (metrics.exists() and len(metrics.read_text().splitlines()) >= 5):
            assert child.poll() is None, child.stderr.read()
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    assert not (killed / "result.json").exists()
    with metrics.open("a") as file:
        file.write('{"step": 99, "loss"')  # a line that the kill cut short
    outcome = train(config, killed)
    assert losses_of(killed) == losses_of(whole)
    assert (outcome.accuracy, outcome.area) == (expected.accuracy, expected.area)
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (killed, whole))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def interrupting(real, number):
    """A function like the real one that is interrupted at a call."""
    calls = itertools.count()

    def called(*arguments):
        if next(calls) == number:
            raise KeyboardInterrupt
        return real(*arguments)

    return called


@pytest.mark.parametrize(("owner", "number", "steps"), [(NIO, 12, 4), (Run, 0, 0)])
def test_steps_of_an_initialization_are_kept(owner, number, steps, tmp_path, monkeypatch):
    """Every tenth of them in a checkpoint of its own, all in the first one of the training."""
    config = small(epochs=1, method="nio:steps=14,sub_batches=2,tolerance=0.0,gamma=1.0")
    train(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(owner, "step", interrupting(owner.step, number))
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "cut")
    monkeypatch.setattr(NIO, "step", interrupting(NIO.step, steps))  # no step more than these
    train(config, tmp_path / "cut")
    assert losses_of(tmp_path / "cut") == losses_of(tmp_path / "whole")
    assert {f.name for f in (tmp_path / "cut").iterdir() if "events" not in f.name} == FILES


FILES = {"config.json", "metrics.jsonl", "model.safetensors", "result.json", "scales.json"}


def test_a_run_leaves_its_records(tmp_path):
    config = small(method="nio:steps=2,sub_batches=2")
    state = torch.get_rng_state()
    outcome = train(config, tmp_path)
    assert torch.equal(state, torch.get_rng_state())
    assert Config.from_json(json.loads((tmp_path / "config.json").read_text())) == config
    assert {f.name for f in tmp_path.iterdir() if "events" not in f.name} == FILES
    assert outcome.steps == len(losses_of(tmp_path)) == 8
    assert outcome.area == pytest.approx(sum(losses_of(tmp_path)) / 8)
    model = build("resnet-8")
    model.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert train(config, tmp_path) == outcome  # read, not run again
    with pytest.raises(ValueError, match="another configuration"):
        train(small(seed=1), tmp_path)


HOLDER = """
import sys, time
from pathlib import Path
from neuroinit.experiments.training.folder.files import locked
with locked(Path(sys.argv[1])):
    print("mine", flush=True)
    time.sleep(600)
"""


def test_one_process_a_run(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "mine\n"
        with pytest.raises(Busy, match="Another process works in"):
            train(small(epochs=1), tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
        child.kill()
    assert train(small(epochs=1), tmp_path).steps == 4
    assert not (tmp_path / ".lock").exists()


@pytest.mark.parametrize("text", ['{"hidden_size": 768}', "[]", "no JSON", '{"epochs": 0}'])
def test_a_folder_of_something_else_is_refused(text, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config.json` is not the configuration of a run: choose"):
        train(small(), tmp_path)
    assert (tmp_path / "config.json").read_text() == text


def test_a_run_learns(tmp_path):
    config = small(train_images=1024, epochs=4, batch_size=64, schedule="constant")
    assert train(config, tmp_path).accuracy > 0.6


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path):
    outcome = train(small(model="resnet-8-nobn", lr=1e8, clip=0.0, epochs=9), tmp_path)
    assert outcome.diverged
    assert outcome.steps < 36
    assert outcome.area is None
    assert losses_of(tmp_path)[-1] is None  # JSON has no nan


def test_a_run_that_was_killed_after_it_diverged_is_tested(tmp_path, monkeypatch):
    config = small(model="resnet-8-nobn", lr=1e8, epochs=9)
    expected = train(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "test", interrupting(Run.test, 0))
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "cut", minutes=0.0)
    outcome = train(config, tmp_path / "cut")
    assert (outcome.diverged, outcome.steps) == (True, expected.steps)
    assert outcome.accuracy == expected.accuracy


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.0}, "`lr` should be"),
        ({"method": "magic"}, "no initialization `magic`"),
        ({"model": "vgg"}, "no model `vgg`"),
        ({"data": "mnist"}, "no data `mnist`"),
        ({"data": "cifar10"}, "--download"),
        ({"data": "folder:nowhere"}, "no folder `nowhere`"),
        ({"batch_size": 1000}, "more than the 128"),
        ({"model": "resnet-21"}, "6n"),
    ],
)
def test_errors_come_before_the_work(tmp_path, changes, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train(small(**changes), tmp_path, root=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_model_is_trained_in_place_without_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(3)
    model = build("resnet-8")
    before, state = model.conv.weight.clone(), torch.get_rng_state()
    outcome = train_model(model, small(epochs=1), load("digits", train_images=128, test_images=64))
    assert outcome.steps == 4
    assert not torch.equal(model.conv.weight, before)
    assert torch.equal(state, torch.get_rng_state())
    assert list(tmp_path.iterdir()) == []
