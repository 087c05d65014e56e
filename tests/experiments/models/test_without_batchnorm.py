"""Networks whose BatchNorm was replaced."""

import pytest
import torch
from torch import nn

from neuroinit.experiments.models import build
from neuroinit.experiments.models.without_batchnorm import Bias, without_batchnorm


@pytest.mark.parametrize("name", ["resnet-8", "densenet-10", "densenet-bc-10", "wrn-10-1"])
def test_every_batchnorm_becomes_a_bias(name):
    normed, plain = build(name), build(name + "-nobn")
    places = [n for n, m in normed.named_modules() if isinstance(m, nn.BatchNorm2d)]
    assert places == [n for n, m in plain.named_modules() if isinstance(m, Bias)]
    count, less = (sum(p.numel() for p in model.parameters()) for model in (normed, plain))
    assert count - less == sum(normed.get_submodule(p).num_features for p in places)
    assert all((plain.get_submodule(p).bias == 0).all() for p in places)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 5), (2, 3, 5, 4)])
def test_a_bias_is_added_to_every_channel(shape):
    bias = Bias(3)
    nn.init.normal_(bias.bias)
    x = torch.randn(shape)
    assert torch.equal(bias(x).movedim(1, -1), x.movedim(1, -1) + bias.bias)


def test_a_batchnorm_of_another_library_is_refused():
    class Special(nn.BatchNorm2d):
        pass

    with pytest.raises(ValueError, match="`Special` is not torch's BatchNorm"):
        without_batchnorm(nn.Sequential(Special(3)))
