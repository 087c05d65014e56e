"""Which changes `make mutants` makes to a source file, and which it leaves out."""

import pytest
from tools.mutations import mutants


def changes(source):
    """What every mutant turns the source into."""
    text = source.encode()
    return {m.apply(text).decode() for m in mutants("file.py", text)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a = b + c", {"a = b - c"}),
        ("a = (b) * (c)", {"a = (b) / (c)"}),
        ("a = b ** c", {"a = b * c"}),
        ("a = b < c <= d", {"a = b <= c <= d", "a = b < c < d"}),
        ("a = b is not c", {"a = b is c"}),
        ("a = b and c or d", {"a = b or c or d", "a = b and c and d"}),
        ("a = not b", {"a = b"}),
        ("a = -b", {"a = b"}),
        ("a += b", {"a -= b", "pass"}),
        ("a = 2", {"a = 3"}),
        ("a = 0.5", {"a = 1.0"}),
        ("a = 0.0", {"a = 1.0"}),
        ("a = True", {"a = False"}),
        ("a = b if c else d", {"a = b if (not (c)) else d"}),
        ("a = [b for b in c if b]", {"a = [b for b in c if (not (b))]"}),
        ("f(a)", {"pass"}),
        ("a.b = c", {"pass"}),
        ("a = f(a)", {"pass"}),
        ("a = b  # +\\\n", set()),
        ("a = (b  # - and *\n + c)", {"a = (b  # - and *\n - c)"}),
        ("größe = 'ü' if a == b else c", {"größe = 'ü' if a != b else c"}),
    ],
)
def test_changes(source, expected):
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring with 1 + 1."""',
        "import a",
        "__all__ = ['a', f(1)]",
        "a: int | None",
        "def f(a: Literal[1]) -> Literal[2]: g = a",
        "@decorated(1)\ndef f(): g = a",
        "def __repr__(self): return 1 + 1",
        "class P(Protocol):\n    a = 1",
        "def f(): ...",
        "if TYPE_CHECKING:\n    a = 1",
        "a = 'b' + c",
        "a = f'{b + 1}'",
        "a = zip(b, c, strict=True)",
        "warnings.warn('a' * 3, stacklevel=2)",
        "while True:\n    a = b",
    ],
)
def test_what_no_test_could_see_is_left_out(source):
    assert changes(source) - {source.replace("True", "False")} == set()


def test_an_error_may_go_missing_but_its_message_stays():
    assert changes("raise ValueError(1 + 1)") == {"pass"}


def test_a_mutant_says_where_it_is():
    source = b"a = 1\n\n\ndef f(b):\n    return b < 2\n"
    first, second, third = mutants("file.py", source)
    assert (first.line, first.kind, first.inside) == (1, "constant", False)
    assert (second.line, second.kind, second.inside) == (5, "operator", True)
    assert second.changed_line(source) == ("return b < 2", "return b <= 2")
    assert third.changed_line(source) == ("return b < 2", "return b < 3")
