"""Several pieces in one pass give the same gradients as one by one, where that is possible."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from neuroinit.gradients.engines import Keep
from neuroinit.gradients.passes.grouping import grouped
from neuroinit.gradients.passes.pieces import one_by_one, one_pass
from neuroinit.gradients.passes.planned import streamed_pieces
from neuroinit.gradients.passes.trials import TRIAL, pieces_are_separable
from neuroinit.gradients.plan import make_plan
from neuroinit.model.problem import Problem
from tests.utils.architectures import ZOO, case
from tests.utils.engines import ENGINES


class Tokens(nn.Module):
    """Patches, a class token, positions, a table that is indexed, and a gain."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(1, 4, 2, stride=2)
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.positions = nn.Parameter(torch.randn(1, 5, 4))
        self.table = nn.Parameter(torch.randn(3, 2))
        self.register_buffer("index", torch.randint(3, (25,)))
        self.gain = nn.Parameter(torch.rand(4) + 0.5)
        self.norm, self.mix = nn.LayerNorm(4), nn.Linear(4, 8)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        q, k = self.mix(self.norm(x)).reshape(len(x), 5, 2, 4).permute(2, 0, 1, 3)
        bias = self.table[self.index].view(5, 5, 2).permute(2, 0, 1).contiguous().unsqueeze(0)
        scores = (q @ k.mT)[:, None] + bias
        x = x + self.gain * (scores.softmax(-1).mean(1) @ F.gelu(x))
        return self.head(x[:, 0])


class Fickle(nn.Module):
    """Uses its weight in another way once ``plain`` is set."""

    plain = True

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = self.layer(x) if self.plain else x @ self.layer.weight.T + self.layer.bias
        return self.head(torch.tanh(h))


class SequenceFirst(nn.Module):
    """Nine steps of a sequence come before the samples, as many as the trial has samples."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, x):
        steps = x.view(len(x), 9, 2).transpose(0, 1).contiguous()
        return self.head(torch.tanh(self.layer(steps)).mean(0))


class Noise(nn.Module):
    """Draws random numbers, which pieces have of their own."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x + torch.randn_like(x))


def images(n):
    torch.manual_seed(1)
    return torch.randn(n, 1, 4, 4, dtype=torch.float64), torch.randint(3, (n,))


def vectors(n, size=4):
    torch.manual_seed(1)
    return torch.randn(n, size, dtype=torch.float64), torch.randint(3, (n,))


def problem_of(model):
    problem = Problem(model.double(), F.cross_entropy)
    problem.seed, count = 0, len(problem.scaled)
    return problem, problem.at(torch.linspace(0.6, 1.4, count, dtype=torch.float64))


def both(model, batch, engine, D=4, r=0.3):
    """The derivative by one pass, and piece by piece."""
    found = []
    for separable in (None, False):
        problem, point = problem_of(model)
        if separable is not None:
            problem.traits.note("separable", separable)
        plan = make_plan(problem, batch, D, r, "cover", "sub-batch")
        ours = ENGINES[engine].derivative(point, batch, plan, lambda m: m.cosine + m.norm)
        found.append((problem.traits.outcomes["separable"], ours))
    return found


@pytest.mark.parametrize("engine", ["keep", "stream"])
@pytest.mark.parametrize("r", [0.0, 0.3])
def test_a_transformer_in_one_pass_is_the_same_as_in_pieces(engine, r):
    torch.manual_seed(0)
    (separable, ours), (_, wanted) = both(Tokens(), images(16), engine, D=4, r=r)
    assert separable
    assert ours.loss == pytest.approx(wanted.loss, rel=1e-12)
    torch.testing.assert_close(ours.moments.norms, wanted.moments.norms, rtol=1e-10, atol=0)
    torch.testing.assert_close(ours.gradient, wanted.gradient, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("model", "batch"),
    [(SequenceFirst, vectors(18, 18)), (Noise, vectors(18))],
    ids=["sequence_first", "noise"],
)
def test_models_that_a_trial_gives_away(model, batch):
    torch.manual_seed(0)
    (separable, ours), (_, wanted) = both(model(), batch, "keep")
    assert separable is False
    torch.testing.assert_close(ours.gradient, wanted.gradient, rtol=0, atol=0)


NOT_SEPARABLE = {
    *("unused", "bare", "containers", "bilinear", "functional_dropout"),
    *("weight_norm", "spectral_norm", "old_weight_norm"),
    *("dict_output", "contrastive"),
    *("gradient_penalty", "written_norm_penalty", "func_grad", "func_jvp"),
}


@pytest.mark.parametrize("found", ZOO, ids=lambda c: c.name)
def test_which_models_of_the_zoo_are_separable(found):
    torch.manual_seed(0)
    problem = Problem(found.build(), found.loss_fn, found.compute_loss)
    point, batch = problem.at(problem.unit_scales), problem.prepare(found.batch(8))
    assert pieces_are_separable(point, batch) is (found.name not in NOT_SEPARABLE)


def test_a_model_that_changes_its_way_later():
    torch.manual_seed(0)
    model, batch = Fickle(), vectors(16)
    problem, point = problem_of(model)
    plan = make_plan(problem, batch, 4, 0.0, "cover", "batch")
    for engine in ENGINES.values():
        problem.traits.outcomes.clear()
        model.plain = True
        before = engine.derivative(point, batch, plan, lambda m: m.cosine)
        assert problem.traits.outcomes["separable"]
        model.plain = False
        after = engine.derivative(point, batch, plan, lambda m: m.cosine)
        assert problem.traits.outcomes["separable"] is False
        torch.testing.assert_close(before.gradient, after.gradient)


def test_a_scale_of_zero_takes_the_other_way():
    torch.manual_seed(0)
    model, batch = case("plain").build(), case("plain").batch(8)
    found = []
    for separable in (True, False):
        problem = Problem(model, F.cross_entropy)
        scales = problem.unit_scales
        scales[0] = 0.0
        if separable is not None:
            problem.traits.note("separable", separable)
        plan = make_plan(problem, batch, 2, 0.0, "cover", "batch")
        point = problem.at(scales)
        found.append(Keep().derivative(point, batch, plan, lambda m: m.norm).gradient)
    torch.testing.assert_close(found[0], found[1])


def test_a_trial_that_does_not_fit_is_no_error():
    class Full(nn.Linear):
        def forward(self, x):
            if len(x) == TRIAL:
                raise torch.OutOfMemoryError("out of memory")
            return super().forward(x)

    _, point = problem_of(Full(4, 3))
    assert not pieces_are_separable(point, vectors(16))


@pytest.mark.parametrize(
    ("at_once", "most", "wanted"),
    [(8, 9, [[(0, 3), (3, 8)], [(8, 16)]]), (4, 9, [[(0, 3)], [(3, 8)], [(8, 16)]]),
     (16, 2, [[(0, 3), (3, 8)], [(8, 16)]])],
)  # fmt: skip
def test_groups_have_so_many_samples_and_pieces(at_once, most, wanted):
    assert grouped([(0, 3), (3, 8), (8, 16)], at_once, most, alike=False) == wanted


def test_overlapping_pieces_count_their_samples_twice():
    assert grouped([(0, 4), (2, 6), (4, 8)], 8, 9, False) == [[(0, 4), (2, 6)], [(4, 8)]]


def test_groups_of_pieces_of_one_length():
    wanted = [[(0, 2), (2, 4)], [(4, 7)], [(7, 9)]]
    assert grouped([(0, 2), (2, 4), (4, 7), (7, 9)], 16, 9, alike=True) == wanted


@pytest.mark.parametrize(("width", "wanted"), [(31, 2**22 // 1024), (2**11, 1)])
def test_so_many_gradients_are_held_that_they_have_four_million_entries(width, wanted):
    problem = Problem(nn.Linear(width, width + 1), F.cross_entropy)
    assert streamed_pieces(problem) == wanted


@pytest.mark.parametrize("pieces", [[(0, 3), (3, 8)], [(0, 5), (2, 8)], [(1, 4)]])
def test_pieces_of_copies_have_the_statistics_of_the_whole_batch(pieces):
    torch.manual_seed(0)
    problem, point = problem_of(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)))
    batch, names = vectors(8), problem.trainable
    problem.traits.note("separable", True)
    with point.session() as session:
        ours = one_pass(session, batch, pieces, names, create_graph=False, copied=True)
        wanted = list(one_by_one(session, batch, pieces, names, one_forward=True))
    torch.testing.assert_close(ours.losses, [loss for one in wanted for loss in one.losses])
    for k, found in enumerate(ours.gradients):
        torch.testing.assert_close(found, torch.stack([one.gradients[k] for one in wanted]))


class Batches(nn.Module):
    """BatchNorm of every kind: images, vectors, without affine, with a cumulative average."""

    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(1, 4, 2, bias=False),
            nn.BatchNorm2d(4, momentum=None),
            nn.ReLU(inplace=True),
            nn.Conv2d(4, 4, 1),
            nn.Conv2d(4, 3, 2),
            nn.SyncBatchNorm(3, affine=False),
            nn.Tanh(),
        )
        self.volume = nn.BatchNorm3d(3, track_running_stats=False)
        self.vector = nn.Sequential(nn.Linear(12, 5), nn.BatchNorm1d(5), nn.Tanh())
        self.instance, self.head = nn.InstanceNorm2d(1, affine=True), nn.Linear(5, 3)
        self.frozen = nn.BatchNorm1d(5)
        self.frozen.weight.requires_grad_(False)

    def forward(self, x):
        h = self.volume(self.image(self.instance(x))[..., None]).flatten(1)
        return self.head(self.frozen(self.vector(h)))


@pytest.mark.parametrize("engine", ["keep", "stream"])
@pytest.mark.parametrize(("r", "split"), [(0.0, "cover"), (0.4, "cover"), (0.4, "reference")])
def test_batch_norm_in_one_pass_is_the_same_as_in_pieces(engine, r, split):
    found = []
    for separable in (None, False):
        torch.manual_seed(0)
        problem, point = problem_of(Batches())
        if separable is not None:
            problem.traits.note("separable", separable)
        batch = images(17)
        plan = make_plan(problem, batch, 4, r, split, "sub-batch")
        ours = ENGINES[engine].derivative(point, batch, plan, lambda m: m.cosine + m.norm)
        assert problem.traits.outcomes["separable"] is (separable is None)
        found.append(ours)
    assert found[0].loss == pytest.approx(found[1].loss, rel=1e-12)
    torch.testing.assert_close(found[0].moments.norms, found[1].moments.norms, rtol=1e-10, atol=0)
    torch.testing.assert_close(found[0].gradient, found[1].gradient, rtol=1e-8, atol=1e-10)


def test_running_statistics_in_one_pass():
    """Evaluation of BatchNorm inside a model in training mode, as with frozen backbones."""

    class Frozen(nn.BatchNorm2d):
        def forward(self, x):
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 2), Frozen(4), nn.Tanh(), nn.Flatten(), nn.Linear(36, 3))
    (separable, ours), (_, wanted) = both(model, images(16), "keep")
    assert separable
    torch.testing.assert_close(ours.gradient, wanted.gradient, rtol=1e-8, atol=1e-10)


def test_rounding_at_kinks_does_not_decide_the_trial():
    """In float32 one pass differs from two by activations that rounding moves across zero."""

    class Kinks(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            h = self.layer(x)
            if x.dtype == torch.float32 and len(x) == TRIAL:
                h = h * 1.01
            return self.head(h)

    problem = Problem(Kinks(), F.cross_entropy)
    batch = torch.randn(16, 4), torch.randint(3, (16,))
    assert pieces_are_separable(problem.at(problem.unit_scales), batch)


@pytest.mark.parametrize(("count", "together"), [(2, False), (4, True)])
def test_two_pieces_with_batch_norm_take_a_pass_each_on_a_cpu(count, together):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
    seen = []
    model.register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])))
    batch = torch.randn(8, 3).double(), torch.randint(2, (8,))
    found = ni.gradient_stats(model, batch, sub_batches=count)
    assert (max(seen) == 8) == together
    for k, part in enumerate(zip(*(x.chunk(count) for x in batch), strict=True)):
        model.zero_grad()
        F.cross_entropy(model(part[0]), part[1]).backward()
        norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
        assert found.norms[k].item() == pytest.approx(norm.item(), rel=1e-12)
