"""Several threads of one process: results are those of one thread, and switches come back."""

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from neuroinit.common.process.random_state import GeneratorStates, seed_all
from neuroinit.common.process.switches import ProcessSwitch
from neuroinit.model import traits
from tests.utils.interrupts import Attention, process_state
from tests.utils.interrupts import batches as attention_batches


def in_threads(*functions):
    """What every function returned; an error of any of them is raised."""
    found = [None] * len(functions)

    def call(k):
        try:
            found[k] = functions[k]()
        except BaseException as error:
            found[k] = error

    threads = [threading.Thread(target=call, args=(k,)) for k in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for outcome in found:
        if isinstance(outcome, BaseException):
            raise outcome
    return found


def scales(model):
    method = ni.NIO(steps=2, sub_batches=2)
    return ni.optimize(model, attention_batches(), F.cross_entropy, method).scales


def test_threads_find_what_one_thread_finds():
    torch.manual_seed(0)
    models = [Attention() for _ in range(3)]
    expected = [scales(model) for model in models]
    before, state = process_state(), torch.get_rng_state()
    assert in_threads(*(lambda model=model: scales(model) for model in models)) == expected
    assert process_state() == before
    assert torch.equal(torch.get_rng_state(), state)


class Noisy(nn.Module):
    """Draws in its forward pass."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x + 0.1 * torch.randn_like(x))))


def noisy_scales(model, engine="keep"):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(16, 4, generator=generator, dtype=torch.float64)
    data = [(x, torch.randint(3, (16,), generator=generator))]
    return ni.optimize(model, data, method=ni.NIO(steps=2, gamma=0.5), engine=engine).scales


def test_generators_are_written_only_for_models_that_draw(monkeypatch):
    written, restore = [], GeneratorStates.restore

    def seed(value):
        written.append(value)
        seed_all(value)

    def restored(states):
        written.append("restored")
        restore(states)

    monkeypatch.setattr(traits, "seed_all", seed)
    monkeypatch.setattr(GeneratorStates, "restore", restored)
    scales(Attention())
    assert written == []
    noisy_scales(Noisy().double())
    assert "restored" in written
    assert len(set(written)) > 1


def test_models_that_draw_have_the_same_noise_on_every_engine():
    model = Noisy().double()
    found = [noisy_scales(model, engine) for engine in ("keep", "stream", "keep")]
    assert found[0] == found[2]
    assert found[1] == pytest.approx(found[0], rel=1e-9)


def test_a_switch_is_turned_back_by_the_last_thread():
    turned = []

    class Turn:
        def __enter__(self):
            turned.append(True)

        def __exit__(self, *error):
            turned.append(False)

    switch = ProcessSwitch(Turn)
    first, second = switch.turned(), switch.turned()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert turned == [True]
    second.__exit__(None, None, None)
    assert turned == [True, False]
