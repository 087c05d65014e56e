"""What holds for GradInit, MetaInit and LSUV alike: nothing is left behind, errors are named."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from tests.utils.architectures import INNER_GRADIENT, ZOO
from tests.utils.snapshots import assert_unchanged, snapshot

pytestmark = pytest.mark.filterwarnings("ignore:All-zero tensors")


def test_a_failing_forward_pass_leaves_no_hook_behind():
    class Failing(nn.Sequential):
        def forward(self, x):
            super().forward(x)
            raise KeyError("out")

    model = Failing(nn.Linear(3, 4), nn.BatchNorm1d(4))
    batch = torch.randn(8, 3), torch.zeros(8, dtype=torch.long)
    before = snapshot(model)
    for method in (ni.MetaInit.reference(steps=1), ni.LSUV.reference()):
        with pytest.raises(KeyError, match="out"):
            ni.optimize(model, [batch], method=method)
    assert_unchanged(before, model)
    assert not model[1]._forward_pre_hooks


@pytest.mark.parametrize("method", [ni.GradInit(steps=2), ni.MetaInit(steps=2)])
def test_gradients_that_are_zero_or_not_finite(method):
    batch = torch.randn(12, 4), torch.zeros(12, dtype=torch.long)
    dead = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))  # one class: no gradient
    with pytest.raises(ni.ZeroGradientError, match="Step 0"):
        ni.optimize(dead, [batch], F.cross_entropy, method)
    huge = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    with torch.no_grad():
        huge[0].weight.fill_(1e30)
        huge[1].weight.fill_(1e30)
    with pytest.raises(ni.NonFiniteError, match="Step 0"):
        ni.optimize(huge, [batch], F.cross_entropy, method)


SHORT = [ni.GradInit(steps=2), ni.GradInit(steps=2, gamma=1e-6), ni.MetaInit(steps=2), ni.LSUV()]


@pytest.mark.filterwarnings("ignore:The gradient norm is")
@pytest.mark.parametrize("method", SHORT, ids=["loss", "norm", "quotient", "lsuv"])
@pytest.mark.parametrize("found", ZOO, ids=lambda c: c.name)
def test_the_model_is_left_as_it_was(found, method):
    if found.compute_loss in INNER_GRADIENT and isinstance(method, ni.LSUV):
        pytest.skip("refused, see test_lsuv.py")
    torch.manual_seed(0)
    model = found.build()
    before = snapshot(model)
    batches = [found.batch(9), found.batch(12)]
    result = ni.optimize(model, batches, found.loss_fn, method, found.compute_loss)
    assert_unchanged(before, model)
    result.apply_(model)
    assert_unchanged(before, model, except_for=("parameters",))
