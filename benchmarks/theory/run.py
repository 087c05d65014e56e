"""The paper's theory, tried on small networks whose sample optima can be found.

    make theory                  # what is missing, then the tables and figures; resumable

A *start* is one draw of the weights of a network, plain or with every weight tensor multiplied by
a random factor from 1/3 to 3. From every start each of 16 samples is trained alone until its loss
is almost zero: that is its optimum. Theta (Eq. 2) is computed from these optima, its one-step form
(Eq. 4) from the gradients, and the network is trained on all 16 samples together, which gives the
loss that Theta bounds. Then the same start is trained on the digits, and tested.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad_and_value, vmap
from torch.optim import SGD

from benchmarks.theory.sample_optima import SOLVED, Samples, descend, hull_distance, theta_of
from neuroinit.experiments.data.digits import digits
from neuroinit.experiments.data.split import Split

RESULTS = Path(__file__).with_name("theory.jsonl")
SAMPLES, STARTS, CHECKED = 16, 40, 10  # CHECKED: starts of which the steps of the proof are checked
STEPS, BATCH, RATE = 440, 32, 0.05  # of the training on the digits: ten epochs


def perceptron(widths: list[int], activation: Callable[[], nn.Module]) -> nn.Module:
    """Layers of these widths, in double precision."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(nn.Flatten(), *layers[:-1]).double()


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "MLP, 1 tanh layer": lambda: perceptron([64, 16, 10], nn.Tanh),
    "MLP, 4 ReLU layers": lambda: perceptron([64, 16, 16, 16, 16, 10], nn.ReLU),
}
FAMILIES = ("drawn", "scaled")


def squared(output: Tensor, target: Tensor) -> Tensor:
    """Half the squared distance from the one-hot target; its minimum is zero, and is reached."""
    wanted = (target[:, None] == torch.arange(10)).to(output.dtype)
    return 0.5 * (output - wanted).square().sum(-1).mean()


LOSSES = {"squared": squared, "cross-entropy": F.cross_entropy}


def made(network: str, family: str, seed: int) -> nn.Module:
    """One start."""
    torch.manual_seed(seed)
    model = NETWORKS[network]()
    if family == "scaled":
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(3 ** (2 * float(torch.rand(())) - 1))
    return model


def trained(model: nn.Module, data: Split, loss: str) -> dict[str, float]:
    """Mean loss of the training on the digits, its last losses, and the test error."""
    optimizer, losses = SGD(model.parameters(), RATE, momentum=0.9), list[float]()
    for inputs, targets in data.batches(STEPS, BATCH, 0):
        value = LOSSES[loss](model(inputs.double()), targets)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(min(float(value.detach()), 10.0) if value == value else 10.0)
    with torch.no_grad():
        wrong = model(data.test[0].double()).argmax(1) != data.test[1]
    last = losses[-len(losses) // 6 :]
    return {
        "area": round(sum(losses) / len(losses), 5),
        "last": round(sum(last) / len(last), 5),
        "error": round(float(wrong.double().mean()), 5),
    }


def run(network: str, loss: str, family: str, seed: int, data: Split) -> dict[str, Any]:
    """All quantities of one start."""
    model = made(network, family, seed)
    inputs, targets = data.batches(1, SAMPLES, 12345)[0]
    samples = Samples(model, LOSSES[loss], inputs.double(), targets)
    start, gradients = samples.start(), samples.gradients(samples.start())
    single = vmap(grad_and_value(samples.one))
    optima, left = descend(
        lambda p: single(p, samples.inputs, samples.targets), start.repeat(SAMPLES, 1)
    )
    joint = vmap(grad_and_value(samples.together))
    ends, joint_loss = descend(joint, start[None])
    one_step, cosine = theta_of(gradients)
    exact, path_cosine = theta_of(optima - start)
    found = {
        "theta": exact,
        "one_step": one_step,
        "cosine": cosine,
        "path_cosine": path_cosine,
        "norm": float(gradients.norm(dim=1).mean()),
        "unsolved": int((left > 1e-2).sum()),
        "joint_loss": float(joint_loss),
    }
    if seed < CHECKED:
        found |= proof(samples, start, optima, ends[0])
    key = {"network": network, "loss": loss, "family": family, "seed": seed}
    numbers = {k: v if isinstance(v, int) else float(f"{v:.5g}") for k, v in found.items()}
    return {**key, **numbers, **trained(model, data, loss)}


def proof(samples: Samples, start: Tensor, optima: Tensor, end: Tensor) -> dict[str, float]:
    """The steps of the proof of Theorem 2, with the largest curvature on the way as H."""
    ways = [(start, optima), (optima, end)]
    points = [a + t * (b - a) for a, b in ways for t in (0.0, 0.25, 0.5, 0.75, 1.0)]
    smoothness = max(
        float(samples.curvature(p.expand(len(optima), -1).contiguous()).max()) for p in points
    )
    losses = vmap(samples.one, (None, 0, 0))(end, samples.inputs, samples.targets)
    to_end = (end - optima).square().sum(1)
    apart = torch.cdist(optima, optima).square().sum(1)
    return {
        "smoothness": smoothness,
        "eq10": float((losses <= smoothness / 2 * to_end + SOLVED).double().mean()),
        "eq11": float((to_end <= apart).double().mean()),
        "hull": hull_distance(end - start, optima - start),
        "moved": float((end - start).norm()),
        "bound": smoothness * theta_of(optima - start)[0],
    }


def read() -> list[dict[str, Any]]:
    """The records so far."""
    whole, _, _ = (RESULTS.read_text() if RESULTS.exists() else "").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def main() -> None:
    """Run what is missing, then draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="run nothing")
    torch.set_num_threads(1)
    done = {(r["network"], r["loss"], r["family"], r["seed"]) for r in read()}
    grid = [(n, k, f, s) for s in range(STARTS) for n in NETWORKS for k in LOSSES for f in FAMILIES]
    data = digits()
    for job in [] if parser.parse_args().table else grid:
        if job not in done:
            with RESULTS.open("a") as file:
                file.write(json.dumps(run(*job, data)) + "\n")
    from benchmarks.theory.tables import figure, tables

    print(tables(read()))
    figure(read())


if __name__ == "__main__":
    main()
