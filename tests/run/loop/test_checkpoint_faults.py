"""Checkpoints of other runs, damaged ones, two runs on one file, disks that are full."""

import os
import random
import resource
import signal
import warnings

import pytest
import torch
import torch.nn.functional as F

import neuroinit as ni
from neuroinit.common.files import STALE, FileLock
from tests.utils.shared import plain

METHOD = ni.NIO(steps=3, gamma=0.1)


class Stop(Exception):
    """What ends a run in the middle."""


def stop(record):
    if record.step == 1:
        raise Stop


def batches(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(16, 5, generator=generator), torch.randint(3, (16,), generator=generator))
        for _ in range(4)
    ]


def run(path, **changes):
    torch.manual_seed(0)
    options = {"batches": batches(), "method": METHOD, "checkpoint": path, "checkpoint_every": 1}
    return ni.optimize(plain(), **{**options, **changes})


@pytest.fixture
def path(tmp_path):
    """The checkpoint of a run that was stopped after a step."""
    with pytest.raises(Stop):
        run(tmp_path / "run.json", on_step=stop)
    return tmp_path / "run.json"


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"batches": batches(1)}, "other data: the first batch differs"),
        ({"loss_fn": lambda y, t: 2 * F.cross_entropy(y, t)}, "another loss"),
        ({"autocast": torch.bfloat16}, "another `autocast`"),
    ],
)
def test_a_run_with_something_else_is_refused(path, changes, what):
    with pytest.raises(ValueError, match=rf"run.json` belongs to a run with {what}"):
        run(path, **changes)
    assert run(path).scales == run(None).scales


class Sequences(torch.nn.Linear):
    def forward(self, sequences):
        return super().forward(torch.stack([s.mean(0) for s in sequences]))


class Bag:
    """A batch of a type of its own, with its tensors as attributes."""

    def __init__(self, sequences, labels):
        self.sequences, self.labels = sequences, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, part):
        return Bag(self.sequences[part], self.labels[part])


def nested(sequences, labels):
    return torch.nested.as_nested_tensor(sequences, layout=torch.jagged), labels


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("kind", [Bag, nested])
def test_other_data_of_any_kind_is_refused(tmp_path, kind):
    def loss(model, batch):
        sequences, labels = (batch.sequences, batch.labels) if isinstance(batch, Bag) else batch
        return F.cross_entropy(model(list(sequences)), labels)

    def go(seed, **options):
        torch.manual_seed(seed)
        batch = kind([torch.randn(2 + k % 3, 5) for k in range(16)], torch.arange(16) % 3)
        torch.manual_seed(0)
        model, options = Sequences(5, 3), {"checkpoint_every": 1, **options}
        return ni.optimize(
            model, [batch], compute_loss=loss, method=METHOD, checkpoint=tmp_path / "c", **options
        )

    with pytest.raises(Stop):
        go(1, on_step=stop)
    with pytest.raises(ValueError, match="a run with other data: the first batch differs"):
        go(2)
    assert go(1).scales


@pytest.mark.parametrize("changes", [{"engine": "stream", "microbatch": 2}, {"memory_limit": 1}])
def test_less_memory_is_used_on_resume(path, changes):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A step needs about")
        found = run(path, **changes)
    assert found.engine == "stream"
    assert found.scales == pytest.approx(run(None).scales, rel=1e-4)


def test_damage_is_one_error_with_the_path(path):
    generator, content = random.Random(0), path.read_bytes()
    for _ in range(40):
        changed, place = bytearray(content), generator.randrange(len(content))
        if generator.random() < 0.5:
            changed[place] ^= 1 << generator.randrange(8)
        else:
            del changed[place : place + generator.randint(1, len(content))]
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=r"run\.json`.* Remove the file"):
            run(path)
        assert path.read_bytes() == changed


def test_two_runs_on_one_file(path):
    lock = FileLock(path)
    with pytest.raises(ValueError, match=r"Another run uses the checkpoint `.*run.json`"):
        run(path)
    lock.close()
    run(path)
    assert not list(path.parent.iterdir())


def test_a_result_is_not_lost_with_a_checkpoint_that_cannot_be_removed(path, monkeypatch):
    remove, expected = type(path).unlink, run(None).scales

    def refuse(self, missing_ok=False):
        if self == path:
            raise PermissionError(13, "Permission denied")
        remove(self, missing_ok)

    monkeypatch.setattr(type(path), "unlink", refuse)
    with pytest.warns(UserWarning, match=r"run.json` could not be removed: Permission denied"):
        assert run(path).scales == expected


def test_a_full_disk_names_the_path(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        with pytest.raises(OSError, match=r"run.json` cannot be written: File too large"):
            run(tmp_path / "run.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
    assert not list(tmp_path.iterdir())


def test_temporary_files_of_killed_processes_are_removed(tmp_path):
    left = tmp_path / "run.json.abcd1234.tmp"
    left.write_text("half")
    run(tmp_path / "run.json")
    assert not list(tmp_path.iterdir())
    old, new = tmp_path / "result.json.abcd1234.tmp", tmp_path / "result.json.efgh5678.tmp"
    for file in (old, new):
        file.write_text("half")
    os.utime(old, (0, os.stat(new).st_mtime - STALE - 1))
    run(None).save(tmp_path / "result.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["result.json", new.name]
