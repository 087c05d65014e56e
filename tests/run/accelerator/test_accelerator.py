"""The library on an accelerator: the test device refuses tensors of the CPU, and counts."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch

from tests.utils.architectures import ZOO
from tests.utils.shared import CASES

pytestmark = pytest.mark.skipif(
    not hasattr(torch._C, "_acc"), reason="torch has no Python backends for devices"
)
SINGLE = {"float32": 1e-4, "bfloat16": 1e-4}
# `torch.func` and the double backward of GroupNorm end the process of a Python backend (2.13);
# `.to` fails for the old weight norm; torch's GRU changes the shape of its results in place, which
# wrapped tensors cannot follow
MISSING = {"func_grad", "func_jvp", "group_norm", "old_weight_norm", "gru"}
MOST_WAITS = 3
TWO_DERIVATIVES = 2 * MOST_WAITS  # of the loss, and of the loss with permuted targets


@pytest.fixture(scope="module")
def on_device():
    """Calls a function of ``on_device.py`` in the process that has the device."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        yield lambda name, *arguments: pool.submit(_call, name, arguments).result()


def _call(name, arguments):
    torch.set_num_threads(1)
    from tests.run.accelerator import on_device

    return getattr(on_device, name)(*arguments)


def assert_alike(found, wanted, tolerance=1e-9):
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.tensor(a), torch.tensor(b), rtol=tolerance, atol=tolerance)


def test_tensors_of_both_devices_are_refused(on_device):
    assert "found one on the CPU" in on_device("mixing")


@pytest.mark.parametrize("engine", ["keep", "stream"])
@pytest.mark.parametrize("name", [c.name for c in ZOO if c.name not in MISSING])
def test_derivatives_are_those_of_the_cpu(on_device, name, engine):
    found, wanted = on_device("derivatives", name, engine)
    assert_alike(found, wanted, SINGLE.get(name, 1e-9))


@pytest.mark.parametrize(
    "name", ["in_place", "conv_transpose", "transformer", "tied_embedding", "layer_norm", "bare"]
)
def test_pieces_of_different_sizes(on_device, name):
    found, wanted = on_device("derivatives", name, "keep", 3, 0.5)
    assert_alike(found, wanted)


@pytest.mark.parametrize(("D", "r"), [(2, 0.5), (8, 0.0)])
@pytest.mark.parametrize("name", ["batch_norm_1d", "batch_norm_2d"])
def test_statistics_of_the_whole_batch_in_one_pass(on_device, name, D, r):
    found, wanted = on_device("derivatives", name, "keep", D, r, "batch")
    assert_alike(found, wanted)


@pytest.mark.parametrize("D", [2, 8, 32])
@pytest.mark.parametrize("kind", ["convolutions", "batch_norm", "transformer"])
def test_a_step_has_few_operators_for_any_number_of_sub_batches(on_device, kind, D):
    step, training = on_device("operators", kind, D)
    assert step <= 12 * training


@pytest.mark.parametrize(
    ("kind", "D"), [("convolutions", 6), ("convolutions", 16), ("transformer", 4)]
)
def test_a_step_has_few_operators_for_pieces_of_different_sizes(on_device, kind, D):
    step, training = on_device("operators", kind, D, 0.2)
    assert step <= 12 * training


@pytest.mark.parametrize("name", CASES)
def test_methods_give_the_results_of_the_cpu(on_device, name):
    wanted, found, waits = on_device("solved", name)
    assert_alike(found, wanted)
    assert waits <= (TWO_DERIVATIVES if "agreement" in name else MOST_WAITS)


@pytest.mark.parametrize("engine", ["stream", "differences"])
def test_engines_give_the_results_of_the_cpu(on_device, engine):
    wanted, found, waits = on_device("solved", "nio", engine)
    assert_alike(found, wanted, 1e-5)
    assert waits <= MOST_WAITS


@pytest.mark.parametrize(
    ("depth", "D", "engine", "gamma"),
    [(1, 4, "keep", 1.0), (6, 32, "keep", 1.0), (6, 32, "stream", 1.0), (6, 8, "auto", "auto")],
)
def test_a_step_waits_no_more_for_more_tensors_and_sub_batches(on_device, depth, D, engine, gamma):
    assert on_device("waits", depth, D, engine, gamma) <= MOST_WAITS


def test_autocast(on_device):
    wanted, found = on_device("autocast")
    assert_alike([found], [wanted], 1e-2)


def test_auto(on_device):
    wanted, found = on_device("chosen")
    assert found[0] == wanted[0]
    assert_alike(found[1:], wanted[1:], 1e-6)


def test_a_run_continues_from_its_checkpoint(on_device, tmp_path):
    whole, again, loaded, _ = on_device("resumed", str(tmp_path))
    assert whole == again == loaded


def test_the_random_state_of_the_device_is_restored(on_device):
    assert on_device("random_state_is_restored") == (True, True)


@pytest.mark.parametrize("name", ["NIO", "MetaInit"])
def test_models_on_two_devices(on_device, name):
    one, two = on_device("on_two_devices", name)
    assert_alike(two, one, 1e-5)
