"""The default: what works is left alone, what explodes or is dead gets one factor."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from neuroinit.gradients.measures import Moments
from neuroinit.gradients.statistics.sensitivity import Sensitivity
from neuroinit.methods.updates import Position

ONES = torch.ones(3, dtype=torch.float64)
WEIGHTS = torch.tensor([True, True, False])
RULE = ni.CommonFactor()


def seen(share, loss=1.0):
    """A network with this sensitivity; its unit of loss is 1."""
    norms = torch.tensor([share, share / 2, 9.0], dtype=torch.float64)
    moments = Moments(torch.ones(2), torch.ones(()))
    return Sensitivity(loss, moments, norms, ONES, squared=share**2, absolute=share)


def search(share_at, loss_at=lambda t: 1.0, promised=0.0, rule=RULE, lr=0.3):
    """The factors that are tried, from functions of their logarithm."""
    state, scales, tried = rule.init(ONES), ONES, []
    for _ in range(60):
        at = float(state["factor"])
        what = None if share_at(at) is None else seen(share_at(at), loss_at(at))
        position = Position(scales, state)
        scales, state = rule.move(position, what, WEIGHTS, 1.0, promised, lr)
        tried.append(scales)
        if not state["sign"]:
            return tried
    raise AssertionError("no end")


@pytest.mark.parametrize("share", [0.1, 1.0, 1e3])
def test_what_works_is_left_alone_at_once(share):
    assert torch.equal(torch.stack(search(lambda t: share)), ONES[None])


def test_what_is_dead_grows_until_a_weight_matters():
    """Three layers: the sensitivity is the cube of the factor."""
    *_, last = search(lambda t: 1e-3 * math.exp(3 * t))
    assert last[2] == 1.0  # no weight
    assert float(last[0]) == float(last[1]) == pytest.approx(10.0, rel=0.04)
    assert last[0] >= 10.0  # the target is reached


def test_what_explodes_shrinks_until_it_does_not():
    *_, last = search(lambda t: 1e3 * math.exp(3 * t), lambda t: 1 + 1e3 * math.exp(3 * t))
    assert float(last[0]) == pytest.approx(0.1, rel=0.04)
    assert last[0] <= 0.1


def test_what_is_not_finite_shrinks():
    *_, last = search(lambda t: None if t > -1 else math.exp(t + 1))
    assert float(last[0]) == pytest.approx(math.exp(-1), rel=0.04)


def test_a_step_that_promises_too_much_shrinks():
    assert len(search(lambda t: 2.0, promised=9.0)) == 1
    with pytest.raises(AssertionError, match="no end"):
        search(lambda t: 2.0 * math.exp(t), promised=11.0, lr=0.001)


@pytest.mark.parametrize("share", [0.01, 1e6])
def test_without_a_factor_that_helps_nothing_changes(share):
    *_, last = search(lambda t: share, lambda t: min(share, 3.0))
    assert torch.equal(last, ONES)


def test_tensors_without_a_gradient_keep_their_values():
    state = RULE.init(ONES)
    unused = Sensitivity(1.0, None, torch.tensor([1e-9, 0.0, 1.0]), ONES, 0.0, 0.0)
    scales, _ = RULE.move(Position(ONES, state), unused, WEIGHTS, 1.0, 0.0, 0.3)
    assert scales[0] > 1
    assert scales[1:].tolist() == [1.0, 1.0]


def stopped_after(steps, share_at, loss_at=lambda t: 1.0):
    """The scales of a search that ends after so many steps."""
    state, scales = RULE.init(ONES), ONES
    for _ in range(steps):
        at = float(state["factor"])
        what = None if share_at(at) is None else seen(share_at(at), loss_at(at))
        scales, state = RULE.move(Position(scales, state), what, WEIGHTS, 1.0, 0.0, 0.3)
    assert state["sign"]
    return RULE.final_scales(scales, state)


def test_a_search_without_steps_left_gives_the_best_factor_that_was_tried():
    assert torch.equal(stopped_after(3, lambda t: 10 - t, lambda t: 10 - t), ONES)  # only worse
    assert torch.equal(stopped_after(2, lambda t: None), ONES)
    grown = stopped_after(4, lambda t: 1e-3 * math.exp(3 * t))  # 0 to 0.9 were tried, 1.2 was next
    assert float(grown[0].log()) == pytest.approx(0.9)
    halved = stopped_after(10, lambda t: 1e-3 * math.exp(3 * t))  # 2.4 is enough, 2.1 is not
    assert float(halved[0].log()) == pytest.approx(2.4)


@pytest.mark.parametrize("field", ["dead", "explodes", "promise", "target"])
def test_fields_are_checked(field):
    with pytest.raises(ValueError, match=f"`{field}` should be"):
        ni.CommonFactor(**{field: -1.0})


def test_a_loss_explodes_above_twice_its_unit():
    assert not RULE.exploding(seen(1.0, loss=4.0), 2.0, promised=0.0)
    assert RULE.exploding(seen(1.0, loss=4.1), 2.0, promised=0.0)
    assert not RULE.exploding(seen(1.0, loss=2.0), 2.0, promised=20.0)
    assert RULE.exploding(seen(1.0, loss=2.0), 2.0, promised=20.1)


def test_how_far_a_network_is_from_the_target():
    badness = RULE.badness(seen(1.0), share=1.0, unit=2.0, promised=60.0)
    assert badness == pytest.approx(math.log(3.0))
    assert RULE.badness(seen(1.0), share=0.5, unit=2.0, promised=0.0) == pytest.approx(math.log(2))
    high = RULE.badness(seen(1.0, loss=40.0), share=1.0, unit=2.0, promised=0.0)
    assert high == pytest.approx(math.log(10.0))  # twice the unit is where it explodes


# -- networks --------------------------------------------------------------------------------------


def network(factor=1.0, depth=6):
    torch.manual_seed(0)
    layers = [m for _ in range(depth) for m in (nn.Linear(32, 32), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(32, 3))
    ni.kaiming_(model)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(factor) if p.dim() > 1 else p.uniform_(-0.1, 0.1)
    return model


def batches(count=8):
    generator = torch.Generator().manual_seed(1)
    teacher = torch.randn(32, 3, generator=generator)
    inputs = torch.randn(count, 64, 32, generator=generator)
    return [(x, (x @ teacher).argmax(1)) for x in inputs]


def test_a_working_network_keeps_every_bit():
    model = network(0.9)
    before = {n: t.clone() for n, t in model.state_dict().items()}
    result = ni.nio_(model, batches())
    assert set(result.scales.values()) == {1.0}
    assert len(result.history) == 1
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())


def test_the_value_of_a_step_is_the_largest_share_of_a_weight():
    model, data = network(0.9), batches()
    result = ni.optimize(model, data, progress=False)
    assert 0.1 <= result.history[0].value < math.inf


@pytest.mark.parametrize("factor", [0.2, 4.0, 20.0])
def test_weights_come_back_from_any_factor(factor):
    """Dead or exploding: the weights end as large, and biases stay."""
    model = network(factor)
    before = {n: t.clone() for n, t in model.state_dict().items()}
    result = ni.nio_(model, batches())
    assert result.engine == "none"  # no second derivatives
    sizes = {round(s * factor, 3) for n, s in result.scales.items() if n.endswith("weight")}
    assert len(sizes) == 1
    assert 0.4 < sizes.pop() < 1.2
    for name, tensor in model.state_dict().items():
        assert name.endswith("weight") or torch.equal(before[name], tensor)


def test_a_network_that_overflows_is_shrunk():
    model = network(10.0, depth=40)
    assert not torch.isfinite(model(batches()[0][0])).all()
    result = ni.nio_(model, batches())
    first, last = result.history[0], result.history[-1]
    assert first.constrained
    assert not math.isfinite(first.loss)
    assert math.isfinite(last.loss)
    assert torch.isfinite(model(batches()[0][0])).all()


def test_a_network_that_overflows_with_any_factor_is_an_error():
    with pytest.raises(ni.NonFiniteError, match="not finite"):
        ni.nio_(network(1e9), batches())


def test_too_few_steps_do_not_end_worse_than_the_start():
    """Outputs that explode, and the more the smaller the weights are."""

    class Inverse(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(3, 32) / 100 + 0.01)

        def forward(self, x):
            return x @ (self.weight / (self.weight.square() + 1e-6)).T

    torch.manual_seed(0)
    model = Inverse()
    before = model.weight.detach().clone()
    result = ni.nio_(model, batches(), steps=3)
    assert result.history[-1].loss > 1.3 * result.history[0].loss  # the trials were worse
    assert result.stopped == "all steps done"
    assert torch.equal(model.weight, before)


def test_the_optimizer_decides_what_is_too_large():
    def scales(optimizer):
        result = ni.nio_(network(0.9), batches(), optimizer=optimizer, verify=False)
        return max(result.scales.values()), min(result.scales.values())

    assert scales(lambda p: torch.optim.SGD(p, lr=1e-4)) == (1.0, 1.0)
    assert scales(lambda p: torch.optim.SGD(p, lr=1e3))[1] < 1
    assert scales(lambda p: torch.optim.Adam(p, lr=1e-5)) == (1.0, 1.0)
    assert scales(lambda p: torch.optim.Adam(p, lr=1e2))[1] < 1


def test_operators_without_double_backward_work():
    model = nn.Sequential(nn.Flatten(), network(0.05))
    x = torch.randn(16, 4, 8)
    data = [(x, torch.randint(3, (16,)))]
    result = ni.nio_(model, data, lambda y, t: F.cross_entropy(-torch.cdist(y, torch.eye(3)), t))
    assert max(result.scales.values()) > 1


def test_a_number_for_gamma_chooses_the_held_norm():
    assert isinstance(ni.NIO(gamma=1.0).rule, ni.HeldNorm)
    assert isinstance(ni.NIO().rule, ni.CommonFactor)


@pytest.mark.parametrize(
    ("factor", "words"),
    [(0.9, "the network works and is left alone"), (0.2, "all weights times 4")],
)
def test_the_result_says_what_was_found(factor, words):
    assert ni.nio_(network(factor), batches()).stopped.startswith(words)


def exploding():
    torch.manual_seed(0)
    layers = [layer for _ in range(12) for layer in (nn.Linear(16, 16), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(16, 3))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3.0 if p.dim() > 1 else 1.0)
    return model, [(torch.randn(32, 16), torch.randint(3, (32,))) for _ in range(8)]


@pytest.mark.parametrize("steps", [5, 40])
def test_no_scale_ends_below_the_smallest(steps):
    model, batches = exploding()
    result = ni.optimize(model, batches, method=ni.NIO(min_scale=0.9, steps=steps))
    assert min(result.scales.values()) >= 0.9


def test_the_log_says_that_the_network_explodes(caplog):
    model, batches = exploding()
    with caplog.at_level("DEBUG", "neuroinit"):
        ni.optimize(model, batches, method=ni.NIO(steps=3))
    assert "explodes" in caplog.text
    assert "above the bound" not in caplog.text
