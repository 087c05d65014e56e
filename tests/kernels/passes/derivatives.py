"""The passes that the engines take with the replaced layers, and the same by plain autograd."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from neuroinit.kernels.context import KernelContext, NotSeparableError, PieceParameters
from neuroinit.kernels.function_mode import ReplacedLayers, differentiate
from tests.kernels.passes.written_out import WrittenOut

Loss = Callable[[], Tensor]


@dataclass
class Found:
    """Per parameter: the gradient, and ``<p, gradient by p of sum <gradients, directions>>``."""

    gradients: list[Tensor]
    derivative: Tensor


def directions(gradients: Sequence[Tensor], seed: int = 1) -> list[Tensor]:
    """Fixed random directions of the gradients' shapes."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(g.shape, dtype=g.dtype, generator=generator) for g in gradients]


def assert_near(found: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float) -> None:
    """Equal up to rounding, which is that of the largest entry of all tensors."""
    largest = max(float(t.abs().max()) for t in expected if t.numel())
    torch.testing.assert_close(
        list(found), list(expected), rtol=tolerance, atol=1e-3 * tolerance * largest
    )


def filled(found: Sequence[Tensor | None], like: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(t) if g is None else g for g, t in zip(found, like, strict=True)]


def context_of(parameters: Sequence[Tensor], scaled: bool = True) -> KernelContext:
    """One scale for every parameter, or none."""
    ones = [torch.ones((), dtype=torch.float64, requires_grad=True) for _ in parameters]
    return KernelContext(
        {id(p): one for p, one in zip(parameters, ones, strict=True)} if scaled else {}
    )


def second_backward(
    gradients: Sequence[Tensor],
    vectors: Sequence[Tensor],
    parameters: Sequence[Tensor],
    context: KernelContext,
) -> Tensor:
    """The derivative of ``sum <gradients, vectors>`` by a scale of every parameter."""
    live = [(g, v) for g, v in zip(gradients, vectors, strict=True) if g.requires_grad]
    scales = list(context.scales.values())
    context.second_backward = True
    found = differentiate(
        [g for g, _ in live], [*parameters, *scales], [v for _, v in live], context=context
    )
    context.second_backward = False
    by_parameters = filled(found[: len(parameters)], parameters)
    total = torch.stack(
        [(p * g).sum().detach() for p, g in zip(parameters, by_parameters, strict=True)]
    )
    return total + torch.stack(filled(found[len(parameters) :], scales)) if scales else total


def ours(model: nn.Module, loss: Loss, scaled: bool = True) -> Found:
    """Both backward passes with the replaced layers."""
    parameters = list(model.parameters())
    context = context_of(parameters, scaled)
    with sdpa_kernel(SDPBackend.MATH):
        with ReplacedLayers(context):
            value = loss()
        found = differentiate([value], parameters, create_graph=True, context=context)
        gradients = filled(found, parameters)
        derivative = second_backward(gradients, directions(gradients), parameters, context)
    return Found([g.detach() for g in gradients], derivative)


def wanted(model: nn.Module, loss: Loss) -> Found:
    """The same by ``torch.autograd.grad`` twice, with normalization layers written out."""
    parameters = list(model.parameters())
    with sdpa_kernel(SDPBackend.MATH):
        with WrittenOut():
            value = loss()
        found = torch.autograd.grad(value, parameters, create_graph=True, allow_unused=True)
        gradients = filled(found, parameters)
        total = sum((g * v).sum() for g, v in zip(gradients, directions(gradients), strict=True))
        found = torch.autograd.grad(total, parameters, allow_unused=True)
    by_scales = [
        (p * g).sum().detach() for p, g in zip(parameters, filled(found, parameters), strict=True)
    ]
    return Found([g.detach() for g in gradients], torch.stack(by_scales))


def in_pieces(
    model: nn.Module,
    forward: Callable[[Tensor], Tensor],
    x: Tensor,
    intervals: Sequence[tuple[int, int]],
) -> tuple[list[Tensor], Tensor]:
    """One pass over pieces: ``(pieces, *shape)`` gradients, and the derivative by the scales.

    ``forward`` gives a loss for every sample. The directions are :func:`directions` of the stacked
    gradients.

    Raises:
        NotSeparableError: A gradient reached a parameter itself, past its leaf.
    """
    parameters = list(model.parameters())
    context = context_of(parameters)
    leaves = [p.detach().expand(len(intervals), *p.shape).requires_grad_() for p in parameters]
    context.pieces = PieceParameters(
        tuple(intervals), {id(p): leaf for p, leaf in zip(parameters, leaves, strict=True)}
    )
    with sdpa_kernel(SDPBackend.MATH):
        with ReplacedLayers(context):
            losses = forward(x)
        total = torch.stack([losses[a:b].mean() for a, b in intervals]).sum()
        found = differentiate([total], [*leaves, *parameters], create_graph=True, context=context)
        if any(g is not None for g in found[len(leaves) :]):
            raise NotSeparableError
        gradients = filled(found[: len(leaves)], leaves)
        derivative = second_backward(gradients, directions(gradients), parameters, context)
    return [g.detach() for g in gradients], derivative


def piece_by_piece(
    model: nn.Module,
    forward: Callable[[Tensor], Tensor],
    x: Tensor,
    intervals: Sequence[tuple[int, int]],
) -> tuple[list[Tensor], Tensor]:
    """The same by plain autograd, one piece after the other."""
    parameters = list(model.parameters())
    with sdpa_kernel(SDPBackend.MATH), WrittenOut():
        graphs = [
            filled(
                torch.autograd.grad(
                    forward(x[a:b]).mean(), parameters, create_graph=True, allow_unused=True
                ),
                parameters,
            )
            for a, b in intervals
        ]
        gradients = [torch.stack(parts) for parts in zip(*graphs, strict=True)]
        total = sum((g * v).sum() for g, v in zip(gradients, directions(gradients), strict=True))
        found = filled(torch.autograd.grad(total, parameters, allow_unused=True), parameters)
    derivative = torch.stack(
        [(p * g).sum().detach() for p, g in zip(parameters, found, strict=True)]
    )
    return [g.detach() for g in gradients], derivative
