"""FixUp: a start for residual networks without normalization that were made for it.

Zhang, Dauphin and Ma, *Fixup Initialization: Residual Learning Without Normalization*, ICLR 2019.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor, nn

from neuroinit.methods.classic import Kaiming
from neuroinit.methods.layers import is_layer
from neuroinit.model.fresh_values import Draw
from neuroinit.model.selection import places


@dataclass(frozen=True, kw_only=True)
class FixUp(Kaiming):
    """Zero the last layer of every branch and the classifier, scale the others.

    A residual branch of ``m`` layers in a network of ``L`` branches starts with Kaiming's weights
    times ``L^(-1/(2m-2))`` in all layers but the last. FixUp needs scalar biases and multipliers in
    the model, so the model has to be made for it: every residual block has ``fixup_branch``, the
    layers of its branch in order, and the network ``fixup_classifier``, its last layer.
    ``neuroinit.experiments.models`` has such networks. Scalars named ``bias...`` start at 0, other
    scalars, the multipliers, at 1.
    """

    def draws(self, model: nn.Module) -> dict[str, Draw]:
        """Kaiming's, scaled or zeroed where FixUp says so."""
        branches = [
            list(m.fixup_branch)  # type: ignore[arg-type]
            for m in model.modules()
            if hasattr(m, "fixup_branch")
        ]
        classifier = getattr(model, "fixup_classifier", None)
        if not branches or not isinstance(classifier, nn.Module):
            raise ValueError(
                f"FixUp needs a residual network that was made for it; `{type(model).__name__}` "
                "has no blocks with `fixup_branch` and no `fixup_classifier`. Use one of "
                "`neuroinit.experiments.models`, or another initialization, such as `NIO()`."
            )
        found = super().draws(model)
        factors = {classifier: 0.0}
        for branch in branches:
            layers = [layer for layer in branch if is_layer(layer)]
            if not layers:
                raise ValueError("A `fixup_branch` holds no layer: it should list the branch's.")
            *first, last = layers
            factors[last] = 0.0
            for layer in first:
                factors[layer] = len(branches) ** (-1 / (2 * len(first)))
        for module, key, name in places(model):
            tensor = module._parameters[key]
            if name in found and module in factors:
                found[name] = _scaled(found[name], factors[module])
            elif tensor is not None and _is_scalar(module, tensor) and self._takes(name):
                found[name] = Draw("constant", float(not key.startswith("bias")))
        return found


def _is_scalar(module: nn.Module, tensor: Tensor) -> bool:
    """FixUp's own parameters: one number, held by a block or by the network itself."""
    torchs = type(module).__module__.startswith("torch.nn")  # such as PReLU and its slope
    return tensor.numel() == 1 and tensor.requires_grad and not torchs


def _scaled(draw: Draw, factor: float) -> Draw:
    return replace(draw, size=draw.size * factor)
