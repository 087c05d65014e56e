"""Typed keywords: every field and option is listed, for type checkers and for `help()`."""

import dataclasses
import inspect
import typing

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuroinit as ni
from neuroinit.methods import fields
from neuroinit.methods.nio.fields import NIOFields
from neuroinit.run import options

FIELDS = {
    ni.nio_: (ni.NIO, NIOFields),
    ni.gradinit_: (ni.GradInit, fields.GradInitFields),
    ni.metainit_: (ni.MetaInit, fields.MetaInitFields),
    ni.lsuv_: (ni.LSUV, fields.LSUVFields),
    ni.kaiming_: (ni.Kaiming, fields.KaimingFields),
    ni.xavier_: (ni.Xavier, fields.XavierFields),
    ni.orthogonal_: (ni.Orthogonal, fields.OrthogonalFields),
    ni.trunc_normal_: (ni.TruncNormal, fields.TruncNormalFields),
    ni.fixup_: (ni.FixUp, fields.KaimingFields),
}
LEARNED = [ni.nio_, ni.gradinit_, ni.metainit_, ni.lsuv_]


@pytest.mark.parametrize("function", FIELDS, ids=lambda f: f.__name__)
def test_the_typed_fields_are_those_of_the_method(function):
    kind, typed = FIELDS[function]
    hints = typing.get_type_hints(kind)
    expected = {f.name: hints[f.name] for f in dataclasses.fields(kind)}
    assert typing.get_type_hints(typed) == expected


def test_the_typed_options_are_the_arguments_of_optimize():
    own = {"model", "batches", "loss_fn", "method"}
    names = inspect.signature(ni.optimize).parameters.keys() - own
    assert options.OptimizeOptions.__annotations__.keys() == names


@pytest.mark.parametrize("function", FIELDS, ids=lambda f: f.__name__)
def test_the_signature_shows_every_option_with_its_default(function):
    shown = inspect.signature(function).parameters
    assert not any(p.kind is p.VAR_KEYWORD for p in shown.values())
    for field in dataclasses.fields(FIELDS[function][0]):
        if field.default is not dataclasses.MISSING:
            assert shown[field.name].default == field.default
    if function in LEARNED:
        assert shown["progress"].default is True
    for name in ("engine", "memory_limit"):  # LSUV has no second derivatives
        assert (name in shown) == (function in LEARNED and function is not ni.lsuv_)


@pytest.mark.parametrize("function", FIELDS, ids=lambda f: f.__name__)
def test_an_unknown_option_is_named(function):
    arguments = () if function not in LEARNED else ([torch.randn(4, 3)],)
    with pytest.raises(TypeError, match=rf"`stepz` is not an argument of `{function.__name__}`"):
        function(nn.Linear(3, 2), *arguments, stepz=3)


# -- options that contradict each other, or that nothing would use --------------------------------


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.003, momentum=0.5)


def classifier():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def pairs():
    return [(torch.randn(8, 3), torch.arange(8) % 2) for _ in range(4)]


def refused(error, match, function, *arguments, **options):
    """The function raises before it changes the model."""
    model = classifier()
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(error, match=match):
        function(model, *arguments, **options)
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize(
    ("function", "name", "value"),
    [(ni.nio_, "rate", 5.0), (ni.nio_, "family", "adam"), (ni.gradinit_, "family", "sgd")],
    ids=["rate", "family", "GradInit"],
)
def test_an_optimizer_next_to_the_fields_that_it_sets(function, name, value):
    match = f"Found `optimizer` and `{name} = {value!r}`"
    refused(TypeError, match, function, pairs(), optimizer=sgd, **{name: value})


def test_a_family_without_a_rate():
    with pytest.raises(ValueError, match=r"`family = 'adam'`.*Pass `rate`, too"):
        ni.NIO(family="adam")


@pytest.mark.parametrize(
    ("options", "missing"),
    [({}, "an `optimizer`"), ({"example": (8, 3), "optimizer": sgd}, "`batches`: random data")],
    ids=["no optimizer", "random data"],
)
def test_a_verification_that_is_not_possible(options, missing):
    batches = [] if "example" in options else [pairs()]
    refused(
        TypeError, f"`verify = True` needs {missing}", ni.nio_, *batches, verify=True, **options
    )


def test_verify_is_no_text():
    refused(TypeError, "`verify` should be `True`", ni.nio_, pairs(), optimizer=sgd, verify="no")


def test_random_data_verify_nothing_and_a_warning_says_so():
    options = {"example": (8, 3), "optimizer": sgd}
    with pytest.warns(UserWarning, match="not verified.*Pass `batches`"):
        result = ni.nio_(classifier(), **options)
    assert result.verified == ""
    assert result.settings["rate"] == 0.006
    ni.nio_(classifier(), verify=False, **options)  # no warning


@pytest.mark.parametrize("function", [ni.lsuv_, ni.kaiming_], ids=lambda f: f.__name__)
@pytest.mark.parametrize("option", [{"engine": "keep"}, {"memory_limit": 1}], ids=str)
def test_engines_are_for_second_derivatives_only(function, option):
    data = [pairs()] if function is ni.lsuv_ else []
    refused(TypeError, f"is not an argument of `{function.__name__}`", function, *data, **option)


@pytest.mark.parametrize("option", [{"microbatch": 3}, {"targets": 1}], ids=str)
def test_the_statistics_of_lsuv_need_a_loss(option):
    refused(TypeError, r"need a loss. Pass `loss_fn`", ni.lsuv_, pairs(), **option)
    assert ni.lsuv_(classifier(), pairs(), F.cross_entropy, **option).after is not None


@pytest.mark.parametrize("function", [ni.nio_, ni.lsuv_], ids=lambda f: f.__name__)
def test_targets_that_are_not_in_a_batch(function):
    refused(ValueError, "no entry `targets = 7`", function, pairs(), F.cross_entropy, targets=7)


def test_targets_of_batches_with_a_cut():
    options = {"targets": 1, "cut": lambda batch, start, stop: batch}
    refused(TypeError, "`cut` and `targets = 1`", ni.nio_, pairs(), **options)


# -- `optimizer=` ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "family", "eta"),
    [
        (sgd, "sgd", 0.003),
        (torch.optim.AdamW, "adam", 0.001),
        (lambda p: torch.optim.RMSprop(p, lr=0.02), "adam", 0.02),
        (torch.optim.Adafactor, "adam", 0.01),
    ],
    ids=["SGD", "AdamW", "RMSprop", "Adafactor"],
)
def test_gradinit_takes_the_optimizer_that_others_take(make, family, eta):
    model = classifier()
    for optimizer in (make, make(model.parameters())):
        found = ni.gradinit_(model, pairs(), optimizer=optimizer, steps=1).settings
        assert (found["family"], found["eta"]) == (family, eta)
    own = ni.gradinit_(model, pairs(), optimizer=make, steps=1, eta=0.5).settings
    assert (own["family"], own["eta"]) == (family, 0.5)


@pytest.mark.parametrize("function", [ni.nio_, ni.gradinit_, ni.auto_], ids=lambda f: f.__name__)
def test_the_name_of_an_optimizer_is_refused(function):
    refused(
        TypeError, r"such as `lambda p: .*`optimizer = 'sgd'`", function, pairs(), optimizer="sgd"
    )
