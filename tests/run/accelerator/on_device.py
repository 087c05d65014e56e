"""Work for the test device, in a process of its own: see ``tests/run/test_accelerator.py``."""

import contextlib
import functools
import json
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from benchmarks.cost.operators import step_counts
from neuroinit.common.batches import moved
from neuroinit.gradients.plan import make_plan
from neuroinit.model.problem import Problem
from neuroinit.sharded.differences import Differences
from tests.run.accelerator.device import COUNTS, NAME, counting
from tests.utils import shared
from tests.utils.architectures import case, transformer
from tests.utils.engines import ENGINES

PLACES = ("cpu", NAME)
EVERY_ENGINE = {**ENGINES, "differences": Differences()}


def objective(moments):
    return moments.cosine + moments.norm


def derivatives(name, engine, D=2, r=0.0, batch_stats="sub-batch"):
    """The derivative of a model of the zoo on the CPU and on the device."""
    found, answers = case(name), []
    for place in PLACES:
        torch.manual_seed(0)
        model, batch = found.build().to(place), moved(found.batch(8), torch.device(place))
        problem = Problem(model, found.loss_fn, found.compute_loss)
        problem.seed = 1
        prepared = problem.prepare(batch)
        plan = make_plan(problem, prepared, D, r, "cover", batch_stats)
        point = problem.at(0.9 * problem.unit_scales)
        answers.append(EVERY_ENGINE[engine].derivative(point, prepared, plan, objective))
    return [[a.gradient.tolist(), a.value, a.loss] for a in answers]


def solved(name, engine="auto"):
    """A run of a method on the CPU and on the device; and the waits of its last step."""
    found, waits = [], []
    for place in PLACES:
        model, laps = shared.model_of(name).to(place), []
        torch.manual_seed(1)
        method = shared.CASES[name][1]
        with counting():
            result = ni.optimize(
                model,
                shared.batches(),
                F.cross_entropy,
                method,
                engine=engine,
                progress=False,
                on_step=lambda record, laps=laps: laps.append(COUNTS.waits),
            )
        found.append([list(result.scales.values()), result.after.cosine, result.after.loss])
        found[-1].append([float(p.double().sum()) for p in result.apply_(model).parameters()])
        waits = laps
    return *found, waits[-1] - waits[-2] if len(waits) > 1 else 0


def operators(kind, D, r=0.0):
    """Operators of a step and of a training step, for a batch of 32."""
    torch.manual_seed(0)
    target = torch.arange(32) % 3
    if kind != "transformer":
        norm = nn.BatchNorm2d if kind == "batch_norm" else nn.Identity
        layers = [
            part for _ in range(8) for part in (nn.Conv2d(4, 4, 3, padding=1), norm(4), nn.ReLU())
        ]
        body = nn.Conv2d(2, 4, 3), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()
        model, x = nn.Sequential(*body, nn.Linear(4, 3)), torch.randn(32, 2, 6, 6)
    else:
        model, x = transformer(), torch.randn(32, 5, 8)
    stats = "batch" if D == 32 else "sub-batch"  # a sample has no statistics of its own
    method = ni.NIO(steps=3, sub_batches=D, overlap=r, tolerance=0.0, gamma=1.0, batch_stats=stats)
    found = step_counts(model, (x, target), method)
    return found["step"]["operators"], found["training"]["operators"]


def waits(depth, D, engine, gamma=1.0):
    """The waits of a step of a network of so many layers, which explodes."""
    torch.manual_seed(0)
    layers = [part for _ in range(depth) for part in (nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU())]
    model, laps = nn.Sequential(*layers, nn.Linear(8, 3)), []
    with torch.no_grad():
        model[-1].weight *= 100
    model = model.to(NAME)
    method = ni.NIO(steps=3, sub_batches=D, tolerance=0.0, gamma=gamma)
    batch = torch.randn(32, 8), torch.randint(3, (32,))
    ni.optimize(
        model,
        [batch],
        method=method,
        engine=engine,
        progress=False,
        on_step=lambda record: laps.append(COUNTS.waits),
    )
    return laps[-1] - laps[-2]


def _network(place):
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8), nn.LayerNorm(8)]
    return nn.Sequential(*layers, nn.GELU(), nn.Linear(8, 3)).to(place)


def _images(count=3, n=16):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(n, 2, 6, 6, generator=generator), torch.arange(n) % 3) for _ in range(count)
    ]


def autocast():
    """A run in bfloat16 on the CPU and on the device."""
    found = []
    for place in PLACES:
        model, method = _network(place), ni.NIO(steps=3, sub_batches=4, gamma=1.0)
        result = ni.optimize(model, _images(), method=method, autocast=torch.bfloat16)
        found.append(list(result.scales.values()))
    return found


def chosen():
    """``auto_`` on the CPU and on the device: the winner, the scores and the parameters."""
    found = []
    candidates = {"NIO": ni.NIO(steps=2, sub_batches=4), "LSUV": ni.LSUV()}
    for place in PLACES:
        model = _network(place).double()
        batches = [(x.double(), y) for x, y in _images(6)]
        result = ni.auto_(
            model,
            batches,
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
            budget=40,
            candidates=candidates,
        )
        scores = [s for c in result.candidates for s in c.scores]
        totals = [float(p.sum()) for p in model.parameters()]
        found.append([result.winner, scores, totals])
    return found


def resumed(folder):
    """A run that is stopped and continued from its checkpoint, and one that is not stopped."""
    model, batches = _network(NAME), _images()
    method = ni.NIO(steps=4, sub_batches=4, tolerance=0.0, gamma=1.0)
    whole = ni.optimize(model, batches, method=method)

    class Stopped(Exception):
        pass

    def stop(record):
        if record.step == 2:
            raise Stopped

    path = f"{folder}/run.json"
    with contextlib.suppress(Stopped):
        ni.optimize(model, batches, method=method, checkpoint=path, on_step=stop)
    again = ni.optimize(model, batches, method=method, checkpoint=path)
    whole.save(f"{folder}/result.json")
    loaded = ni.load_result(f"{folder}/result.json")
    sums = [float(p.sum()) for p in loaded.apply_(model).parameters()]
    return json.dumps(whole.scales), json.dumps(again.scales), json.dumps(loaded.scales), sums


def random_state_is_restored():
    """Whether a run leaves the generator of the device as it was, and draws from it."""
    model = nn.Sequential(_network(NAME), nn.Dropout(0.5))
    before = torch.counted.get_rng_state()
    ni.optimize(model, _images(), method=ni.NIO(steps=2, sub_batches=4))
    kept = torch.equal(before, torch.counted.get_rng_state())
    first, second = torch.rand(3, device=NAME).cpu(), torch.rand(3, device=NAME).cpu()
    return kept, bool((first != second).all())


def mixing():
    """The error of an operator with tensors of both devices."""
    try:
        return str(torch.ones(3, device=NAME) + torch.ones(3))
    except RuntimeError as error:
        return str(error)


class OnTwo(nn.Module):
    """Its first layer is on the CPU, its second on the device."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3).to(NAME)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)).to(NAME)).to("cpu")


def on_two_devices(name):
    """Scales of a method for a model on the CPU, and for one on the CPU and the device.

    The test device lacks the slow path of torch for lists of tensors on several devices.
    """
    torch.manual_seed(0)
    batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(6)]
    found = []
    for place in PLACES:
        torch.manual_seed(1)
        model = (
            OnTwo() if place == NAME else nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        )
        with contextlib.ExitStack() as stack:
            for function in ("_foreach_norm", "_foreach_mul", "_foreach_sub"):
                one_by_one = functools.partial(_one_by_one, getattr(torch, function))
                stack.enter_context(mock.patch.object(torch, function, one_by_one))
            method = {"NIO": ni.NIO(steps=2), "MetaInit": ni.MetaInit(steps=2)}[name]
            result = ni.optimize(model, batches, method=method, progress=False)
        found.append([*result.scales.values(), result.after.loss])
    return found


def _one_by_one(function, tensors, *others):
    lists = [
        other if isinstance(other, (list, tuple)) else [other] * len(tensors) for other in others
    ]
    return [
        function([t], *[[o] if isinstance(o, torch.Tensor) else o for o in own])[0]
        for t, *own in zip(tensors, *lists, strict=True)
    ]
