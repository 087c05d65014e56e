"""Our products and normalization against torch's own double backward, in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.model.problem import Problem


class Twice(nn.Module):
    """A layer between two others, so that gradients come in and go on; or the first of all."""

    def __init__(self, layer, first=False):
        super().__init__()
        self.before = nn.Identity() if first else nn.Parameter(torch.rand(()) + 0.5)
        self.layer = layer
        self.after = nn.Parameter(torch.rand(()) + 0.5)

    def forward(self, x):
        x = x if isinstance(self.before, nn.Module) else torch.sin(self.before * x)
        return self.after * torch.tanh(self.layer(x))


def images(*shape):
    return lambda: torch.randn(*shape, dtype=torch.float64)


LAYERS = {
    "linear": (lambda: nn.Linear(4, 3), images(5, 4)),
    "linear_no_bias": (lambda: nn.Linear(4, 3, bias=False), images(5, 4)),
    "linear_tokens": (lambda: nn.Linear(4, 3), images(5, 2, 6, 4)),
    "conv1d": (lambda: nn.Conv1d(2, 3, 3, padding=1), images(4, 2, 7)),
    "conv2d": (lambda: nn.Conv2d(2, 3, 3), images(4, 2, 6, 6)),
    "conv2d_stride": (lambda: nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False),
                      images(4, 2, 7, 6)),
    "conv2d_dilated_groups": (lambda: nn.Conv2d(4, 4, (3, 2), dilation=2, groups=2),
                              images(3, 4, 8, 8)),
    "conv2d_same": (lambda: nn.Conv2d(2, 3, 3, padding="same"), images(4, 2, 5, 5)),
    "conv2d_circular": (lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"),
                        images(4, 2, 5, 5)),
    "conv2d_channels_last": (lambda: nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last),
                             images(4, 2, 5, 5)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), images(3, 2, 4, 4, 3)),
    "transposed": (lambda: nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1, padding=1),
                   images(3, 2, 4, 4)),
    "norm_1d": (lambda: nn.BatchNorm1d(4), images(6, 4)),
    "norm_tokens": (lambda: nn.BatchNorm1d(4), images(6, 4, 3)),
    "norm_2d": (lambda: nn.BatchNorm2d(4), images(5, 4, 3, 3)),
    "norm_2d_no_gain": (lambda: nn.BatchNorm2d(4, affine=False), images(5, 4, 3, 3)),
    "norm_2d_no_track": (lambda: nn.BatchNorm2d(4, track_running_stats=False),
                         images(5, 4, 3, 3)),
    "norm_large_eps": (lambda: nn.BatchNorm2d(4, eps=0.5), images(5, 4, 3, 3)),
    "relu": (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU()), images(5, 4)),
    "relu_in_place": (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True)), images(5, 4)),
    "gelu": (lambda: nn.Sequential(nn.Linear(4, 6), nn.GELU()), images(5, 4)),
    "gelu_tanh": (lambda: nn.Sequential(nn.Linear(4, 6), nn.GELU("tanh")), images(5, 4)),
    "layer": (lambda: nn.LayerNorm(4), images(6, 4)),
    "layer_tokens": (lambda: nn.LayerNorm(4), images(3, 5, 4)),
    "layer_image": (lambda: nn.LayerNorm((2, 3, 4)), images(3, 2, 3, 4)),
    "layer_no_bias": (lambda: nn.LayerNorm(4, bias=False), images(6, 4)),
    "layer_no_gain": (lambda: nn.LayerNorm(4, elementwise_affine=False), images(6, 4)),
    "layer_large_eps": (lambda: nn.LayerNorm(4, eps=0.5), images(6, 4)),
}  # fmt: skip


def by_scales(problem, batch, marked):
    """The derivative of ``sum <g, v>`` by every scale, for a fixed random ``v``."""
    torch.manual_seed(1)
    with problem.session(second_order=True, marked=marked):
        loss = problem.loss(batch)
        gradient = problem.gradient(loss, problem.trainable, True, False)
        graph = [g for g in gradient if g is not None and g.requires_grad]
        v = [torch.randn(g.shape, dtype=g.dtype) for g in graph]
        found = problem.second_backward(graph, v, False)
    return [g.detach() for g in graph], torch.stack(list(found.values())), list(found)


@pytest.mark.parametrize("first", [False, True], ids=["inner", "first"])
@pytest.mark.parametrize("name", LAYERS)
def test_the_same_as_torch(name, first):
    torch.manual_seed(0)
    build, inputs = LAYERS[name]
    model = Twice(build(), first).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.rand_like(parameter))
    x = inputs()
    target = torch.randn_like(model(x)).detach()
    problem = Problem(model, F.mse_loss)
    scales = torch.linspace(0.6, 1.4, len(problem.scaled), dtype=torch.float64)
    problem.place(scales)
    gradient, ours, names = by_scales(problem, (x, target), True)
    expected, wanted, all_names = by_scales(problem, (x, target), False)
    assert sorted(names) == sorted(all_names)
    wanted = wanted[[all_names.index(n) for n in names]]
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(ours, wanted, rtol=1e-9, atol=1e-11)


def test_our_products_are_used():
    """Otherwise the comparison above would compare torch with itself."""
    problem = Problem(
        nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten()), F.mse_loss
    )
    problem.place(problem.unit_scales)
    x = torch.randn(4, 2, 5, 5)
    names = []
    with problem.session(second_order=True, marked=True):
        waiting = [problem.loss((x, torch.randn(4, 27))).grad_fn]
        while waiting:
            node = waiting.pop()
            names.append(type(node).__module__ + "." + node.name())
            waiting.extend(parent for parent, _ in node.next_functions if parent is not None)
    assert not any("Convolution" in n or "NativeBatchNorm" in n for n in names)


def test_a_scale_of_zero_is_differentiated_too():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    problem = Problem(model, F.mse_loss)
    problem.place(torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64))
    batch = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    _, ours, names = by_scales(problem, batch, True)
    _, wanted, all_names = by_scales(problem, batch, False)
    wanted = wanted[[all_names.index(n) for n in names]]
    torch.testing.assert_close(ours, wanted)
