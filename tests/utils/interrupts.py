"""Ctrl-C at any line of a call, in one process: what is left behind."""

import os
import signal
import sys

import torch
import torch.nn.functional as F
from torch import nn

import neuroinit
from neuroinit.common.process import signals
from tests.utils.moving import ni
from tests.utils.snapshots import snapshot

HERE = os.path.dirname(os.path.abspath(neuroinit.__file__))


class Attention(nn.Module):
    """Attention, dropout, BatchNorm, a buffer and an attribute: much to restore."""

    def __init__(self):
        super().__init__()
        self.mix = nn.MultiheadAttention(4, 2, dropout=0.1, batch_first=True)
        self.drop, self.norm, self.last = nn.Dropout(), nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        x = x.reshape(len(x), 2, 4)
        x = x + self.drop(self.mix(x, x, x, need_weights=False)[0])
        return self.last(self.norm(x.mean(1)))


def model():
    torch.manual_seed(0)
    return Attention()


def batches():
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(8, 8, generator=generator), torch.randint(3, (8,), generator=generator))
        for _ in range(3)
    ]


def process_state():
    """What belongs to the whole process and has to come back."""
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "math": torch.backends.cuda.math_sdp_enabled(),
        "modes": torch._C._len_torch_function_stack(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "cudnn": torch.backends.cudnn.enabled,
        "handlers": [str(signal.getsignal(number)) for number in signals.SIGNALS],
        "deferred": _deferred(),
    }


def _deferred():
    """What happens in `deferred`: it shows whether one is still open, or a signal is waiting."""
    try:
        with signals.deferred():
            return [str(signal.getsignal(number)) for number in signals.SIGNALS]
    except KeyboardInterrupt:
        return "a signal was waiting"


def optimized(found):
    ni.optimize(found, batches(), F.cross_entropy, ni.NIO(steps=1, sub_batches=2))


def measured(found):
    ni.gradient_stats(found, batches()[0], sub_batches=2)


def chosen(found):
    sgd = torch.optim.SGD(found.parameters(), lr=1e-9)  # nothing gets better by it
    named = {"Kaiming": ni.Kaiming(), "NIO": ni.NIO(steps=1, sub_batches=2)}
    ni.auto_(found, batches(), optimizer=sgd, budget=8, candidates=named)


def applied(found):
    names = [n for n, _ in found.named_parameters()]
    ni.Result(dict.fromkeys(names, 2.0), [], None, None, {}, "none", "").apply_(found)


CALLS = {"optimize": optimized, "gradient_stats": measured, "auto_": chosen, "apply_": applied}


class Tracer:
    """A signal at one of the lines of neuroinit, contextlib and torch."""

    def __init__(self, at=None, number=signal.SIGINT):
        self.at, self.number, self.lines = at, number, 0

    def __call__(self, frame, event, argument):
        name = frame.f_code.co_filename
        if not (name.startswith(HERE) or "contextlib" in name or "/torch/" in name):
            return None
        if event in ("line", "call"):
            self.lines += 1
            if self.lines == self.at:
                signal.getsignal(self.number)(self.number, frame)  # as Python would call it here
        return self

    def __enter__(self):
        sys.settrace(self)
        return self

    def __exit__(self, *error):
        sys.settrace(None)


def lines_of(name):
    """How many lines a call has in which it can be interrupted."""
    for _ in range(2):  # the first call fills caches
        with Tracer() as tracer:
            CALLS[name](model())
    return tracer.lines


def left_behind(name, at, number=signal.SIGINT):
    """Whether the call was interrupted, and what did not come back."""
    found = model()
    before, process = snapshot(found), process_state()
    tracer = Tracer(at, number)
    try:
        with tracer:
            CALLS[name](found)
        ended = "lost" if tracer.lines >= at else "not reached"
    except KeyboardInterrupt:
        ended = "interrupted"
    sys.settrace(None)
    left = [key for key, value in process_state().items() if process[key] != value]
    after = snapshot(found)
    changed = [key for key, value in before.items() if after[key] != value]
    if name == "apply_" and changed == ["parameters"]:  # all of them, or none
        torch.manual_seed(0)
        whole = Attention()
        applied(whole)
        changed = [] if snapshot(whole)["parameters"] == after["parameters"] else changed
    return ended, left + changed
