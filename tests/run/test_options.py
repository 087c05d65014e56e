"""Typed keywords: every field and option is listed, for type checkers and for `help()`."""

import dataclasses
import inspect
import typing

import pytest
import torch
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
        assert shown["engine"].default == "auto"


@pytest.mark.parametrize("function", FIELDS, ids=lambda f: f.__name__)
def test_an_unknown_option_is_named(function):
    arguments = () if function not in LEARNED else ([torch.randn(4, 3)],)
    with pytest.raises(TypeError, match=rf"`stepz` is not an argument of `{function.__name__}`"):
        function(nn.Linear(3, 2), *arguments, stepz=3)


@pytest.mark.parametrize(
    ("optimizer", "family"),
    [
        ("sgd", "sgd"),
        (lambda p: torch.optim.SGD(p, lr=0.1), "sgd"),
        (torch.optim.AdamW([torch.zeros(1)]), "adam"),
        (torch.optim.RMSprop, "adam"),
    ],
)
def test_gradinit_takes_the_optimizer_that_others_take(optimizer, family):
    assert ni.GradInit(optimizer=optimizer).optimizer == family


def test_gradinit_refuses_other_names():
    with pytest.raises(ValueError, match=r"`optimizer` should be one of 'sgd', 'adam'"):
        ni.GradInit(optimizer="lion")
