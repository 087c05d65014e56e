"""Figure 3: gradients of single samples from Kaiming and after NIO, by layer and by batch."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import torch
from torch import nn

from neuroinit import plots
from neuroinit.common.process.random_state import isolated
from neuroinit.common.progress import Progress
from neuroinit.experiments.data.datasets import load
from neuroinit.experiments.data.images import ImageData
from neuroinit.experiments.data.split import Batch
from neuroinit.experiments.figure_files import save_figure
from neuroinit.experiments.models import build
from neuroinit.experiments.paper.run_grid import Workspace
from neuroinit.experiments.training.config import Config
from neuroinit.experiments.training.device import device
from neuroinit.experiments.training.folder.files import locked
from neuroinit.experiments.training.initializations import draw_weights_, learned_method
from neuroinit.gradients.statistics.gradient_stats import GradientStats
from neuroinit.gradients.statistics.one_batch import gradient_stats
from neuroinit.run.optimize import optimize
from neuroinit.run.results.loading import load_result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BATCHES_SEED = 10_000  # another order of the images than any method has seen


class Measured(TypedDict):
    """Norm ratio and GradCosine: of every weight tensor on the first batch, and of every batch."""

    layers: dict[str, list[float]]
    batches: dict[str, list[float]]


def measure(config: Config, batches: int, samples: int, workspace: Workspace) -> Measured:
    """Measure the gradients of single samples of an initialized model.

    What is measured already is read from files, so an interrupted measurement continues.

    Args:
        config: Network, data, seed and method.
        batches: Number of batches.
        samples: Images per batch.
        workspace: Where the files are.
    """
    folder = workspace.out / "figure3" / f"{config.model}-{_key(config, samples)}"
    data = load(config.data, workspace.root, workspace.download, None, 8, config.image_size)
    measured = list(islice(data.unaugmented(samples, BATCHES_SEED), batches))
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        workspace.report(f"figure 3: {config.model}, {config.method}")
        model = _initial_model(config, data)
        if learned_method(config.method) is not None:
            if not (folder / "scales.json").exists():
                _learn_scales(model, config, data, folder)
            load_result(folder / "scales.json").apply_(model)
        return _stats(model, measured, folder / "measured.jsonl")


def _key(config: Config, samples: int) -> str:
    """A short name for what determines the measures.

    The number of samples takes the place of ``epochs``, which has no meaning here.
    """
    return replace(config, epochs=samples, train_images=None, test_images=None).key


def _initial_model(config: Config, data: ImageData) -> nn.Module:
    with isolated():
        torch.manual_seed(config.seed)
        model = build(config.model, data.classes)
        draw_weights_(model, config.method)
        return model.to(device())


def _learn_scales(model: nn.Module, config: Config, data: ImageData, folder: Path) -> None:
    batches = data.unaugmented(config.init_size, config.seed)
    method, checkpoint = learned_method(config.method), folder / "initialization.json"
    optimize(model, batches, method=method, checkpoint=checkpoint).save(folder / "scales.json")


def _stats(model: nn.Module, batches: Sequence[Batch], path: Path) -> Measured:
    """Measure every batch; the file has one line per batch that is done."""
    whole, _, torn = (path.read_text() if path.exists() else "").rpartition("\n")
    found = [json.loads(line) for line in whole.splitlines()]
    with path.open("a") as file, Progress("gradients of samples", len(batches)) as bar:
        file.truncate(file.tell() - len(torn))
        for batch in batches[len(found) :]:
            stats = gradient_stats(model, batch, sub_batches="samples", batch_stats="batch")
            found.append(_record(stats, layers=not found))
            file.write(json.dumps(found[-1]) + "\n")
            file.flush()
            bar.show(len(found))
    layers, every = found[0]["layers"], found[: len(batches)]
    return {
        "layers": {name: [layer[name] for layer in layers] for name in QUANTITIES},
        "batches": {name: [record[name] for record in every] for name in QUANTITIES},
    }


def _record(stats: GradientStats, layers: bool) -> dict[str, object]:
    weights = [layer for layer in stats.layers if layers and not layer.name.endswith("bias")]
    return {
        "norm_ratio": stats.norm_ratio,
        "cosine": stats.cosine,
        "layers": [dict(layer) for layer in weights],
    }


QUANTITIES = ("norm_ratio", "cosine")
PANELS = (
    ("norm_ratio", "layers", "(a) norm ratio of every layer"),
    ("norm_ratio", "batches", "(b) norm ratio over batches"),
    ("cosine", "layers", "(c) cosine of every layer"),
    ("cosine", "batches", "(d) cosine over batches"),
)


COLORS = (plots.BEFORE, "#6a4c9c", "#2f7d4f", plots.AFTER)  # of the starts, in order


def draw_figure3(networks: dict[str, dict[str, Measured]], path: Path) -> None:
    """Draw the four panels, one row per network, one color per start."""
    figure, axes = plots.figure(4, len(networks), width=2.9, height=2.4)
    for row, (title, measured) in zip(axes, networks.items(), strict=True):
        for ax, (quantity, kind, panel) in zip(row, PANELS, strict=True):
            for place, (start, found) in enumerate(measured.items()):
                by_name = found["layers"] if kind == "layers" else found["batches"]
                _draw(ax, by_name[quantity], COLORS[place], start, place)
            if quantity == "norm_ratio" and ax.get_ylim()[1] > 30:
                ax.set_yscale("log")
            ax.locator_params(axis="x", integer=True)
            ax.set_title(panel, fontsize=9)
            ax.set_xlabel("weight tensor" if kind == "layers" else "batch", fontsize=8)
        row[0].set_ylabel(title, fontsize=9)
    handles, labels = axes[0][-1].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=len(labels), fontsize=8, frameon=False
    )
    save_figure(figure, path)


def _draw(ax: Axes, values: Sequence[float], color: str, label: str, place: int) -> None:
    ax.plot(values, ".-", color=color, label=label, linewidth=1, markersize=2)
    lost = sum(not math.isfinite(value) for value in values)
    if lost:  # the gradient of some sample is exactly zero
        note = f"{label}: not finite in {lost} of {len(values)}"
        height = 0.93 - 0.07 * place
        ax.text(0.5, height, note, color=color, fontsize=7, ha="center", transform=ax.transAxes)
