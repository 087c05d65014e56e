"""Normalization layers from means and roots: torch's own have wrong third derivatives."""

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode


class WrittenOut(TorchFunctionMode):
    """Replaces layer, batch and instance normalization (pytorch issues 175754 and 186256)."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is F.layer_norm:
            return _layer_norm(*args, **kwargs)
        if func is F.batch_norm:
            return _batch_norm(*args, **kwargs)
        if func is F.instance_norm:
            return _instance_norm(*args, **kwargs)
        return func(*args, **kwargs)


def _over(x, dims, eps):
    return (x - x.mean(dims, keepdim=True)) / torch.sqrt(
        x.var(dims, correction=0, keepdim=True) + eps
    )


def _affine(y, weight, bias):
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return _affine(_over(input, tuple(range(-len(normalized_shape), 0)), eps), weight, bias)


def _channels(p, x):
    return None if p is None else p.reshape(1, -1, *[1] * (x.dim() - 2))


def _batch_norm(
    input,
    running_mean,
    running_var,
    weight=None,
    bias=None,
    training=False,
    momentum=0.1,
    eps=1e-5,
):
    if not training:
        return F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    dims = (0, *range(2, input.dim()))
    return _affine(_over(input, dims, eps), _channels(weight, input), _channels(bias, input))


def _instance_norm(
    input,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    use_input_stats=True,
    momentum=0.1,
    eps=1e-5,
):
    if not use_input_stats:
        settings = weight, bias, False, momentum, eps
        return F.instance_norm(input, running_mean, running_var, *settings)
    dims = tuple(range(2, input.dim()))
    return _affine(_over(input, dims, eps), _channels(weight, input), _channels(bias, input))
