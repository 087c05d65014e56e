"""The phases of HeldNorm, on moments made by hand."""

import math

import pytest
import torch
from torch import nn

import neuroinit as ni
from neuroinit.gradients.measures import Moments
from neuroinit.methods.rules import BoundedAscent, HeldNorm
from neuroinit.methods.updates import OneScale, Plain, Position

RULE = HeldNorm()
ONES = torch.ones(3, dtype=torch.float64)


def moments(norm):
    return Moments(torch.full((4,), norm, dtype=torch.float64), torch.tensor(0.5).double())


def move(norm, gradient, state=None, progress=0.0, rule=RULE, start=ONES, loss=math.nan):
    """A step of 0.3 for a gamma of 1."""
    state = rule.init(start) if state is None else state
    gradient = torch.tensor(gradient, dtype=torch.float64)
    return rule.move(Position(ONES, state, progress, loss), gradient, moments(norm), 1.0, 0.3)


def test_an_explosion_is_shrunk_by_all_tensors_alike():
    scales, state = move(1e6, [2.0, 1.0, -0.1])
    torch.testing.assert_close(scales, ONES * math.exp(-0.3))
    assert state["shrinking"] == 1


def test_the_last_step_of_shrinking_goes_past_the_norm_at_which_it_ends():
    scales, _ = move(10.0, [40.0, 40.0, 20.0])  # to first order, the log-norm falls by 100 steps
    past = RULE.shrink_to * math.exp(-0.5)
    torch.testing.assert_close(scales, ONES * math.exp(-math.log(10.0 / past) / 100))


def test_every_crossing_of_gamma_halves_the_longest_step():
    _, state = move(2.0, [1.0, 1.0, 1.0])
    scales, state = move(0.2, [1.0, 1.0, 1.0], state)
    torch.testing.assert_close(scales, ONES * math.exp(0.3 / 2))
    scales, state = move(5.0, [1.0, 1.0, 1.0], state)
    torch.testing.assert_close(scales, ONES * math.exp(-0.3 / 4))
    scales, _ = move(0.8, [0.3, 0.3, 0.3], state)  # crossed by less than a factor of e
    torch.testing.assert_close(scales, ONES * math.exp(0.3 / 4))


def test_shrinking_goes_on_below_gamma_and_ends_well_below_it():
    _, state = move(1e6, [2.0, 1.0, 1.0])
    scales, state = move(0.5, [2.0, 1.0, 1.0], state)
    assert (scales < 1).all()
    assert state["shrinking"] == 1
    scales, state = move(0.09, [2.0, 1.0, 1.0], state)
    assert (scales > 1).all()
    assert state["shrinking"] == 0
    _, state = move(1e6, [2.0, 1.0, 1.0], state)
    assert state["shrinking"] == 0  # decided once


@pytest.mark.parametrize("norm", [0.5, 1.5, 100.0])
def test_nothing_shrinks_where_no_scale_moves_the_norm(norm):
    """What is left is the gradient of the last bias; shrinking on would kill the network."""
    _, state = move(1e6, [2.0, 1.0, 1.0])
    scales, state = move(norm, [0.2, 0.1, 0.1], state)
    assert state["shrinking"] == 0
    assert (scales >= 1).all()
    scales, _ = move(norm, [0.5, -0.4, 0.1])  # these two move it
    assert not torch.equal(scales, ONES)


def test_nothing_grows_while_the_loss_is_well_above_the_least():
    scales, state = move(0.5, [1.0, 1.0, 1.0], loss=2.0)
    assert (scales > 1).all()
    scales, state = move(0.5, [1.0, 1.0, 1.0], state, loss=2.5)
    torch.testing.assert_close(scales, ONES)
    scales, state = move(0.5, [1.0, 1.0, 1.0], state, loss=2.3)
    assert (scales > 1).all()
    scales, _ = move(2.0, [1.0, 1.0, 1.0], state, loss=9.0)
    assert (scales < 1).all()  # to shrink is no matter of the loss
    _, state = move(0.5, [1.0, 1.0, 1.0], loss=-2.0)
    assert (move(0.5, [1.0, 1.0, 1.0], state, loss=-1.9)[0] > 1).all()


def test_shrinking_ends_after_half_the_steps():
    _, state = move(1e6, [1.0, 1.0, 1.0])
    assert move(1e6, [1.0, 1.0, 1.0], state, progress=0.5)[1]["shrinking"] == 0


def test_the_norm_is_brought_to_gamma_by_equal_steps_of_the_tensors_that_matter():
    scales, _ = move(2.0, [1.0, 0.5, 0.01])
    step = math.log(2.0) / 1.5  # to first order, exactly to gamma
    expected = torch.tensor([-min(step, 0.3), -min(step, 0.3), 0.0]).double().exp()
    torch.testing.assert_close(scales, expected)


def test_tensors_with_a_small_derivative_grow_with_the_others():
    """If the output is nearly zero, only the last layer has a derivative."""
    scales, _ = move(0.1, [1.0, 1e-9, 0.0])
    torch.testing.assert_close(scales, torch.tensor([0.3, 0.3, 0.0]).double().exp())
    last = move(0.1, [1.0, 1e-9, 0.0], rule=HeldNorm(grow=False))[0]
    torch.testing.assert_close(last, torch.tensor([0.3, 0.0, 0.0]).double().exp())


def test_a_tensor_that_is_not_in_use_stays():
    scales, _ = move(0.1, [1.0, 0.0, 1e-30])
    torch.testing.assert_close(scales, torch.tensor([0.3, 0.0, 0.3]).double().exp())


def test_what_saturates_shrinks_to_raise_the_norm():
    scales, _ = move(0.1, [1.0, -0.5, 1e-9])
    torch.testing.assert_close(scales, torch.tensor([0.3, -0.3, 0.3]).double().exp())


def test_nothing_grows_to_lower_the_norm():
    """It would only saturate what follows."""
    scales, _ = move(4.0, [1.0, -0.9, 0.5])
    assert scales[1] == 1
    assert (scales[[0, 2]] < 1).all()
    assert (move(4.0, [-1.0, -0.9, -0.5])[0] > 1).all()  # unless there is no other way


def test_near_gamma_the_objective_is_ascended_in_small_decaying_steps():
    descended = RULE.descended(Position(ONES, RULE.init(ONES)), moments(1.0), 1.0)
    assert descended.item() == -0.5
    rule = HeldNorm(ascent=0.1)
    early, _ = move(1.0, [-0.2, 0.1, 0.0], progress=0.0, rule=rule)
    late, _ = move(1.0, [-0.2, 0.1, 0.0], progress=0.9, rule=rule)
    torch.testing.assert_close(early.log(), torch.tensor([0.03, -0.015, 0.0]).double())
    torch.testing.assert_close(late.log(), 0.1 * early.log())


@pytest.mark.parametrize("gamma", [0.1, 1.0, 50.0])
def test_near_gamma_is_a_ratio(gamma):
    position = Position(ONES, RULE.init(ONES))
    for ratio in (0.9, 1.1):
        assert RULE.descended(position, moments(ratio * gamma), gamma).item() == -0.5
    for ratio in (0.8, 1.25):
        found = RULE.descended(position, moments(ratio * gamma), gamma).item()
        assert found == pytest.approx(math.log(ratio * gamma))


def test_near_gamma_nothing_moves_by_default():
    assert torch.equal(move(1.0, [-0.2, 0.1, 0.0])[0], ONES)


@pytest.mark.filterwarnings("ignore:The gradient norm is")
def test_a_start_that_overflows_is_shrunk_until_it_is_finite():
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(40)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(20)
    batch = torch.randn(16, 8), torch.randint(8, (16,))
    assert not torch.isfinite(model(batch[0])).all()
    result = ni.optimize(model, [batch], method=ni.NIO(gamma=2.0, steps=1, lr=0.3))
    assert math.isfinite(result.history[0].loss)
    assert max(result.scales.values()) < 0.8


def test_a_retreat_is_only_for_starts():
    assert RULE.retreat(Position(ONES, RULE.init(ONES)), 0.3) is not None
    _, state = move(1.0, [1.0, 1.0, 1.0])
    assert RULE.retreat(Position(ONES, state), 0.3) is None
    assert BoundedAscent().retreat(Position(ONES, {}), 0.3) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"shrink_above": 1.0},
        {"shrink_to": 0.0},
        {"shrink_to": 1.0},
        {"band": math.nan},
        {"share": 1.0},
        {"ascent": -0.1},
    ],
)
def test_fields_out_of_range(fields):
    (name,) = fields
    with pytest.raises(ValueError, match=f"`{name}` should be a finite number"):
        HeldNorm(**fields)


@pytest.mark.parametrize("name", ["objective", "bounded", "update"])
def test_fields_of_the_wrong_kind(name):
    with pytest.raises(TypeError, match=f"`{name}` should be"):
        BoundedAscent(**{name: "cosine"})


@pytest.mark.parametrize("kind", [BoundedAscent, OneScale, ni.GradInit, ni.MetaInit])
@pytest.mark.parametrize("update", ["adam", Plain])
def test_an_update_is_an_instance(kind, update):
    with pytest.raises(TypeError, match="`update` should be an update such as"):
        kind(update=update)


def test_a_deep_plain_network_does_not_swing_around_the_bound():
    """Its norm goes with a high and changing power of the scales."""
    torch.manual_seed(0)
    layers = [module for _ in range(12) for module in (nn.Linear(16, 16), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(16, 4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    batches = [(torch.randn(64, 16), torch.randint(4, (64,))) for _ in range(40)]
    result = ni.optimize(model, batches, method=ni.NIO(rule=RULE))
    logs = [math.log(record.norm / result.settings["gamma"]) for record in result.history]
    assert max(map(abs, logs)) > 3  # an explosion that the first steps overdo
    assert max(map(abs, logs[6:])) < 1.5


def test_a_share_of_zero_is_valid():
    assert ni.HeldNorm(share=0.0).share == 0.0
    with pytest.raises(ValueError, match="`share` should be"):
        ni.HeldNorm(share=1.0)
