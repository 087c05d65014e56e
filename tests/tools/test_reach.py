"""Which lines a test runs, and a copy of the project in which changes are tried."""

from pathlib import Path

import pytest
from tools.lines import Lines
from tools.mutants import chosen
from tools.mutations import mutants
from tools.workspace import Workspace

ROOT = Path(__file__).parents[2]
SOURCE = "def sign(x):\n    if x < 0:\n        return -1\n    return 1\n"
TESTS = """
from thing import sign

def test_positive():
    assert sign(2) == 1

def test_negative():
    assert sign(-2) == -1
"""

ELSEWHERE = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
from thing import sign

@pytest.fixture(scope="module")
def elsewhere():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield lambda x: pool.submit(sign, x).result()

def test_positive(elsewhere):
    assert elsewhere(2) == 1

def test_negative(elsewhere):
    assert elsewhere(-2) == -1
"""


@pytest.fixture
def space(tmp_path):
    """A copy of a project with one module and two tests."""
    for folder in ("src", "tests", "tools"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['distributed']")
    (tmp_path / "src/thing.py").write_text(SOURCE)
    (tmp_path / "tests/test_thing.py").write_text(TESTS)
    for name in ("__init__", "lines", "reach"):
        (tmp_path / f"tools/{name}.py").write_text((ROOT / f"tools/{name}.py").read_text())
    made = Workspace.of(tmp_path)
    yield made
    made.remove()
    assert not made.folder.exists()
    assert (tmp_path / "src/thing.py").read_text() == SOURCE


def test_lines_are_those_of_the_test(tmp_path):
    path = tmp_path / "thing.py"
    path.write_text(SOURCE)
    exec(compile(SOURCE, str(path), "exec"), scope := {})
    lines = Lines(str(tmp_path))
    for test, value in (("first", 2), ("second", -2)):
        lines.start(test)
        scope["sign"](value)
        lines.stop()
    assert lines.found == {"first": {"thing.py": {2, 4}}, "second": {"thing.py": {2, 3}}}


def test_a_mutant_meets_the_tests_that_reach_it(space):
    reach = space.reach("tests/test_thing.py")
    negative, positive = (f"tests/test_thing.py::test_{x}" for x in ("negative", "positive"))
    assert reach[positive]["lines"]["src/thing.py"] == [2, 4]
    changes = {(m.line, m.new): m for m in mutants("src/thing.py", SOURCE.encode())}
    met = {place: chosen(mutant, reach, budget=60.0) for place, mutant in changes.items()}
    both = sorted([negative, positive])
    assert {place: sorted(tests) for place, tests in met.items()} == {
        (2, "(not (x < 0))"): both,
        (2, "<="): both,
        (2, "1"): both,
        (3, ""): [negative],
        (3, "2"): [negative],
        (4, "2"): [positive],
    }
    found = {place: space.try_out(changes[place], met[place]) for place in ((2, "<="), (4, "2"))}
    assert found[2, "<="] == {"status": "survived"}  # no test has a zero
    assert found[4, "2"] == {"status": "killed", "by": positive}


def test_a_process_that_several_tests_share_counts_for_the_one_that_is_on(space):
    (space.folder / "tests/test_thing.py").write_text(ELSEWHERE)
    reach = space.reach("tests/test_thing.py")
    own = {}
    for test, found in reach.items():
        own[test.partition("::")[2]] = [n for n in found["lines"]["src/thing.py"] if n > 1]
    assert own == {"test_positive": [2, 4], "test_negative": [2, 3]}


def test_tests_that_fail_without_a_change_are_an_error(space):
    (space.folder / "src/thing.py").write_text(SOURCE.replace("return 1", "return 2"))
    with pytest.raises(RuntimeError, match="fail without a change"):
        space.check("src/thing.py", {"tests/test_thing.py::test_positive": 0.0})
