"""Memory: which engine fits, what a small limit does, and going on when memory runs out."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuroinit.common.errors import out_of_memory
from neuroinit.gradients.plan import make_plan
from neuroinit.model.problem import Problem
from neuroinit.run import engine_choice as memory
from neuroinit.run.engine_choice import KEEP, STREAM, Schedule, choose_schedule, graph_bytes
from tests.utils.moving import ni
from tests.utils.snapshots import assert_unchanged, snapshot

METHOD = ni.NIO(steps=3, sub_batches=2, gamma=1.0)


class Greedy(nn.Module):
    """Raises as an allocator does, for more than ``most`` samples in graphs at a time."""

    def __init__(self, most, error):
        super().__init__()
        self.most, self.error = most, error
        self.seen = []

    def forward(self, x):
        self.seen.append(len(x))
        if len(x) > self.most:
            raise self.error
        return x


@pytest.fixture
def batches():
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(16, 6, generator=generator), torch.randint(3, (16,), generator=generator))
        for _ in range(4)
    ]


def network(*extra):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 32), nn.Tanh(), *extra, nn.Linear(32, 3))


def chosen(model, batch, limit):
    problem = Problem(model, F.cross_entropy)
    point = problem.at(problem.unit_scales)
    plan = make_plan(problem, batch, 2, 0.0, "cover", "sub-batch")
    found = choose_schedule(point, batch, plan, Schedule(None), limit)
    return found, graph_bytes(point, batch, plan.pieces[0], False)


def test_auto_keeps_then_streams_then_cuts(batches):
    schedule, piece = chosen(network(), batches[0], 2**40)
    assert schedule == Schedule(KEEP)
    vectors = 4 * 4 * sum(p.numel() for p in network().parameters())
    needed = (1 + memory.WORK) * piece
    assert chosen(network(), batches[0], int(needed + vectors))[0] == Schedule(STREAM, 4)
    assert chosen(network(), batches[0], int(needed / 4 + vectors))[0] == Schedule(STREAM, 2)


def test_slices_of_one_forward_pass_are_not_taken_for_free(batches):
    problem = Problem(network(nn.BatchNorm1d(32)), F.cross_entropy)
    point = problem.at(problem.unit_scales)

    def least_that_keeps(d):
        plan = make_plan(problem, batches[0], d, 0.0, "cover", "batch")
        for size in range(2**12, 2**19, 2**10):
            found = choose_schedule(point, batches[0], plan, Schedule(None), size)
            if found.engine is KEEP:
                return size
        raise AssertionError("`keep` is never chosen")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that a step does not fit
        assert least_that_keeps(2) < least_that_keeps(4) < least_that_keeps(8)


def test_a_container_has_less_than_its_host(tmp_path, monkeypatch):
    cpu = torch.device("cpu")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    host = memory.free_memory(cpu)
    (tmp_path / "memory.current").write_text("300\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_memory(cpu) > 1000
    (tmp_path / "memory.max").write_text("1000\n")
    assert host > 1000
    assert memory.free_memory(cpu) == 700


def test_graph_bytes_grow_with_the_samples(batches):
    problem = Problem(network(), F.cross_entropy)
    point = problem.at(problem.unit_scales)
    sizes = [graph_bytes(point, batches[0], (0, stop), False) for stop in (4, 8, 16)]
    assert sizes[0] < sizes[1] < sizes[2]


def test_a_small_limit_gives_the_same_scales(batches):
    free = ni.optimize(network(), batches, method=METHOD)
    with pytest.warns(UserWarning, match="of `memory_limit`.*not possible"):
        tight = ni.optimize(network(), batches, method=METHOD, memory_limit=1)
    assert (free.engine, tight.engine) == ("keep", "stream")
    for name, scale in free.scales.items():
        assert tight.scales[name] == pytest.approx(scale, rel=1e-4)


def test_batch_norm_is_not_cut_below_a_sub_batch(batches):
    with pytest.warns(UserWarning, match="more than 0.0 MB of `memory_limit`"):
        result = ni.optimize(network(nn.BatchNorm1d(32)), batches, method=METHOD, memory_limit=1)
    assert result.engine == "stream"


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: not enough memory"),
    ],
    ids=["device", "cpu"],
)
def test_running_out_of_memory_goes_on_in_smaller_pieces(batches, error):
    expected = ni.optimize(network(), batches[:3], method=METHOD)
    greedy = Greedy(100, error)
    model = network(greedy)
    before = snapshot(model)

    def on_step(record):
        greedy.most = 2 if record.step == 0 else 100

    with pytest.warns(UserWarning, match="Memory ran out: going on in smaller pieces") as caught:
        result = ni.optimize(model, batches[:3], method=METHOD, on_step=on_step)
    assert len([w for w in caught if "ran out" in str(w.message)]) == 1
    greedy.most, greedy.seen[:] = 100, []
    assert_unchanged(before, model)
    for (_, ours), (_, wanted) in zip(result.scales.items(), expected.scales.items(), strict=True):
        assert ours == pytest.approx(wanted, rel=1e-4)
    assert [r.step for r in result.history] == [0, 1, 2]


def test_a_first_step_that_does_not_fit_goes_on(batches):
    error = torch.OutOfMemoryError("out of memory")
    held_out = [*batches[:3], *batches[:1]]
    with pytest.warns(UserWarning, match="Memory ran out"):
        result = ni.optimize(network(OnlyGraphs(4, error)), held_out, method=METHOD)
    assert result.engine == "stream"


class OnlyGraphs(Greedy):
    """Only passes by whole sub-batches are too much; the test of independence is let through."""

    def forward(self, x):
        if self.most < len(x) <= 8:
            raise self.error
        return x


def test_memory_that_cannot_be_had_is_an_error(batches):
    model = network(Greedy(0, torch.OutOfMemoryError("out of memory")))
    before = snapshot(model)
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        ni.nio_(model, batches, steps=2, gamma=1.0)
    model[2].seen.clear()
    assert_unchanged(before, model)


def test_other_errors_are_not_taken_for_it():
    assert out_of_memory(MemoryError())
    assert not out_of_memory(RuntimeError("view size is not compatible"))
    assert not out_of_memory(ValueError("out of memory"))


def test_a_generous_limit_is_silent(batches):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = ni.optimize(network(), batches, method=METHOD, memory_limit=10**9)
    assert result.engine == "keep"


@pytest.mark.parametrize("limit", [0, -5])
def test_a_limit_below_one_byte(batches, limit):
    with pytest.raises(ValueError, match=f"memory_limit.*Found `memory_limit = {limit}`"):
        ni.nio_(network(), batches, memory_limit=limit)


def test_a_limit_that_is_no_number(batches):
    with pytest.raises(TypeError, match="`memory_limit` should be an int"):
        ni.nio_(network(), batches, memory_limit="8 GB")


FIRST_ORDER, SECOND_ORDER = ni.LSUV(), ni.GradInit()


@pytest.mark.parametrize(
    ("engine", "method", "graphs", "used"),
    [
        (None, SECOND_ORDER, True, "none"),  # not chosen yet
        ("keep", SECOND_ORDER, True, "keep"),
        ("stream", SECOND_ORDER, True, "stream"),
        ("differences", SECOND_ORDER, False, "differences"),
        (None, FIRST_ORDER, False, "none"),
        ("stream", FIRST_ORDER, False, "none"),
        ("differences", FIRST_ORDER, False, "none"),
    ],
)
def test_which_engine_a_method_uses_and_whether_it_differentiates_graphs(
    engine, method, graphs, used
):
    schedule = Schedule(memory.ENGINES.get(engine))
    assert schedule.differentiates_graphs(method) is graphs
    assert schedule.used_by(method).name == used
    assert schedule.streams is (engine == "stream")


@pytest.mark.parametrize(
    "method", [ni.NIO(steps=1, sub_batches=2), METHOD], ids=["first", "second"]
)
@pytest.mark.parametrize("engine", ["auto", "keep"])
def test_memory_that_runs_out_for_one_sample_is_the_user_s_error(batches, method, engine):
    model = network(Greedy(0, torch.OutOfMemoryError("out of memory")))
    options = {"engine": engine} if method is METHOD else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
            ni.optimize(model, batches, method=method, progress=False, **options)
