"""What is read off an optimizer, or off a function that makes one."""

import pytest
import torch

from neuroinit.model.arguments.optimizers import family_of, rate_of


def of_trainable(kind, **options):
    """As in training scripts: only parameters with a gradient are given to the optimizer."""
    return lambda parameters: kind([p for p in parameters if p.requires_grad], **options)


@pytest.mark.parametrize(
    ("kind", "family"), [(torch.optim.SGD, "sgd"), (torch.optim.AdamW, "adam")]
)
def test_a_function_that_takes_trainable_parameters_only(kind, family):
    make = of_trainable(kind, lr=0.25)
    assert rate_of(make) == 0.25
    assert family_of(make) == family
