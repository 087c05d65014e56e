"""What `import neuroinit` adds to `import torch`: milliseconds of processor time.

    make import-time     # the median of 9 fresh processes

Sources are compiled before, as those of an installed package are. This is a number to look at, not
a test: it depends on the machine. The aim is less than 50 ms.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

REPEATS = 9
CODE = """
import time
begun = time.process_time()
import torch
middle = time.process_time()
import neuroinit
print(middle - begun, time.process_time() - middle)
"""


def measure(repeats: int = REPEATS) -> tuple[float, float]:
    """Median milliseconds of ``import torch``, and of ``import neuroinit`` after it."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    found = []
    for _ in range(1 + repeats):  # the first compiles
        command = [sys.executable, "-c", CODE]
        done = subprocess.run(command, capture_output=True, check=True, env=environment)
        found.append([1000 * float(seconds) for seconds in done.stdout.split()])
    torch, neuroinit = (statistics.median(column) for column in zip(*found[1:], strict=True))
    return torch, neuroinit


def main() -> None:
    """Print both."""
    torch, neuroinit = measure()
    print(f"import torch: {torch:.0f} ms; import neuroinit after it: {neuroinit:.0f} ms")


if __name__ == "__main__":
    main()
