"""Sharded models, by differences: on smooth networks they find what the exact engines find."""

import pytest
import torch
import torch.nn.functional as F

import neuroinit as ni
from tests.sharded.fsdp import METHOD, all_sharded, measured_after_a_pass, smooth
from tests.sharded.sharded_models import (
    all_unusual,
    not_verified,
    parallel_scales,
    scales_of,
    token_batches,
    tokens,
    with_empty_shards,
)
from tests.utils.architectures import CubeOnce
from tests.utils.ranks import run
from tests.utils.shared import AGREEMENT, batches


def test_sharded_models_find_what_whole_ones_find(tmp_path):
    outcomes = run(2, all_sharded, tmp_path)
    for outcome in outcomes:
        assert "value" in outcome, outcome.get("trace")
    assert outcomes[0] == outcomes[1]
    for sharding, width in (("fsdp", 9), ("tensor", 8)):
        expected = ni.optimize(smooth(width=width), batches(), F.cross_entropy, METHOD)
        found = outcomes[0]["value"][sharding]
        assert found["scales"] == pytest.approx(expected.scales, rel=1e-5), sharding
        after = [expected.after.cosine, expected.after.norm, expected.after.agreement]
        assert found["after"] == pytest.approx(after, 1e-4)
        assert found["promises"] == [True, True, True]
    microbatch, autocast, dtypes = outcomes[0]["value"]["options"]
    assert "`microbatch = 4` is not supported for sharded models" in microbatch
    assert "is too inexact for this model" in autocast  # bfloat16 is too coarse for differences
    assert dtypes == ["torch.bfloat16"]
    sharded, method, inexact = outcomes[0]["value"]["refused"]
    assert "The model is sharded" in sharded
    assert "is not supported by `GradInit`" in method
    assert "is too inexact for this model" in inexact


def test_a_sharded_model_is_known_as_one_after_a_pass(tmp_path):
    (outcome,) = run(1, measured_after_a_pass, tmp_path)
    gathered, told = outcome["value"]
    assert gathered
    assert "The model is sharded" in told


@pytest.mark.parametrize("method", [METHOD, AGREEMENT], ids=["default", "agreement"])
def test_differences_on_one_process(method):
    exact = ni.optimize(smooth(), batches(), F.cross_entropy, method)
    found = ni.optimize(smooth(), batches(), F.cross_entropy, method, engine="differences")
    assert found.scales == pytest.approx(exact.scales, rel=1e-5)
    assert found.engine == "differences"


def test_a_model_without_double_backward_can_go_by_differences():
    class Cube(torch.nn.Module):
        def forward(self, x):
            return CubeOnce.apply(x)

    torch.manual_seed(0)
    layers = [torch.nn.Linear(5, 5).double(), Cube(), torch.nn.Linear(5, 3).double()]
    model = torch.nn.Sequential(*layers)
    with pytest.raises(RuntimeError, match=r"once_differentiable.* has no double backward"):
        ni.optimize(model, batches(), method=METHOD)
    result = ni.optimize(model, batches(), method=METHOD, engine="differences")
    assert set(result.scales) == {"0.weight", "0.bias", "2.weight", "2.bias"}


@pytest.fixture(scope="module")
def unusual(tmp_path_factory):
    """What two ranks found, which is the same."""
    outcomes = run(2, all_unusual, tmp_path_factory.mktemp("ranks"))
    for outcome in outcomes:
        assert "value" in outcome, outcome.get("trace")
    assert outcomes[0] == outcomes[1]
    return outcomes[0]["value"]


def test_partial_gradients_are_summed(unusual):
    expected = scales_of(tokens(), token_batches(), "auto")
    assert unusual["sequence"] == pytest.approx(expected, rel=1e-6)


def test_shards_that_are_empty_or_zero_on_one_rank_belong_to_a_whole(unusual):
    expected = scales_of(with_empty_shards(), batches(), "auto")
    assert unusual["empty"] == pytest.approx(expected, rel=1e-6)


def test_fsdp_works_on_after_an_error_in_any_pass(unusual):
    found = {name: value for name, value in unusual.items() if " " in name or name == "width"}
    texts = {name: text for name, (text, *_) in found.items()}
    assert "shapes cannot be multiplied" in texts.pop("width")
    assert texts == {n: f"the {_failed(n)} failed" for n in texts}
    assert all(promises == [True, True, True] for _, *promises in found.values()), found


def _failed(name):
    return "layer" if name.startswith("forward") else "gradient"


def test_fsdp1_is_refused_and_not_touched(unusual):
    *first, works = unusual["fsdp1"][:7]
    *second, works_too = unusual["fsdp1"][7:]
    assert works is works_too is True
    assert len(first) == len(second) == 6
    assert all("`FullyShardedDataParallel` (FSDP1)" in text for text in (*first, *second))


@pytest.mark.distributed
def test_fsdp_with_tensor_parallelism(tmp_path):
    outcomes = run(4, parallel_scales, tmp_path, "fsdp")
    assert "value" in outcomes[0], outcomes[0].get("trace")
    expected = scales_of(tokens(), token_batches(), "auto")
    for outcome in outcomes:
        assert outcome["value"] == pytest.approx(expected, rel=1e-6)


class OnePercentOff(torch.autograd.Function):
    """The identity with a wrong gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 1.01 * gradient


def test_a_gradient_that_is_one_percent_off_is_refused():
    model = smooth()
    model[3].register_forward_hook(lambda module, inputs, output: OnePercentOff.apply(output))
    with pytest.raises(ValueError, match="is too inexact for this model"):
        scales_of(model, batches())


def test_a_sharded_model_is_optimized_but_not_verified(tmp_path):
    for outcome in run(1, not_verified, tmp_path):
        assert "value" in outcome, outcome.get("trace")
        text, scaled, verified = outcome["value"]
        assert "The result is not verified" in text
        assert scaled
        assert verified == ""
