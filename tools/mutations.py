"""All mutants of a source file: one small change each, as a person could have made it by mistake.

What a test can hardly tell apart is left out: docstrings, type annotations, decorators, what is
raised, warned or printed, ``__repr__`` and its kind, ``__all__``, protocols and overloads.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
}
COMPARISON = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
TELLING = {"__repr__", "__str__", "_repr_html_", "__dir__", "__all__", "__slots__"}
TALKING = {"warn", "print", "add_note", "debug", "info", "warning", "cast", "TypeVar"}
PASSIVE = {"strict", "repr", "stacklevel"}  # keywords that change nothing in a correct program
TEXT = (ast.JoinedStr, ast.List, ast.Tuple)


@dataclass(frozen=True)
class Mutant:
    """One change of a file: ``text[start:end]`` (bytes) becomes ``new``."""

    file: str
    line: int
    kind: str
    start: int
    end: int
    old: str
    new: str
    inside: bool
    """Whether it lies in a function's body, so that a line tells which tests reach it."""

    def apply(self, source: bytes) -> bytes:
        """The file with the change."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def changed_line(self, source: bytes) -> tuple[str, str]:
        """The first line of the change, before and after."""
        before = source.decode().splitlines()[self.line - 1]
        after = self.apply(source).decode().splitlines()[self.line - 1]
        return before.strip(), after.strip()


def mutants(file: str, source: bytes) -> list[Mutant]:
    """Every mutant of a file that still compiles, in the order of the text."""
    found = {}
    for mutant in _Finder(file, source).walk(ast.parse(source), inside=False):
        if _compiles(mutant.apply(source)):
            found[mutant.start, mutant.end, mutant.new] = mutant
    return sorted(found.values(), key=lambda m: (m.start, m.end, m.new))


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


class _Finder:
    """Goes through the syntax tree and leaves out what only tells or declares."""

    def __init__(self, file: str, source: bytes) -> None:
        self.file, self.source = file, source
        lines = source.splitlines(keepends=True)
        self.offsets = [0]
        for line in lines:
            self.offsets.append(self.offsets[-1] + len(line))

    def walk(self, node: ast.AST, inside: bool) -> Iterator[Mutant]:
        if _declares(node):
            return
        yield from self._here(node, inside)
        within = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for name, child in _children(node):
            if not _passive(node, name):
                yield from self.walk(child, inside or (within and name == "body"))

    def _here(self, node: ast.AST, inside: bool) -> Iterator[Mutant]:
        match node:
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                if not _text(left) and not _text(right):
                    yield from self._operator(left, right, ARITHMETIC[type(op)], inside)
            case ast.AugAssign(target=target, op=op, value=value):
                if type(op) in ARITHMETIC:
                    old, new = ARITHMETIC[type(op)]
                    yield from self._operator(target, value, (old + "=", new + "="), inside)
                yield self._whole("statement", node, "pass", inside)
            case ast.Compare(left=left, ops=ops, comparators=others):
                for a, how, b in zip([left, *others], ops, others, strict=False):
                    yield from self._operator(a, b, COMPARISON[type(how)], inside)
            case ast.BoolOp(op=op, values=values):
                change = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                for a, b in itertools.pairwise(values):
                    yield from self._operator(a, b, change, inside)
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                start, _ = self._span(node)
                yield self._make("operator", start, self._span(operand)[0], "", inside)
            case ast.Constant(value=value):
                yield from self._constant(node, value, inside)
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                yield from self._negated(test, inside)
            case ast.comprehension(ifs=tests):
                for test in tests:
                    yield from self._negated(test, inside)
            case ast.stmt() if _removable(node):
                yield self._whole("statement", node, "pass", inside)

    def _operator(
        self, left: ast.expr, right: ast.expr, change: tuple[str, str], inside: bool
    ) -> Iterator[Mutant]:
        begin, end = self._span(left)[1], self._span(right)[0]
        between = re.sub(rb"#[^\n]*", lambda m: b" " * len(m[0]), self.source[begin:end])
        pattern = re.escape(change[0]).replace(r"\ ", r"\s+").encode()
        if place := re.search(pattern, between):
            yield self._make(
                "operator", begin + place.start(), begin + place.end(), change[1], inside
            )

    def _constant(self, node: ast.Constant, value: object, inside: bool) -> Iterator[Mutant]:
        if isinstance(value, bool):
            yield self._whole("constant", node, str(not value), inside)
        elif isinstance(value, int):
            yield self._whole("constant", node, str(value + 1), inside)
        elif isinstance(value, float):
            yield self._whole("constant", node, repr(2 * value if value else 1.0), inside)

    def _negated(self, test: ast.expr, inside: bool) -> Iterator[Mutant]:
        match test:
            case ast.Constant() | ast.UnaryOp(op=ast.Not()):
                return
            case ast.Compare(ops=[ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot()]):
                return  # the other operator is the same change
            case ast.Compare(ops=[ast.In() | ast.NotIn()]):
                return
        start, end = self._span(test)
        yield self._make("condition", start, end, f"(not ({self._text(start, end)}))", inside)

    def _whole(self, kind: str, node: ast.stmt | ast.expr, new: str, inside: bool) -> Mutant:
        return self._make(kind, *self._span(node), new, inside)

    def _make(self, kind: str, start: int, end: int, new: str, inside: bool) -> Mutant:
        line = self.source.count(b"\n", 0, start) + 1
        return Mutant(self.file, line, kind, start, end, self._text(start, end), new, inside)

    def _text(self, start: int, end: int) -> str:
        return self.source[start:end].decode()

    def _span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        last, column = node.end_lineno or 0, node.end_col_offset or 0
        return (
            self.offsets[node.lineno - 1] + node.col_offset,
            self.offsets[last - 1] + column,
        )


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield name, child


def _declares(node: ast.AST) -> bool:
    """What is only for readers, type checkers or messages."""
    match node:
        case ast.FunctionDef(name=name, body=body):
            return name in TELLING or all(_silent(statement) for statement in body)
        case ast.ClassDef(bases=bases):
            return any("Protocol" in ast.unparse(base) for base in bases)
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in TELLING
        case ast.Call(func=func):
            return ast.unparse(func).rpartition(".")[2] in TALKING
        case ast.If(test=test):
            return ast.unparse(test) == "TYPE_CHECKING"
        case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.JoinedStr():
            return True
    return _silent(node)


def _silent(node: ast.AST) -> bool:
    """A docstring or an ellipsis as a statement."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _passive(node: ast.AST, name: str) -> bool:
    """Whether a field of a node is an annotation, a decorator, a message or a passive keyword."""
    if name in ("annotation", "returns", "decorator_list", "exc", "cause", "type_params"):
        return True
    return name == "value" and isinstance(node, ast.keyword) and node.arg in PASSIVE


def _text(node: ast.expr) -> bool:
    """Strings and lists that are put together with ``+``: another operator would not run."""
    return isinstance(node, TEXT) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _removable(node: ast.AST) -> bool:
    """Statements whose absence a test should notice, and that leave no name undefined."""
    match node:
        case ast.Expr(value=ast.Call() as call):
            return not _declares(call)
        case ast.Raise() | ast.Continue() | ast.Break() | ast.Return(value=None):
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(value))
    return False
