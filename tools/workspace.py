"""Copies of the project in which `make mutants` runs tests; the working tree is never changed."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.mutations import Mutant

ROOT = Path(__file__).parents[1]
PARTS = ("src", "tests", "tools", "benchmarks", "pyproject.toml")
SILENT = ("-q", "--no-header", "-p", "no:cacheprovider", "-p", "tools.reach")
COLLECTING = 60.0  # processor seconds to start and to collect the tests
LONGER = 5.0  # how much more processor time than usual tests may take
HANGING = 3600.0  # seconds after which tests wait for something that does not come

Reach = dict[str, dict[str, Any]]
"""Test -> its ``seconds``, and its ``lines``: file -> numbers."""


@dataclass(frozen=True)
class Workspace:
    """A folder with a copy of the sources and tests."""

    folder: Path

    @classmethod
    def of(cls, source: Path) -> Workspace:
        """Copy a project to a temporary folder."""
        folder = Path(tempfile.mkdtemp(prefix="neuroinit-mutants-"))
        for part in PARTS:
            if (source / part).is_dir():
                shutil.copytree(source / part, folder / part)
            elif (source / part).exists():
                shutil.copy2(source / part, folder / part)
        (folder / "start").mkdir()
        (folder / "start/sitecustomize.py").write_text(
            "from tools.lines import watch_child\nwatch_child()\n"
        )
        return cls(folder)

    def remove(self) -> None:
        """Delete the copy."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def reach(self, file: str) -> Reach:
        """What every test of a file reaches, and how long it takes."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as out:
            watched = {"REACH_OUT": out, "REACH_ROOT": str(self.folder)}
            self._pytest([file, "-m", "not distributed"], watched)
            records = [json.loads(path.read_text()) for path in Path(out).glob("*.json")]
        if not records:
            raise RuntimeError(f"pytest did not run {file}:\n{self._told()}")
        lines: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        for record in records:  # the process of the tests, and those that they start
            for test, files in record["lines"].items():
                for name, numbers in files.items():
                    lines[test][name] |= set(numbers)
        seconds = {test: s for record in records for test, s in record["seconds"].items()}
        return {
            test: {"seconds": s, "lines": {f: sorted(n) for f, n in lines[test].items()}}
            for test, s in seconds.items()
        }

    def check(self, file: str, tests: dict[str, float]) -> None:
        """Raise if tests fail without any change: then nothing could be said of mutants."""
        found = self.try_out(Mutant(file, 1, "none", 0, 0, "", "", False), tests)
        if found["status"] != "survived":
            raise RuntimeError(f"Tests fail without a change:\n{self._told()}")

    def try_out(self, mutant: Mutant, tests: dict[str, float]) -> dict[str, Any]:
        """Run tests (name -> usual seconds) on a mutant: ``status``, and ``by`` which test."""
        path = self.folder / mutant.file
        before = path.read_bytes()
        for stale in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            stale.unlink()
        choice = self.folder / "choice.json"
        choice.write_text(json.dumps(tests))
        failed = choice.with_suffix(".failed")
        failed.unlink(missing_ok=True)
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        path.write_bytes(mutant.apply(before))
        try:
            limit = COLLECTING + LONGER * sum(tests.values())
            code = self._pytest([*files, "-x"], {"REACH_CHOICE": str(choice)}, int(limit))
        finally:
            path.write_bytes(before)
        if code == 0:
            return {"status": "survived"}
        if code == 5:
            raise RuntimeError(f"pytest found none of the tests for {mutant.file}:\n{self._told()}")
        out_of_time = code is None or code == -signal.SIGXCPU
        by = failed.read_text() if failed.exists() else "out of time" if out_of_time else "import"
        return {"status": "killed", "by": by}

    def _told(self) -> str:
        """The end of what pytest printed."""
        return (self.folder / "told.txt").read_text()[-2000:]

    def _pytest(
        self, arguments: list[str], extra: dict[str, str], limit: int | None = None
    ) -> int | None:
        """The exit code, or ``None`` if pytest hangs.

        Args:
            arguments: Of pytest.
            extra: Environment variables.
            limit: Processor seconds, after which the system ends the process with SIGXCPU. Other
                work on the machine does not count.
        """
        paths = [self.folder / "start", self.folder / "src", self.folder]
        environment = {
            **os.environ,
            **extra,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "OMP_NUM_THREADS": "1",
        }
        environment.pop("PYTEST_CURRENT_TEST", None)  # of a test of these tools
        if "REACH_CHOICE" in extra:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"  # it would outlive the mutant
        with (self.folder / "told.txt").open("w") as told:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *SILENT, *arguments],
                cwd=self.folder,
                env=environment,
                stdout=told,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if limit is not None:
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (limit, limit + 5))
        try:
            return process.wait(HANGING)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def fingerprint(*paths: Path) -> str:
    """A short hash of the Python files at these places."""
    found = hashlib.sha256()
    for path in paths:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return found.hexdigest()[:16]
