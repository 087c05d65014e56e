"""What happens goes through Python's ``logging``, under the name ``neuroinit``."""

import logging
import math

import torch
import torch.nn.functional as F

import neuroinit as ni


def test_a_run_is_one_line_and_its_steps_are_for_debugging(caplog, small_model, digits_like):
    with caplog.at_level(logging.DEBUG, logger="neuroinit"):
        result = ni.optimize(
            small_model, digits_like, method=ni.NIO(steps=3, tolerance=0, gamma=2.0)
        )
    told = [record for record in caplog.records if record.name.startswith("neuroinit")]
    assert [r.levelname for r in told] == ["DEBUG"] * 3 + ["INFO"]
    assert told[0].getMessage().startswith(f"Step 0: loss {result.history[0].loss:.4g}  cosine")
    assert told[-1].getMessage() == (
        f"NIO: 3 steps (all steps done), engine {result.engine}, "
        f"gradient norm {result.before.norm:.3g} -> {result.after.norm:.3g}"
    )


def test_why_the_agreement_was_not_measured_is_for_debugging(caplog, small_model, digits_like):
    class OtherError(Exception):
        pass

    def compute_loss(model, batch):
        inputs, targets = batch
        if not torch.equal(targets, inputs.argmax(1) % 3):
            raise OtherError("other targets")
        return F.cross_entropy(model(inputs), targets)

    batches = [(inputs, inputs.argmax(1) % 3) for inputs, _ in digits_like]
    with caplog.at_level(logging.DEBUG, logger="neuroinit"):
        result = ni.optimize(
            small_model, batches, compute_loss=compute_loss, method=ni.NIO(steps=1)
        )
    assert math.isnan(result.after.agreement)
    told = {(r.levelname, r.getMessage()) for r in caplog.records}
    assert any(
        level == "DEBUG"
        and message.startswith("The agreement was not measured")
        and "it raises OtherError('other targets')" in message
        for level, message in told
    )


def test_the_choice_and_the_check_say_what_they_decided(caplog, small_model, digits_like):
    sgd = torch.optim.SGD(small_model.parameters(), lr=0.1)
    with caplog.at_level(logging.INFO, logger="neuroinit"):
        verified = ni.nio_(small_model, digits_like, optimizer=sgd, steps=3, gamma=2.0).verified
        chosen = ni.auto_(small_model, digits_like, optimizer=sgd, candidates={"LSUV": ni.LSUV()})
    told = [record.getMessage() for record in caplog.records]
    assert f"The result is {verified}." in told
    assert f"auto_ applied {chosen.winner}: {chosen.verdict}. {chosen.costs()}" in told
