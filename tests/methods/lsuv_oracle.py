"""A slow, obvious oracle of LSUV: a whole pass through the model for every correction."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.utils.oracles import training_copy, twice_differentiable


def lsuv(
    model: nn.Module,
    forward: Callable[[nn.Module], Any],
    tolerance: float = 0.1,
    tries: int = 10,
    deviation: bool = False,
    running: bool = False,
) -> nn.Module:
    """Layers in the order in which they first run, corrected one by one in whole passes.

    Args:
        model: With the values to begin with.
        forward: Runs the model.
        tolerance: Of the variance, or of the unbiased standard deviation.
        tries: Most corrections of a layer.
        deviation: See `tolerance`.
        running: BatchNorm in eval mode.
    """
    model = training_copy(model)
    kinds = (nn.Linear, nn.modules.conv._ConvNd, nn.MultiheadAttention)
    layers = [m for m in model.modules() if isinstance(m, kinds)]
    order: list[nn.Module] = []
    outputs: dict[nn.Module, Tensor] = {}

    def note(module: nn.Module, inputs: Any, output: Any) -> None:
        if module not in outputs:
            order.append(module)
            outputs[module] = (output[0] if isinstance(output, tuple) else output).clone()

    hooks = [layer.register_forward_hook(note) for layer in layers]
    for module in model.modules():
        if running and isinstance(module, nn.modules.batchnorm._NormBase):
            module.eval()

    def run() -> None:
        order.clear()
        outputs.clear()
        with torch.no_grad(), twice_differentiable():
            forward(copy_of_buffers(model))

    run()
    weights = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for layer in list(order):
        holder = layer.out_proj if isinstance(layer, nn.MultiheadAttention) else layer
        parameter = holder._parameters.get("weight")
        if parameter is None or id(parameter) in weights or not parameter.requires_grad:
            continue
        weights.add(id(parameter))
        for _ in range(tries):
            run()
            std = outputs[layer].std(correction=int(deviation)).item()
            if std == 0 or abs((std if deviation else std**2) - 1) < tolerance:
                break
            parameter.data /= std
    for hook in hooks:
        hook.remove()
    return model


def copy_of_buffers(model: nn.Module) -> nn.Module:
    """The model itself, its buffers replaced by copies of what they were at first."""
    for module in model.modules():
        saved = module.__dict__.setdefault("_saved_buffers", copy.deepcopy(module._buffers))
        module._buffers = copy.deepcopy(saved)
    return model
