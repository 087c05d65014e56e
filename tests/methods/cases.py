"""Models and batches for the tests of GradInit, MetaInit and LSUV."""

import torch
from torch import nn

from neuroinit.model.problem import Problem

# scales differ, so that a mistake in who multiplies what shows
SCALES = (0.7, 1.3, 0.9, 1.6, 1.1)


class Keep:
    """An update that keeps the gradient it is given, and moves nothing."""

    def init(self, scales):
        return {}

    def step(self, scales, gradient, lr, constrained, state):
        self.gradient = gradient
        return scales, state


def setting(found):
    """The model of a case of the zoo, and a batch of nine samples."""
    torch.manual_seed(0)
    model = found.build()
    return model, found.batch(9)


def placed(found, method):
    """A problem, a prepared batch, and scales that are not all one."""
    model, batch = setting(found)
    problem = Problem(model, found.loss_fn, found.compute_loss, method.selection())
    scales = torch.tensor([SCALES[k % 5] for k in range(len(problem.scaled))], dtype=torch.float64)
    return problem, problem.prepare(batch), scales


def assert_close(problem, ours, theirs):
    """A derivative by the scales is that of an oracle, which has it by name."""
    expected = torch.tensor([theirs[n] for n in problem.scaled], dtype=torch.float64)
    tolerance = 1e-8 * max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(ours, expected, rtol=1e-7, atol=tolerance)


def running_statistics(model):
    """Give BatchNorm running statistics that are not those of the batch, and gains other than 1."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._NormBase):
                for tensor in (module.running_mean, module.bias):
                    tensor.normal_()
                for tensor in (module.running_var, module.weight):
                    tensor.uniform_(0.5, 2.0)
