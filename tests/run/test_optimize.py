"""The loop: batches in, history and scales out."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from neuroinit.run import engine_choice as memory
from tests.utils.engines import ENGINES
from tests.utils.moving import ni


def test_history_has_one_record_a_step(small_model, digits_like):
    result = ni.optimize(small_model, digits_like, method=ni.NIO(steps=5))
    assert [record.step for record in result.history] == [0, 1, 2, 3, 4]
    fields = [
        "step",
        "loss",
        "cosine",
        "norm",
        "norm_max",
        "norm_min",
        "constrained",
        "seconds",
        "value",
    ]
    assert list(dict(result.history[0])) == fields
    for record in result.history:
        assert record.norm_min <= record.norm <= record.norm_max
        assert record["cosine"] == record.cosine
        assert record.seconds > 0


def test_the_first_record_is_that_of_gradient_stats(small_model, digits_like):
    method = ni.NIO.paper(steps=1, sub_batches=4, overlap=0.0)
    result = ni.optimize(small_model, digits_like, method=method)
    stats = ni.gradient_stats(small_model, digits_like[0], sub_batches=4)
    record = result.history[0]
    assert record.cosine == pytest.approx(stats.cosine, rel=1e-5)
    assert record.norm_max == pytest.approx(stats.norm_max, rel=1e-5)
    assert record.loss == pytest.approx(stats.loss, rel=1e-5)


def test_before_and_after_are_on_a_batch_that_no_step_has_seen(small_model, digits_like):
    result = ni.optimize(small_model, digits_like, method=ni.NIO(steps=3, sub_batches=4))
    assert result.held_out
    before = ni.gradient_stats(small_model, digits_like[3], sub_batches=4)
    result.apply_(small_model)
    after = ni.gradient_stats(small_model, digits_like[3], sub_batches=4)
    torch.testing.assert_close(result.before.norms, before.norms)
    torch.testing.assert_close(result.after.norms, after.norms, rtol=1e-5, atol=1e-7)
    assert result.after.cosine == pytest.approx(after.cosine, rel=1e-4)


def test_without_a_spare_batch_the_result_says_so(small_model, digits_like):
    result = ni.optimize(small_model, digits_like[:2], method=ni.NIO(steps=2))
    assert not result.held_out
    assert "used batch, D = " in repr(result)


def test_a_list_shorter_than_the_steps_is_gone_through_again(small_model, digits_like):
    short = ni.optimize(small_model, digits_like[:2], method=ni.NIO(steps=5))
    cycled = [digits_like[i % 2] for i in range(5)]
    assert short.scales == ni.optimize(small_model, cycled, method=ni.NIO(steps=5)).scales


def test_a_generator_that_ends_early_ends_the_run_with_a_warning(small_model, digits_like):
    with pytest.warns(UserWarning, match="batches ended after 3 of 9 steps"):
        result = ni.optimize(small_model, iter(digits_like[:3]), method=ni.NIO(steps=9))
    assert len(result.history) == 3
    assert "the batches ended" in result.stopped


def test_a_generator_of_just_enough_batches_gives_no_warning(small_model, digits_like):
    result = ni.optimize(small_model, iter(digits_like[:3]), method=ni.NIO(steps=3))
    assert len(result.history) == 3
    assert not result.held_out


def test_a_data_loader_works(small_model):
    data = TensorDataset(torch.randn(48, 4), torch.randint(3, (48,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    assert len(ni.nio_(small_model, loader, steps=7).history) == 7


def test_a_short_last_batch_of_a_loader_is_passed_over(small_model):
    data = TensorDataset(torch.randn(37, 4), torch.randint(3, (37,)))
    result = ni.optimize(
        small_model, DataLoader(data, batch_size=16), method=ni.NIO(steps=6, tolerance=0.0)
    )
    assert len(result.history) == 6
    assert len(ni.optimize(small_model, DataLoader(data, 16), method=ni.NIO(steps=2)).history) == 2


def test_nio_is_optimize_applied(small_model, digits_like):
    twin = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    twin.load_state_dict(small_model.state_dict())
    result = ni.optimize(small_model, digits_like, method=ni.NIO(steps=4))
    assert result.apply_(small_model) is small_model
    assert ni.nio_(twin, digits_like, steps=4).scales == result.scales
    for a, b in zip(small_model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


def test_stops_early_when_nothing_moves(small_model, digits_like):
    method = ni.NIO(steps=50, lr=1e-9, gamma=1.0)
    result = ni.optimize(small_model, digits_like, method=method)
    assert len(result.history) == 5
    assert result.stopped == "the scales no longer change"


@pytest.mark.filterwarnings("ignore:The gradient norm is")
def test_scales_never_fall_below_the_clamp(digits_like):
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(6)], nn.Linear(4, 3))
    for parameter in model.parameters():
        parameter.data *= 6
    result = ni.optimize(model, digits_like, method=ni.NIO(steps=40, gamma=1e-6, min_scale=0.5))
    assert min(result.scales.values()) == pytest.approx(0.5)


def test_models_in_wrappers_are_looked_through(small_model, digits_like):
    expected = ni.optimize(small_model, digits_like, method=ni.NIO(steps=2)).scales
    compiled = torch.compile(small_model, backend="eager")
    assert ni.optimize(compiled, digits_like, method=ni.NIO(steps=2)).scales == expected
    assert ni.nio_(nn.DataParallel(small_model), digits_like, steps=2).scales == expected


def test_any_batch_with_compute_loss(small_model, digits_like):
    expected = ni.optimize(small_model, digits_like, method=ni.NIO(steps=3, gamma=1.0))
    dicts = [{"x": x, "labels": {"y": y}} for x, y in digits_like]

    def compute_loss(model, batch):
        return F.cross_entropy(model(batch["x"]), batch["labels"]["y"], reduction="none")

    found = ni.optimize(
        small_model, dicts, method=ni.NIO(steps=3, gamma=1.0), compute_loss=compute_loss
    )
    assert found.scales == pytest.approx(expected.scales, rel=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_and_microbatches_agree(digits_like, engine):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    batches = [(x.double(), y) for x, y in digits_like]
    method = ni.NIO(steps=4, sub_batches=4, overlap=0.5)
    plain = ni.optimize(model, batches, method=method, engine="keep").scales
    for microbatch in (None, 1, 3, 16):
        found = ni.optimize(model, batches, method=method, engine=engine, microbatch=microbatch)
        assert found.scales == pytest.approx(plain, rel=1e-9)
        assert found.engine == engine


def test_auto_streams_when_the_graphs_do_not_fit(small_model, digits_like, monkeypatch):
    assert ni.optimize(small_model, digits_like, method=ni.NIO(steps=1)).engine == "keep"
    monkeypatch.setattr(memory, "free_memory", lambda device: 1000)
    with pytest.warns(UserWarning, match="A step needs about .* available"):
        assert ni.optimize(small_model, digits_like, method=ni.NIO(steps=1)).engine == "stream"


def test_free_memory_is_known_here():
    assert 2**20 < memory.free_memory(torch.device("cpu")) < 2**62


def test_the_progress_bar_is_for_terminals(small_model, digits_like, monkeypatch, capsys):
    from neuroinit.common import progress

    monkeypatch.setattr(progress, "DELAY", 0.0)
    ni.optimize(small_model, digits_like, method=ni.NIO(steps=2))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    ni.optimize(small_model, digits_like, method=ni.NIO(steps=2))
    shown = capsys.readouterr().err
    assert "NIO [####################] 2/2  cosine 0." in shown
    assert "norm" in shown
    assert "the bound" in shown
    ni.optimize(small_model, digits_like, method=ni.NIO(steps=2), progress=False)
    assert capsys.readouterr().err == ""
