"""What a model's own code changes while it is borrowed comes back."""

from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni


class Recording(nn.Module):
    """Its forward pass changes a set, a list, a dict, a tensor and attributes."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)
        self.sizes, self.calls, self.last = {99}, [], {"size": 0}
        self.total, self.passes = torch.zeros(1), 0

    def forward(self, x):
        self.sizes.add(len(x))
        self.sizes.discard(99)
        self.calls.append(len(x))
        self.last["size"], self.last["new"] = len(x), True
        self.total += len(x)
        self.passes += 1
        self.late = True
        return self.body(x)


def test_sets_lists_dicts_tensors_and_attributes_come_back():
    model = Recording()
    own = (model.sizes, model.calls, model.last, model.total)
    ni.gradient_stats(model, (torch.randn(8, 4), torch.randint(3, (8,))), F.cross_entropy)
    assert (model.sizes, model.calls, model.last) == ({99}, [], {"size": 0})
    assert model.total.item() == model.passes == 0
    assert not hasattr(model, "late")
    now = (model.sizes, model.calls, model.last, model.total)
    assert all(a is b for a, b in zip(own, now, strict=True))


class Replacing(nn.Module):
    """Its forward pass replaces a buffer, and makes another one."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)
        self.register_buffer("shift", torch.zeros(3))

    def forward(self, x):
        self.shift = self.shift + 1
        self.register_buffer("more", torch.ones(3))
        return self.body(x) + self.shift


@pytest.mark.parametrize("table", [dict, OrderedDict])  # modules of older versions of torch
def test_buffers_come_back_in_any_table(table):
    model = Replacing()
    model._buffers, model._parameters = table(model._buffers), table(model._parameters)
    own = model.shift
    ni.gradient_stats(model, (torch.randn(8, 4), torch.randint(3, (8,))), F.cross_entropy)
    assert model.shift is own
    assert not own.any()
    assert [name for name, _ in model.named_buffers()] == ["shift"]
