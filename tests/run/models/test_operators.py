"""Complex parameters, operators without double backward, custom functions, other layouts."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.run.small import batches_of, network
from tests.utils.architectures import cdist_has_double_backward
from tests.utils.moving import ni


class Phases(nn.Module):
    """Has a complex parameter, which is used."""

    def __init__(self):
        super().__init__()
        self.body = network()
        self.phase = nn.Parameter(torch.randn(3, dtype=torch.complex64))

    def forward(self, x):
        return self.body(x) + self.phase.abs()


def test_frozen_complex_parameters_are_left_alone():
    model = Phases()
    model.phase.requires_grad_(False)
    before = model.phase.clone()
    ni.nio_(model, batches_of(16), steps=2)
    assert torch.equal(model.phase, before)


def test_excluded_complex_parameters_are_left_alone():
    model = Phases()
    before = model.phase.detach().clone()
    result = ni.nio_(model, batches_of(16), steps=2, exclude=("phase",))
    assert torch.equal(model.phase, before)
    assert "phase" not in result.scales


def test_other_complex_parameters_are_refused():
    with pytest.raises(ValueError, match=r"complex: `phase`.*`exclude` them"):
        ni.nio_(Phases(), batches_of(16), steps=2)


class Distances(nn.Module):
    """``torch.cdist`` has no double backward before torch 2.15."""

    def __init__(self):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(3, 4, dtype=torch.float64))

    def forward(self, x):
        return -torch.cdist(x, self.centers)


def test_an_operator_without_double_backward_offers_differences_which_work():
    if cdist_has_double_backward():
        pytest.skip("this torch differentiates cdist twice")
    torch.manual_seed(0)
    batches = [(x.double(), y) for x, y in batches_of(16)]
    model = Distances()
    with pytest.raises(RuntimeError, match=r"`cdist`.*torch.cdist.*engine='differences'"):
        ni.nio_(model, batches, steps=2)
    result = ni.nio_(model, batches, steps=2, engine="differences")
    assert result.engine == "differences"


def bags():
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(10, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    tokens = torch.randint(10, (16, 5), generator=generator)
    return model, [(tokens, torch.randint(3, (16,), generator=generator))], None


def transcripts():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(16, 12, 4, generator=generator, dtype=torch.float64)
    batches = [(inputs, torch.randint(1, 6, (16, 3), generator=generator))]

    def loss(model, batch):
        scores, labels = model(batch[0]).log_softmax(-1).transpose(0, 1), batch[1]
        count = len(labels)
        return F.ctc_loss(scores, labels, torch.full((count,), 12), torch.full((count,), 3))

    return nn.Linear(4, 6).double(), batches, loss


@pytest.mark.parametrize(("case", "name"), [(bags, "embedding_bag"), (transcripts, "ctc_loss")])
def test_other_operators_without_double_backward_go_by_differences(case, name):
    torch.manual_seed(0)
    model, batches, loss = case()
    with pytest.raises(RuntimeError, match=rf"`{name}`.*engine='differences'"):
        ni.optimize(model, batches, compute_loss=loss, method=ni.NIO(steps=2))
    method = ni.NIO(steps=2)
    result = ni.optimize(model, batches, compute_loss=loss, method=method, engine="differences")
    assert result.engine == "differences"


def test_differences_name_a_loss_that_stops_gradients():
    torch.manual_seed(0)
    batches = [torch.randn(16, 4, dtype=torch.float64) for _ in range(3)]

    def loss(model, batch):
        return (model(batch) * model(batch).detach()).mean()

    with pytest.raises(ValueError, match=r"too inexact.*stops gradients by `\.detach\(\)`"):
        ni.optimize(
            nn.Linear(4, 3).double(),
            batches,
            compute_loss=loss,
            method=ni.NIO.paper(steps=1),
            engine="differences",
        )


def test_time_first_batches():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 3))
    batches = [(torch.randn(5, 16, 2), torch.randint(3, (5, 16))) for _ in range(3)]

    def loss(model, batch):
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    def swapped(batch):
        return tuple(t.transpose(0, 1) for t in batch)

    method = ni.NIO(steps=2)
    ours = ni.optimize(model, batches, compute_loss=loss, batch_dim=1, method=method)
    wanted = ni.optimize(model, [swapped(b) for b in batches], compute_loss=loss, method=method)
    assert ours.scales == pytest.approx(wanted.scales, rel=1e-4)
    stats = ni.gradient_stats(model, batches[0], compute_loss=loss, batch_dim=1, sub_batches=4)
    assert len(stats.norms) == 4


def test_every_function_takes_the_layout_of_a_batch():
    torch.manual_seed(0)
    batches = [(torch.randn(5, 16, 2), torch.randint(3, (5, 16))) for _ in range(3)]

    def loss(model, batch):
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    def make():
        return nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 3))

    model, options = make(), {"compute_loss": loss}
    wanted = ni.score(model, batches[0], batch_dim=1, **options)
    cosine = ni.gradient_stats(model, batches[0], sub_batches="samples", batch_dim=1, **options)
    assert wanted["gradcosine"] == pytest.approx(cosine.cosine)
    same = {"seeds": [0], "show": False, "progress": False, "methods": [ni.NIO(steps=2)], **options}
    table = ni.compare(make, batches, batch_dim=1, **same)
    assert not table.records[0].failed
    held = [(x.transpose(0, 1), y.transpose(0, 1)) for x, y in batches]
    first = ni.compare(make, held, cut=lambda b, i, j: (b[0][i:j], b[1][i:j]), **same)
    assert table.records[0].norm == pytest.approx(first.records[0].norm, rel=1e-4)


class _WrongCube(torch.autograd.Function):
    """``x ** 3`` with a first derivative that is right, and a second one that is not."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        return 3 * ctx.saved_tensors[0].detach() ** 2 * grad


class _RightCube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        return 3 * ctx.saved_tensors[0] ** 2 * grad


class Cube(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x)


class _SingleCube(_RightCube):
    @staticmethod
    def forward(ctx, x):
        if x.dtype == torch.float64:
            raise RuntimeError("float32 only")
        return _RightCube.forward(ctx, x)


def test_a_custom_function_that_has_no_float64_is_not_tested():
    method = ni.NIO(steps=1)
    result = ni.optimize(network(Cube(_SingleCube), nn.ReLU()), batches_of(16), method=method)
    assert len(result.history) == 1


class Power(nn.Module):
    def forward(self, x):
        return x**3


def test_a_custom_function_with_a_wrong_double_backward_is_named():
    with pytest.warns(UserWarning, match="The double backward of `_WrongCube` seems to be wrong"):
        ni.optimize(network(Cube(_WrongCube)), batches_of(16), method=ni.NIO(steps=1))


def test_a_custom_function_with_a_right_double_backward_is_not_mentioned():
    method = ni.NIO(steps=2, gamma=0.3)
    found = ni.optimize(network(Cube(_RightCube), nn.ReLU()), batches_of(16), method=method)
    plain = ni.optimize(network(Power(), nn.ReLU()), batches_of(16), method=method)
    assert found.scales == pytest.approx(plain.scales, rel=1e-5)
