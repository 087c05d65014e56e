"""The ``reference`` forms against the originals, written out in plain autograd in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from tests.methods import rivals
from tests.methods.cases import running_statistics
from tests.methods.lsuv_oracle import lsuv
from tests.methods.test_gradinit import SEEN, normalized
from tests.methods.test_lsuv import Far, drawn_start
from tests.utils.architectures import case
from torch import Tensor, nn

import neuroinit as ni
from benchmarks.faults.users.checks import Case, near, refused, sure, unchanged
from neuroinit.experiments.models import build
from neuroinit.experiments.models.fixup import FixupBlock, FixupBottleneck, scalar_names


def gradinit(engine: str, options: dict[str, Any]) -> None:
    """Scales of biases may reach 0, and some layers only count in the norm and move."""
    model, batches = normalized()
    theirs: dict[str, Any] = {"bias_floor": 0.0, "names": SEEN, "unscaled": ("temperature",)}
    expected, kinds = rivals.gradinit(
        model, batches, F.cross_entropy, steps=10, lr=0.2, **theirs, **options
    )
    method = ni.GradInit.reference(steps=10, lr=0.2, **options)
    with unchanged(model):
        found = ni.optimize(model, batches, F.cross_entropy, method, engine=engine)
    sure([r.constrained for r in found.history] == kinds, "other kinds of steps")
    near(found.scales, expected, 1e-7)


def floor() -> None:
    """The floor of biases is 0 in the reference form, and 0.01 by default."""
    sure(ni.GradInit.reference().min_bias_scale == 0, "another floor")
    sure(ni.GradInit().min_bias_scale is None and ni.GradInit().min_scale == 0.01, "another floor")


def two_moments() -> None:
    """The fairseq code's second moment for each kind of step, on numbers."""
    update = ni.TwoMomentAdam(shared=False)
    scales = torch.ones(1, dtype=torch.float64)
    state, first, second, counts = update.init(scales), [0.0, 0.0], [0.0, 0.0], [0, 0]
    expected = 1.0
    for g, kind in ((0.5, 0), (-0.3, 1), (0.2, 0), (0.9, 1), (0.1, 1)):
        scales, state = update.step(
            scales, torch.tensor([g], dtype=torch.float64), 0.1, bool(kind), state
        )
        counts[kind] += 1
        first[kind] = 0.9 * first[kind] + 0.1 * g
        second[kind] = 0.999 * second[kind] + 0.001 * g * g
        root = math.sqrt(second[kind] / (1 - 0.999 ** counts[kind])) + 1e-8
        expected -= 0.1 * first[kind] / (1 - 0.9 ** counts[kind]) / root
    near(scales, [expected], 1e-12)


def metainit(name: str, engine: str, lr: float) -> None:
    """BatchNorm has its running statistics, and a norm may become negative."""
    torch.manual_seed(0)
    found = case(name)
    model = found.build()
    running_statistics(model)
    batches = [found.batch(n) for n in (9, 12, 15)]
    expected, _ = rivals.metainit_listing(model, batches, found.loss_fn, steps=6, lr=lr)
    with unchanged(model):
        method = ni.MetaInit.reference(steps=6, lr=lr)
        result = ni.optimize(model, batches, found.loss_fn, method, engine=engine)
    near(result.scales, expected, 1e-8)


def lsuv_package(scale: float, tolerance: float, reference: bool) -> None:
    """Unbiased deviations, eleven corrections, eval mode; by default as in the paper."""
    torch.manual_seed(0)
    model, inputs = Far().double(), scale * torch.randn(6, 2, 4, 4).double() + 1
    running_statistics(model)
    for layer in (model.conv, model.attention.out_proj, model.out):
        nn.init.normal_(layer.bias, std=3.0)
    make = ni.LSUV.reference if reference else ni.LSUV
    options = {"deviation": reference, "tries": 11 if reference else 10, "running": reference}
    with unchanged(model):
        result = ni.optimize(
            model, [inputs], None, make(exclude=("*bias",), tolerance_var=tolerance)
        )
    start = drawn_start(result, model)
    expected = lsuv(start, lambda model: model(inputs), tolerance=tolerance, **options)
    own, theirs = dict(start.named_parameters()), dict(expected.named_parameters())
    for name, factor in result.scales.items():
        near(factor * own[name].data, theirs[name].data, 1e-9)


def attention(heads: int, batch_first: bool) -> None:
    """The output of attention has unit variance."""
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, heads, batch_first=batch_first)

    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = layer

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(x, x, x, need_weights=False)[0]

    model, inputs = Attending(), 5 * torch.randn(8, 7, 16)
    ni.lsuv_(model, [inputs])
    sure(abs(model(inputs).var().item() - 1) < 0.1, f"variance {model(inputs).var().item()}")


def _random(module: nn.Module) -> Any:
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.double()


def block(halves: bool) -> None:
    """The shortcut that halves the image comes after ``bias1a``, with zero channels behind."""
    own = _random(FixupBlock(6, 12 if halves else 6, 2 if halves else 1))
    x = torch.randn(2, 6, 8, 8).double()
    hidden = F.relu(F.conv2d(x + own.bias1a, own.conv1.weight, None, own.stride, 1) + own.bias1b)
    branch = F.conv2d(hidden + own.bias2a, own.conv2.weight, padding=1) * own.scale + own.bias2b
    shortcut = x
    if halves:
        shortcut = torch.zeros(2, 12, 4, 4).double()
        shortcut[:, :6] = (x + own.bias1a)[:, :, 0::2, 0::2]
    near(own(x), F.relu(shortcut + branch), 1e-12)


def bottleneck() -> None:
    """ResNet-50's block."""
    own, x = _random(FixupBottleneck(6, 4, 2)), torch.randn(2, 6, 8, 8).double()
    hidden = F.relu(F.conv2d(x + own.bias1a, own.conv1.weight) + own.bias1b)
    hidden = F.relu(F.conv2d(hidden + own.bias2a, own.conv2.weight, None, 2, 1) + own.bias2b)
    branch = F.conv2d(hidden + own.bias3a, own.conv3.weight) * own.scale + own.bias3b
    near(own(x), F.relu(F.conv2d(x + own.bias1a, own.shortcut.weight, None, 2) + branch), 1e-12)


def deviations(name: str) -> None:
    """Kaiming's values by fan-out, zeros, and torch's own values for the first layer."""
    torch.manual_seed(0)
    model: Any = build(name)
    ni.fixup_(model)
    bound = 1 / math.sqrt(model.conv.weight[0].numel())
    near(model.conv.weight.std().item(), bound / math.sqrt(3), 0.1)
    sure(model.conv.weight.abs().max() <= bound, "the first layer is not torch's")
    blocks = len(model.blocks)
    for own in model.blocks:
        *first, last = own.fixup_branch
        sure(not last.weight.any(), "a last layer is not zero")
        for layer in first:
            fan_out = layer.out_channels * layer.weight[0, 0].numel()
            near(
                layer.weight.std().item(),
                math.sqrt(2 / fan_out) * blocks ** (-0.5 / len(first)),
                0.1,
            )
    sure(not model.classifier.weight.any(), "the classifier is not zero")


def rates() -> None:
    """Biases and scales of the experiments' FixUp networks have a tenth of the learning rate."""
    from neuroinit.experiments.training.config import Config
    from neuroinit.experiments.training.optimizers import make_optimizer, set_rate

    model = build("fixup-resnet-8")
    made = make_optimizer(model, Config(lr=0.1))
    set_rate(made, 0.1)
    slow = scalar_names(model)
    named = {id(p): n for n, p in model.named_parameters()}
    for group in made.param_groups:
        for parameter in group["params"]:
            wanted = 0.01 if named[id(parameter)] in slow else 0.1
            near(group["lr"], wanted, 1e-12)


def other_model() -> None:
    """A network that was not made for FixUp is refused."""
    model = nn.Sequential(nn.Linear(3, 3))
    with unchanged(model), refused(ValueError, "`fixup_branch`"):
        ni.fixup_(model)


def cases() -> Iterator[Case]:
    """Items 14 to 17."""
    kinds: dict[str, dict[str, Any]] = {
        "the norm": {"gamma": 1e-6},
        "the loss": {"gamma": 1e6},
        "both": {"gamma": 2.0},
        "through the update": {"gamma": 1e6, "through_update": True},
        "Adam": {"gamma": 1e6, "family": "adam", "eta": 0.01},
    }
    named: list[tuple[int, str, Callable[[], None]]] = []
    for engine in ("keep", "stream"):
        for name, options in kinds.items():
            named.append((14, f"{name}: `{engine}`", partial(gradinit, engine, options)))
        for name in ("batch_norm_1d", "batch_norm_2d"):
            for lr in (0.1, 0.3):
                named.append(
                    (15, f"{name}, lr = {lr}: `{engine}`", partial(metainit, name, engine, lr))
                )
    named += [(14, "the floors", floor), (14, "fairseq's second moments", two_moments)]
    for scale in (1.0, 3.0, 30.0):
        for reference in (True, False):
            form = "the package" if reference else "the paper"
            named.append(
                (
                    16,
                    f"{form}, inputs times {scale:g}",
                    partial(lsuv_package, scale, 1e-3, reference),
                )
            )
    for heads in (1, 4):
        for first in (True, False):
            named.append(
                (
                    16,
                    f"attention, {heads} heads, batch_first = {first}",
                    partial(attention, heads, first),
                )
            )
    for halves in (False, True):
        named.append((17, f"a block, halves = {halves}", partial(block, halves)))
    named += [(17, "ResNet-50's block", bottleneck), (17, "a tenth of the rate", rates)]
    for name in ("fixup-resnet-20", "fixup-resnet-32", "fixup-resnet50"):
        named.append((17, f"deviations of {name}", partial(deviations, name)))
    named.append((17, "another network", other_model))
    for item, name, check in named:
        yield Case(item, name, check)
