"""Build a wheel and an sdist, install both in an empty environment, and use them there.

    make dist                    # dist/neuroinit-*.whl and .tar.gz

The wheel is built from the sdist. In the empty environment it has to be imported, to optimize a
model, and to run the demo with one seed. Then the sdist is installed in its place and imported.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "dist"
SMOKE = """
import importlib.metadata, sys
import torch
import neuroinit as ni
assert ni.__file__.startswith(sys.prefix), ni.__file__
assert importlib.metadata.version("neuroinit") == ni.__version__
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
batches = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(4)]
result = ni.nio_(model, batches, steps=3, progress=False)
assert result.history and result.scales, result
print("neuroinit", ni.__version__, "with torch", torch.__version__)
"""


def build() -> tuple[Path, Path]:
    """The wheel, made from the sdist, and the sdist."""
    shutil.rmtree(OUT, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(OUT), str(ROOT))
    (wheel,), (sdist,) = OUT.glob("*.whl"), OUT.glob("*.tar.gz")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """Types, license, tests in the sdist, and a version that the changelog has."""
    packed = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        source = {name.partition("/")[2] for name in archive.getnames()}
    version = wheel.name.split("-")[1]
    (newest, *_) = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    problems = [f"the wheel has no {n}" for n in ("neuroinit/py.typed",) if n not in packed]
    problems += [f"the wheel has {n}" for n in packed if n.startswith(("tests/", "tools/"))]
    wanted = ("README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "tests/conftest.py")
    problems += [f"the sdist has no {n}" for n in wanted if n not in source]
    if newest != version:
        problems.append(f"the newest entry of CHANGELOG.md is {newest}, and the version {version}")
    if problems:
        sys.exit("\n".join(problems))


def try_out(wheel: Path, sdist: Path) -> None:
    """Install both in an empty environment, with torch from the constraints, and use them."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder, "bin", "python"))
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        install += ["--constraint", str(ROOT / "constraints.txt")]
        _run(*install, f"{wheel}[demo]", cwd=folder)
        _run(python, "-I", "-c", SMOKE, cwd=folder)  # isolated: PYTHONPATH does not count
        _run(python, "-I", "-m", "neuroinit", "demo", "--seeds", "1", "--epochs", "2", cwd=folder)
        _run(*install, "--force-reinstall", "--no-deps", str(sdist), cwd=folder)
        _run(python, "-I", "-c", SMOKE, cwd=folder)


def _run(*command: str, cwd: str | None = None) -> None:
    done = subprocess.run(command, cwd=cwd)
    if done.returncode:
        sys.exit(f"failed: {' '.join(command[:6])} ...")


def main() -> None:
    """Build, look, install, use."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    wheel, sdist = build()
    check_contents(wheel, sdist)
    try_out(wheel, sdist)
    print(f"{wheel.name} and {sdist.name} are in {OUT.name}/ and work in an empty environment.")


if __name__ == "__main__":
    main()
