"""Batches of random inputs and random labels, in place of data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neuroinit.common.batches import as_tensor
from neuroinit.common.checks import check_count

LEAST = 32  # fewest samples in a random batch that replaces data


@dataclass(frozen=True, eq=False)
class RandomBatches:
    """An endless iterable of ``(inputs, labels)``; every pass over it yields the same batches.

    ``shape`` is the shape of the labels of one sample: empty for one label per sample.
    """

    example: Tensor
    classes: int
    seed: int
    size: int
    moments: tuple[float, float] | None = None  # mean and std; ``None`` for those of the example
    shape: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(self.seed)
        shape, labels = (self.size, *self.example.shape[1:]), (self.size, *self.shape)
        mean, std = self.moments or self._moments()
        while True:
            if self.example.is_floating_point():
                drawn = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
                inputs = (mean + std * drawn).to(self.example)
            else:
                highest = int(self.example.max()) + 1
                drawn = torch.randint(highest, shape, generator=generator, device="cpu")
                inputs = drawn.to(self.example)
            yield inputs, torch.randint(self.classes, labels, generator=generator, device="cpu")

    def _moments(self) -> tuple[float, float]:
        wide = self.example.double()
        return float(wide.mean()), float(wide.std(correction=0))


def random_batches(
    example: Tensor | Sequence[int], classes: int, seed: int = 0, size: int | None = None
) -> RandomBatches:
    """Random inputs with random labels, as in the paper of MetaInit.

    Args:
        example: A batch of inputs. For floats, normal values with the same mean and standard
            deviation are drawn; for integers, such as tokens, uniform values from 0 to the largest.
            Or a shape, for standard normal values.
        classes: Number of classes of the labels.
        seed: Seed of the random numbers.
        size: Number of samples in a batch; by default that of the example.

    Example:
        >>> inputs, labels = next(iter(random_batches((16, 3, 8, 8), classes=10)))
        >>> inputs.shape, labels.shape
        (torch.Size([16, 3, 8, 8]), torch.Size([16]))
    """
    check_count("classes", classes, 1)
    moments = None
    if not isinstance(example, Tensor):
        if not isinstance(example, Sequence) or not all(isinstance(n, int) for n in example):
            raise TypeError(
                "Parameter `example` should be a batch of inputs, one tensor, or a shape such as "
                f"`(64, 3, 32, 32)`. Found a `{type(example).__name__}`."
            )
        for k, length in enumerate(example):
            check_count(f"example[{k}]", length, 1)
        example, moments = torch.zeros(tuple(example), device="cpu"), (0.0, 1.0)
    if example.dim() == 0 or example.numel() == 0:
        raise ValueError(
            f"Parameter `example` should be a batch of inputs. Found shape {tuple(example.shape)}."
        )
    if example.is_floating_point() and not example.isfinite().all():
        raise ValueError("Parameter `example` is not finite: found NaN or inf in it.")
    if not example.is_floating_point() and int(example.min()) < 0:
        raise ValueError(
            "Parameter `example` has integers. Random integers from 0 to the largest are drawn, "
            f"so they should not be negative. Found {int(example.min())}."
        )
    if size is not None:
        check_count("size", size, 1)
    return RandomBatches(example, classes, seed, size or len(example), moments)


def in_place_of_data(
    example: Tensor | Sequence[int],
    run: Callable[[Tensor], object],
    loss_fn: Callable[[Tensor, Tensor], object] | None,
    seed: int,
) -> RandomBatches:
    """Random batches for a classifier; the number of classes is read from its output.

    Args:
        example: As for :func:`random_batches`; a batch has at least 32 samples.
        run: Computes the model's output for given inputs.
        loss_fn: Called with random labels to see whether the classes are the second dimension of
            the output, as for ``F.cross_entropy``, or the last.
        seed: Seed of the random numbers.
    """
    one = random_batches(example, 1, seed)
    drawn = replace(one, size=max(one.size, LEAST))
    inputs, _ = next(iter(drawn))
    try:
        output = run(inputs)
    except (RuntimeError, IndexError, TypeError) as error:
        raise ValueError(
            f"The model does not take random inputs like `example`, of shape {tuple(inputs.shape)} "
            f"and {inputs.dtype}: {error}"
        ) from error
    if not isinstance(output, Tensor) or output.dim() < 2 or len(output) != drawn.size:
        what = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(
            "Without `batches`, random labels are drawn, for a model that puts out class scores "
            f"`(samples, classes, ...)`. Found {what}. Pass `batches`."
        )
    shape, problem = output.shape, ""
    for place in dict.fromkeys((1, output.dim() - 1)):
        labels = (*shape[1:place], *shape[place + 1 :])
        found = replace(drawn, classes=shape[place], shape=labels)
        if loss_fn is None:  # the method uses inputs only
            return found
        try:
            with warnings.catch_warnings():  # a regression loss may broadcast labels by chance
                warnings.filterwarnings("error", "Using a target size")
                loss = as_tensor(loss_fn(output, next(iter(found))[1].to(output.device)))
        except (RuntimeError, ValueError, IndexError, UserWarning) as error:
            problem = problem or str(error)
            continue
        if not loss.isfinite().all():
            problem = problem or "the loss is not finite"
        elif found.classes > 1:
            _check_tokens(inputs, output, place)
            return found
    raise ValueError(
        f"`loss_fn` does not take random labels for the model's output of shape {tuple(shape)}: "
        f"{problem or 'there is one class only'}. Without `batches`, the model should be a "
        "classifier and the loss one of class labels. Pass `batches`."
    )


def _check_tokens(inputs: Tensor, output: Tensor, place: int) -> None:
    """Raise if ``loss_fn`` uses the token dimension of a language model as classes."""
    tokens = not inputs.is_floating_point() and inputs.dim() == 2 and output.dim() == 3
    if tokens and place == 1 and output.shape[1] == inputs.shape[1]:
        raise ValueError(
            f"The model's output has shape {tuple(output.shape)}, scores for every token, and "
            "`loss_fn` uses its second dimension as classes. Pass a loss such as "
            "`lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten())`."
        )
