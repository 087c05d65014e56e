"""Figures 2 and 3 of the paper."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from neuroinit import plots
from neuroinit.common.files import replacing
from neuroinit.common.progress import Progress
from neuroinit.experiments.data.datasets import load
from neuroinit.experiments.data.images import Data
from neuroinit.experiments.models import build
from neuroinit.experiments.paper.grid import Found, Place, spread
from neuroinit.experiments.paper.settings import Cell
from neuroinit.experiments.training.checkpoint import claimed
from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.run import device
from neuroinit.experiments.training.starts import learned, rule_
from neuroinit.gradients.statistics import GradientStats, gradient_stats
from neuroinit.gradients.sub_batches import sub_batches
from neuroinit.run.optimize import optimize
from neuroinit.run.result import load_result

BATCHES_SEED = 10_000  # of the batches that are measured: no method has seen them in this order


def save(figure: Any, path: Path) -> None:
    """Write a picture, whole or not at all."""
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def figure2(cells: Sequence[Cell], found: Found, path: Path) -> None:
    """How a batch is cut, and the test accuracy of a network started from each way."""
    made, axes = plots.figure(1, width=6.4, height=0.75 * len(cells) + 0.6)
    ax = axes[0, 0]
    for place, cell in enumerate(cells):
        size = cell.config.init_batch_size or cell.config.batch_size
        d, r = int(cell.row), float(cell.column)
        intervals = sub_batches(size, d, r, "reference")
        for i, (first, last) in enumerate(intervals):
            bottom = -place + 0.3 - 0.6 * (i + 1) / d
            color = plots.AFTER if i % 2 else plots.BEFORE
            ax.barh(bottom, last - first, 0.6 / d, first, align="edge", color=color, alpha=0.7)
        accuracies = [100 * o.accuracy for o in found[cell.group, cell.row, cell.column]]
        ax.text(1.04 * size, -place, f"{spread(accuracies, 1)} %", va="center", fontsize=9)
    ax.set_yticks([-i for i in range(len(cells))], [cell.group for cell in cells])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("samples of a batch, and test accuracy after training", fontsize=8)
    ax.set_xlim(0, 1.4 * size)
    ax.set_xticks([0, size // 2, size])
    ax.grid(visible=False)
    save(made, path)


def figure3(config: Config, batches: int, samples: int, place: Place) -> dict[str, Any]:
    """Sample-wise gradients before and after a method: records for the four panels.

    Args:
        config: Network, data, seed, and the method; its start is what the method starts from.
        batches: How many batches for panels (b) and (d).
        samples: Images of a batch.
        place: Where the records are kept.
    """
    folder = place.out / "figure3" / f"{config.model}-{_key(config, samples)}"
    data = load(config.data, place.root, place.download, None, 8, config.image_size)
    measured = list(islice(data.samples(samples, BATCHES_SEED), batches))
    folder.mkdir(parents=True, exist_ok=True)
    with claimed(folder):
        place.say(f"figure 3: {config.model}, before")
        model = _started(config, data)
        before = _stats(model, measured, folder / "before.jsonl")
        if not (folder / "scales.json").exists():
            place.say(f"figure 3: {config.model}, {config.method}")
            size = config.init_batch_size or config.batch_size
            optimize(
                model,
                data.samples(size, config.seed),
                method=learned(config.method),
                checkpoint=folder / "initialization.json",
            ).save(folder / "scales.json")
        load_result(folder / "scales.json").apply_(model)
        place.say(f"figure 3: {config.model}, after")
        return {"before": before, "after": _stats(model, measured, folder / "after.jsonl")}


def _key(config: Config, samples: int) -> str:
    """A short name of what decides the records: all images are used, and nothing is trained.

    The number of images of a batch stands where a run has its length, for one way to make keys.
    """
    return replace(config, epochs=samples, train_images=None, test_images=None).key


def _started(config: Config, data: Data) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        model = build(config.model, data.classes)
        rule_(model, config.method)
        return model.to(device())


def _stats(model: torch.nn.Module, batches: Sequence[Any], path: Path) -> dict[str, Any]:
    """Per layer on the first batch, and for all parameters on each; one line a batch in a file."""
    whole, _, torn = (path.read_text() if path.exists() else "").rpartition("\n")
    found = [json.loads(line) for line in whole.splitlines()]
    with path.open("a") as file, Progress("sample-wise gradients", len(batches)) as bar:
        file.truncate(file.tell() - len(torn))
        for batch in batches[len(found) :]:
            stats = gradient_stats(model, batch, sub_batches="samples", batch_stats="batch")
            found.append(_record(stats, layers=not found))
            file.write(json.dumps(found[-1]) + "\n")
            file.flush()
            bar.show(len(found))
    return {
        "layers": found[0]["layers"],
        "norm_ratio": [record["norm_ratio"] for record in found[: len(batches)]],
        "cosine": [record["cosine"] for record in found[: len(batches)]],
    }


def _record(stats: GradientStats, layers: bool) -> dict[str, Any]:
    weights = [layer for layer in stats.layers if layers and not layer.name.endswith("bias")]
    return {
        "norm_ratio": stats.norm_ratio,
        "cosine": stats.cosine,
        "layers": [dict(layer) for layer in weights],
    }


PANELS = (
    ("norm_ratio", "layers", "(a) norm ratio of every layer"),
    ("norm_ratio", "batches", "(b) norm ratio over batches"),
    ("cosine", "layers", "(c) cosine of every layer"),
    ("cosine", "batches", "(d) cosine over batches"),
)


def draw_figure3(records: dict[str, dict[str, Any]], path: Path) -> None:
    """The four panels, one row a network."""
    made, axes = plots.figure(4, len(records), width=2.9, height=2.4)
    for row, (title, record) in zip(axes, records.items(), strict=True):
        for ax, (quantity, kind, panel) in zip(row, PANELS, strict=True):
            for when, color, label in (
                ("before", plots.BEFORE, "Kaiming"),
                ("after", plots.AFTER, "NIO"),
            ):
                own = record[when]
                values = (
                    [layer[quantity] for layer in own["layers"]]
                    if kind == "layers"
                    else own[quantity]
                )
                ax.plot(values, ".-", color=color, label=label, linewidth=1, markersize=2)
                lost = sum(not math.isfinite(value) for value in values)
                if lost:  # the gradient of some sample is exactly zero
                    note = f"{label}: infinite or none in {lost} of {len(values)}"
                    ax.text(
                        0.5,
                        0.93,
                        note,
                        color=color,
                        fontsize=7,
                        ha="center",
                        transform=ax.transAxes,
                    )
            if quantity == "norm_ratio" and ax.get_ylim()[1] > 30:
                ax.set_yscale("log")
            ax.locator_params(axis="x", integer=True)
            ax.set_title(panel, fontsize=9)
            ax.set_xlabel("weight tensor" if kind == "layers" else "batch", fontsize=8)
        row[0].set_ylabel(title, fontsize=9)
        row[0].legend(fontsize=8, frameon=False)
    save(made, path)
