"""Ranks untrained networks by zero-cost proxies, trains them, and says how well each proxy ranked.

pip install "neuroinit[demo]"
python examples/rank_architectures.py --out docs/evidence/ranking.md
"""

import argparse
import itertools
import math
import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import nn

import neuroinit as ni
from neuroinit.choose.score import METRICS
from neuroinit.common.files import write_text
from neuroinit.experiments.data.digits import digits
from neuroinit.experiments.data.split import Split
from neuroinit.experiments.models import small_networks as made
from neuroinit.experiments.training.simple_loop import train

LOWER_IS_BETTER = ("theta",)
EPOCHS, LEARNING_RATE, MOMENTUM, RESAMPLES = 3, 0.02, 0.9, 2000


def networks() -> dict[str, Callable[[], nn.Module]]:
    """Perceptrons, residual perceptrons and convolutional networks of several sizes."""
    found: dict[str, Callable[[], nn.Module]] = {}
    for activation in (nn.ReLU, nn.Tanh):
        for depth, width in itertools.product((1, 3, 6), (8, 32, 96)):
            found[f"mlp, {activation.__name__}, {depth} x {width}"] = (
                lambda d=depth, w=width, a=activation: made.plain_mlp(d, w, a)
            )
        for depth, width in itertools.product((1, 2, 4), (4, 12)):
            found[f"cnn, {activation.__name__}, {depth} x {width}"] = (
                lambda d=depth, w=width, a=activation: made.plain_cnn(d, w, a)
            )
    for depth, width in itertools.product((2, 4), (4, 12)):
        found[f"cnn with BatchNorm, {depth} x {width}"] = lambda d=depth, w=width: (
            made.normalized_cnn(d, w)
        )
    for blocks in (1, 3):
        found[f"residual mlp, {blocks} blocks"] = lambda b=blocks: made.residual_mlp(b, 64, nn.Tanh)
    return found


def measure(make: Callable[[], nn.Module], data: Split, seeds: int) -> dict[str, float]:
    """Scores at initialization and test accuracy after a short training, mean over seeds."""
    runs = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        model = make()
        (batch,) = data.batches(1, 64, seed)
        scores = ni.score(model, batch)
        options = {"lr": LEARNING_RATE, "momentum": MOMENTUM, "epochs": EPOCHS, "seed": seed}
        runs.append({**scores, "accuracy": train(model, data, **options).accuracy})
    return {key: statistics.fmean(run[key] for run in runs) for key in runs[0]}


def correlation(
    rows: list[dict[str, float]], metric: str, resamples: int
) -> tuple[float, float, float]:
    """Spearman's correlation with the accuracy, and its 95% bootstrap interval over networks."""
    sign = -1 if metric in LOWER_IS_BETTER else 1
    table = np.array([(sign * row[metric], row["accuracy"]) for row in rows])
    generator = np.random.default_rng(0)
    draws = []
    for _ in range(resamples):
        sample = table[generator.integers(len(table), size=len(table))]
        if np.ptp(sample[:, 0]) > 0 and np.ptp(sample[:, 1]) > 0:
            draws.append(spearmanr(sample).statistic)
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(spearmanr(table).statistic), float(low), float(high)


def page(rows: dict[str, dict[str, float]], seeds: int, resamples: int) -> str:
    """The correlations, then every network."""
    found = list(rows.values())
    ranked = {metric: correlation(found, metric, resamples) for metric in METRICS}
    best = max(ranked, key=lambda metric: ranked[metric][0])
    lines = [
        "# Ranking untrained networks",
        "",
        "Can a score of an untrained network predict how well it trains?",
        f"**`{best}` ranked the networks best here**, with a rank correlation of",
        f"{ranked[best][0]:.2f}. This is one task, one learning rate and a short training, in",
        "which networks with larger gradients learn faster. It says nothing about other tasks, or",
        "about long trainings with tuned settings.",
        "",
        f"{len(rows)} small networks were scored at their initialization by `ni.score`, on one",
        f"batch of 64 digits of scikit-learn. Then they were trained for {EPOCHS} epochs (SGD",
        f"{LEARNING_RATE}, momentum {MOMENTUM}). All numbers are means over {seeds} seeds. The",
        "first table has Spearman's correlation of each score with the test accuracy. It is",
        "positive if the score ranks as it is meant to; theta is meant to be low. The intervals",
        f"are 95% bootstrap intervals over networks ({resamples} resamples).",
        "",
        "    python examples/rank_architectures.py --out docs/evidence/ranking.md",
        "",
        "| score | Spearman | 95% interval |",
        "|---|---|---|",
    ]
    for metric, (value, low, high) in sorted(ranked.items(), key=lambda item: -item[1][0]):
        lines.append(f"| {metric} | {value:+.2f} | {low:+.2f} to {high:+.2f} |")
    lines += [
        "",
        "<details>",
        "<summary>All networks</summary>",
        "",
        f"| network | accuracy | {' | '.join(METRICS)} |",
        "|---" * (len(METRICS) + 2) + "|",
    ]
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["accuracy"]):
        values = " | ".join(f"{row[metric]:.3g}" for metric in METRICS)
        lines.append(f"| {name} | {row['accuracy']:.1%} | {values} |")
    return "\n".join([*lines, "", "</details>"]) + "\n"


def main() -> None:
    """Score, train, correlate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the page here instead of printing it")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a short run, for tests")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data, chosen = digits(), networks()
    seeds, resamples = (1, 50) if options.quick else (options.seeds, RESAMPLES)
    if options.quick:
        chosen = dict(list(chosen.items())[:6])
    rows = {name: measure(make, data, seeds) for name, make in chosen.items()}
    rows = {name: row for name, row in rows.items() if all(map(math.isfinite, row.values()))}
    text = page(rows, seeds, resamples)
    if options.out:
        write_text(options.out, text)
    else:
        print(text)


if __name__ == "__main__":
    main()
