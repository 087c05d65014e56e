"""Instance, group and RMS normalization against torch's."""

import pytest
import torch
import torch.nn.functional as F

from neuroinit.kernels.context import KernelContext, PieceParameters
from neuroinit.kernels.normalization.gain_and_bias import group_norm, instance_norm, rms_norm

torch.manual_seed(0)
X = torch.randn(4, 6, 5)
GAIN, BIAS = torch.rand(6), torch.rand(6)
PLAIN = KernelContext()
PIECES = KernelContext(pieces=PieceParameters(((0, 4),), {}))


@pytest.mark.parametrize("context", [PLAIN, PIECES])
@pytest.mark.parametrize("parameters", [(None, None), (GAIN, None), (GAIN, BIAS), (None, BIAS)])
def test_instance_norm(parameters, context):
    found = instance_norm(X, None, None, *parameters, eps=0.3, context=context)
    torch.testing.assert_close(found, F.instance_norm(X, None, None, *parameters, eps=0.3))
    found = instance_norm(X, None, None, *parameters, context=context)
    torch.testing.assert_close(found, F.instance_norm(X, None, None, *parameters))


def test_instance_norms_that_are_left_to_torch():
    running = torch.zeros(6), torch.ones(6)
    assert instance_norm(X, *running, use_input_stats=False, context=PLAIN) is None
    assert instance_norm(X[:, :, :1], context=PLAIN) is None
    assert instance_norm(X, weight=GAIN.double(), context=PLAIN) is None
    assert instance_norm(X, bias=BIAS.double(), context=PLAIN) is None
    assert instance_norm(X[:, :, :2], context=PLAIN) is not None


def test_group_norm():
    found = group_norm(X, 2, GAIN, BIAS, 0.3, context=PIECES)
    torch.testing.assert_close(found, F.group_norm(X, 2, GAIN, BIAS, 0.3))
    torch.testing.assert_close(group_norm(X, 3, GAIN, context=PIECES), F.group_norm(X, 3, GAIN))
    assert group_norm(X, 2, GAIN, BIAS, context=PLAIN) is None
    assert group_norm(X, 2, context=PIECES) is None


def test_rms_norm():
    gain = torch.rand(6, 5)
    found = rms_norm(X, (6, 5), gain, 0.3, context=PIECES)
    torch.testing.assert_close(found, F.rms_norm(X, (6, 5), gain, 0.3))
    torch.testing.assert_close(
        rms_norm(X, (6, 5), gain, context=PIECES), F.rms_norm(X, (6, 5), gain)
    )
    assert rms_norm(X, (6, 5), gain, context=PLAIN) is None
    assert rms_norm(X, (6, 5), context=PIECES) is None
