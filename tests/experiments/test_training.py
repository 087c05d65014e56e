"""Training runs: what they leave behind, and that a killed one goes on as if it had not been."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from neuroinit.experiments.data import datasets as data
from neuroinit.experiments.data import images
from neuroinit.experiments.data.augment import Augmentation
from neuroinit.experiments.models import build
from neuroinit.experiments.training.checkpoint import Busy
from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.run import Run
from neuroinit.experiments.training.starts import METHODS, RULES, parse, start_
from neuroinit.experiments.training.train import train
from neuroinit.methods.nio.method import NIO

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
    """Noise, as files of 40x40 pixels."""
    generator = torch.Generator().manual_seed(0)
    root = tmp_path_factory.mktemp("images")
    for part, name in itertools.product(("train", "val"), ("cat", "dog")):
        (root / part / name).mkdir(parents=True)
        for i in range(16):
            pixels = torch.randint(256, (40, 40, 3), generator=generator, dtype=torch.uint8)
            Image.fromarray(pixels.numpy()).save(root / part / name / f"{i}.png")
    return root


def losses_of(folder):
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if "loss" in record]


CHILD = """
import json, sys
from pathlib import Path
from neuroinit.experiments import data, images
from neuroinit.experiments.config import Config
from neuroinit.experiments.train import train
import torch
torch.set_num_threads(1)
data.MEMORY, images.WORKERS = int(sys.argv[3]), 1
train(Config.from_json(json.loads(sys.argv[1])), Path(sys.argv[2]), minutes=0.0)
"""


@pytest.mark.parametrize(
    "changes",
    [
        {"clip": 1.0, "method": "nio:steps=2,sub_batches=2"},
        {"model": "torchvision:squeezenet1_1", "batch_size": 8, "image_size": 32, "lr": 0.01},
        {"model": "swin-cifar", "optimizer": "adamw", "lr": 1e-3, "warmup_epochs": 1.0,
         "augmentation": Augmentation(crop=1, mixup=0.8, cutout=2)},
    ],
    ids=["sgd", "dropout and files", "adamw"],
)  # fmt: skip
def test_a_killed_run_goes_on_bit_by_bit(tmp_path, folder, changes, monkeypatch):
    if "image_size" in changes:  # a folder, decoded by a worker
        changes = {**changes, "data": f"folder:{folder}"}
        monkeypatch.setattr(data, "MEMORY", 0)
        monkeypatch.setattr(images, "WORKERS", 1)
    config = small(epochs=5, **changes)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    expected = train(config, whole)
    command = [sys.executable, "-c", CHILD, json.dumps(config.to_json())]
    command += [str(killed), str(data.MEMORY)]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "COLUMNS": "80"})
    metrics = killed / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (metrics.exists() and len(metrics.read_text().splitlines()) >= 5):
        assert child.poll() is None, child.stderr.read()
        assert time.monotonic() < deadline
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stderr.close()
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
    config = small(epochs=1, method="nio:steps=14,sub_batches=2,tolerance=0.0")
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
from neuroinit.experiments.checkpoint import claimed
with claimed(Path(sys.argv[1])):
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
    with pytest.raises(ValueError, match=r"config.json` is not of a run: choose another folder"):
        train(small(), tmp_path)
    assert (tmp_path / "config.json").read_text() == text


def test_a_run_learns(tmp_path):
    config = small(train_images=1024, epochs=4, batch_size=64, schedule="constant")
    assert train(config, tmp_path).accuracy > 0.6


def test_nothing_moves_digits_unless_asked():
    assert Config().augmentation == Augmentation(crop=0, flip=False)
    assert Config(augmentation=Augmentation(cutout=2)).augmentation.cutout == 2
    asked = Config(augmentation=Augmentation(crop=1, flip=True)).augmentation
    assert (asked.crop, asked.flip) == (1, True)
    for name in ("cifar10", "folder:here"):
        assert Config(data=name).augmentation == Augmentation(crop=4, flip=True)


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


def test_the_schedule():
    steps = 10
    warm = Config(epochs=4, warmup_epochs=1, lr=1.0)
    assert [warm.rate(s, steps) for s in (0, 4, 9)] == [0.1, 0.5, 1.0]
    assert warm.rate(39, steps) < 0.01
    stepped = Config(epochs=4, schedule="step", milestones=(1, 3), lr=1.0)
    assert [round(stepped.rate(s, steps), 9) for s in (9, 10, 30)] == [1.0, 0.1, 0.01]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.0}, "`lr` should be"),
        ({"method": "magic"}, "no start `magic`"),
        ({"method": "nio:steps"}, "should look like"),
        ({"method": "nio:depth=3"}, "depth"),
        ({"method": "kaiming:depth=3"}, "no settings"),
        ({"method": "kaiming+magic"}, "no start"),
        ({"model": "vgg"}, "no model `vgg`"),
        ({"data": "mnist"}, "no data `mnist`"),
        ({"data": "cifar10"}, "--download"),
        ({"data": "folder:nowhere"}, "no folder `nowhere`"),
        ({"batch_size": 1000}, "more than the 128"),
        ({"model": "resnet-21"}, "6n"),
        ({"warmup_epochs": 5.0}, "`warmup_epochs = 5` is more than `epochs = 2`"),
        ({"augmentation": Augmentation(crop=-1)}, "`crop` should be an int of at least 0"),
        ({"augmentation": Augmentation(cutout=-3)}, "`cutout` should be an int of at least 0"),
        ({"augmentation": Augmentation(mixup=-1.0)}, "`mixup` should be a finite number >= 0"),
    ],
)
def test_what_is_wrong_is_said_first(tmp_path, changes, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train(small(**changes), tmp_path, root=tmp_path)


def test_kaiming_under_every_learned_start():
    torch.manual_seed(0)
    model = build("resnet-8-nobn")
    weight = model.conv.weight.clone()
    batches = [(torch.randn(16, 3, 8, 8), torch.randint(10, (16,))) for _ in range(3)]
    result = start_(model, "nio:steps=1,sub_batches=2", batches)
    assert not torch.equal(model.conv.weight, weight)
    assert set(result.scales) <= {name for name, _ in model.named_parameters()}


def test_starts_have_names():
    assert {parse(name)[1] for name in METHODS} == set(METHODS)
    assert {parse(name)[0] for name in RULES} == set(RULES)
    assert parse("default+nio:steps=2") == ("default", "nio", {"steps": 2})
