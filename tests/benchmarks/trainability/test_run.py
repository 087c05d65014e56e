"""The trainability suite: its grid, one of its jobs, and its scores."""

import itertools
import json

import pytest
import torch
from PIL import Image

import neuroinit as ni
from benchmarks.trainability.contenders import METHODS
from benchmarks.trainability.run import STARTS, jobs, packed, read, run
from benchmarks.trainability.standings import by_cell, score, tables
from benchmarks.trainability.suites import SUITES

DIGITS, OTHER = SUITES["digits"], SUITES["other"]
DISTORTIONS, STROKES = SUITES["distortions"], SUITES["strokes"]
OLDER = [suite for suite in SUITES.values() if suite not in (DISTORTIONS, STROKES)]
SEEDS = range(3)


def test_the_grid():
    count = len(DIGITS.networks)
    assert count >= 16
    assert len(STARTS) == 5
    assert len(jobs(DIGITS, ["as it is"], ["*"], SEEDS)) == 3 * 5 * count
    assert len(jobs(DIGITS, ["LSUV"], ["*"], SEEDS)) == 3 * count  # whatever the start
    assert len(jobs(OTHER, ["as it is"], ["*"], [0])) == 5 * len(OTHER.networks)
    assert jobs(DIGITS, ["as it is"], ["recurrent, tanh"], [1])[0] == (
        "as it is",
        "recurrent, tanh",
        "torch's",
        1,
    )


@pytest.mark.parametrize("name", DIGITS.networks)
def test_every_network_classifies_digits(name):
    inputs, _ = DIGITS.data("").train
    assert DIGITS.networks[name]()(inputs[:3]).shape == (3, 10)


@pytest.mark.parametrize("name", OTHER.networks)
def test_every_other_network_classifies_small_images(name):
    assert OTHER.networks[name]()(torch.randn(3, 3, 16, 16)).shape == (3, 10)


@pytest.mark.parametrize("name", DISTORTIONS.networks)
def test_every_network_tells_how_an_image_was_distorted(name):
    assert DISTORTIONS.networks[name]()(torch.randn(3, 3, 12, 12)).shape == (3, 6)


@pytest.mark.parametrize("name", STROKES.networks)
def test_every_network_tells_what_was_drawn(name):
    inputs, _ = STROKES.data("").train
    assert STROKES.networks[name]()(inputs[:3]).shape == (3, 6)


def test_the_suites_have_nothing_in_common():
    for one, other in [(DIGITS, OTHER), *itertools.product((DISTORTIONS, STROKES), OLDER)]:
        assert not set(one.networks) & set(other.networks)
        assert not set(one.optimizers) & set(other.optimizers)
    assert not set(DISTORTIONS.networks) & set(STROKES.networks)
    assert not set(DISTORTIONS.optimizers) & set(STROKES.optimizers)


def test_one_job():
    rows = run(("NIO()", "recurrent, tanh", "divided by 3", 0))
    assert [row["optimizer"] for row in rows] == list(DIGITS.optimizers)
    assert all(row["accuracy"] > 0.8 and 0 < row["area"] < 2 for row in rows)


@pytest.fixture
def two_classes(tmp_path):
    """A folder of dark and bright images."""
    generator = torch.Generator().manual_seed(0)
    for part, count in (("train", 96), ("val", 8)):
        for low, name in ((0, "dark"), (150, "bright")):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = low + torch.randint(100, (32, 32, 3), generator=generator)
                image = Image.fromarray(pixels.to(torch.uint8).numpy())
                image.save(tmp_path / part / name / f"{i}.png")
    return f"folder:{tmp_path}"


def test_one_job_of_the_other_suite(two_classes):
    """Any start makes 100%."""
    inputs, _ = OTHER.data(two_classes).train
    assert inputs.shape == (192, 3, 16, 16)
    assert inputs.std() == pytest.approx(1.0)
    rows = run(("as it is", "dense CNN, 6 layers", "torch's", 0), "other", two_classes)
    assert [row["optimizer"] for row in rows] == list(OTHER.optimizers)
    assert rows[0]["accuracy"] == 1.0


def test_one_job_of_distorted_images(two_classes):
    data = DISTORTIONS.data(two_classes)
    assert data.train[0].shape == (192, 3, 12, 12)
    assert data.train[0].std() == pytest.approx(1.0)
    assert len(data.test[0]) == 16  # other images
    assert set(data.train[1].tolist()) == set(range(6))
    rows = run(("as it is", "gMLP, 5 blocks, LayerNorm", "torch's", 0), "distortions", two_classes)
    assert [row["optimizer"] for row in rows] == list(DISTORTIONS.optimizers)


def test_one_job_of_strokes():
    data = STROKES.data("")
    assert data.train[0].shape == (6400, 16, 2)
    assert data.train[0].std() == pytest.approx(1.0)
    assert data.test[1].bincount().max() < 0.2 * len(data.test[1])
    rows = run(("as it is", "cross network, 4 layers and 3", "torch's", 0), "strokes")
    assert [row["optimizer"] for row in rows] == list(STROKES.optimizers)
    assert rows[0]["accuracy"] > STROKES.good


def test_a_method_that_refuses_leaves_the_start(monkeypatch):
    def refuse(model, batches, optimizer):
        model[1].weight.data.zero_()
        raise ni.GradientError("no")

    monkeypatch.setitem(METHODS, "NIO()", type(METHODS["NIO()"])(refuse))
    refused = run(("NIO()", "MLP, 3 ReLU layers", "torch's", 0))
    alone = run(("as it is", "MLP, 3 ReLU layers", "torch's", 0))
    assert [r["accuracy"] for r in refused] == [r["accuracy"] for r in alone]
    assert refused[0]["error"] == "no"


def row(method, start, accuracy, area=1.0):
    cell = {"network": "n", "start": start, "optimizer": "o", "seed": 0}
    return {"method": method, **cell, "accuracy": accuracy, "area": area, "seconds": 2.0}


def test_scores():
    before = [row("as it is", "a", 0.95), row("as it is", "b", 0.5), row("as it is", "c", 0.1)]
    after = [row("NIO()", "a", 0.8), row("NIO()", "b", 0.9), row("NIO()", "c", 0.2, 4.0)]
    found = by_cell([*before, *after, row("LSUV", "a", 0.92)], ["a", "b", "c"])
    assert score(found["NIO()"], found["as it is"], 0.9) == {
        "cells": 3,
        "trains": 1,
        "rescued": 1,
        "worse": 1,
        "area": 2.0,
        "refused": 0,
        "seconds": 2.0,
    }
    assert score(found["LSUV"], found["as it is"], 0.9)["trains"] == 3  # from whatever start


def test_tables_are_of_shared_cells():
    """Changed forms have the first seed only, and are held against the others' first seed."""
    starts, changed = ["a", "b"], "NIO(), no ascent"
    rows = [row("as it is", "a", 0.95), row("as it is", "b", 0.5)]
    rows += [row("NIO()", "a", 0.8), row("NIO()", "b", 0.9)]
    rows += [{**r, "seed": 1} for r in rows]
    rows += [row(changed, start, 0.91, 4.0) for start in starts]
    wanted = [(r["method"], "n", r["start"], r["seed"]) for r in rows]
    methods, anyone, networks, forms, _, of_forms = tables(rows, starts, wanted, 0.9).split("\n\n")
    assert "| NIO() | 2 of 4 (50%) | 2 of 2 | 2 | 1.00 | 0 | 2.0 |" in methods
    assert changed not in methods
    assert anyone.startswith("4 of 4 cells")
    assert "| n (4) | 2 | 2 |" in networks
    assert f"| {changed} | 2 of 2 (100%) | 1 of 1 | 0 | 4.00 | 0 | 2.0 |" in forms
    assert "| n (2) | 1 | 1 | 2 |" in of_forms


def test_a_line_that_was_cut_off_does_not_count(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps({"a": 1}) + "\n" + '{"a": 2')
    assert read(path) == [{"a": 1}]


def test_what_cells_share_is_written_once(tmp_path):
    path = tmp_path / "results.jsonl"
    rows = [row("NIO()", "a", 0.95), {**row("NIO()", "a", 0.5), "optimizer": "p"}]
    path.write_text(packed(rows) * 2)
    assert read(path) == rows * 2
    assert path.read_text().count("NIO()") == 2
