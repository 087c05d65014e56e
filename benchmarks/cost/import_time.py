"""What `import neuroinit` adds to `import torch`, and the first use of `nio_`: processor time.

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
imported = time.process_time()
neuroinit.nio_
print(middle - begun, imported - middle, time.process_time() - imported)
"""


def measure(repeats: int = REPEATS) -> list[float]:
    """Median milliseconds of the imports of torch and neuroinit, and of ``neuroinit.nio_``."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    found = []
    for _ in range(1 + repeats):  # the first compiles
        command = [sys.executable, "-c", CODE]
        done = subprocess.run(command, capture_output=True, check=True, env=environment)
        found.append([1000 * float(seconds) for seconds in done.stdout.split()])
    return [statistics.median(column) for column in zip(*found[1:], strict=True)]


def main() -> None:
    """Print all three."""
    torch, neuroinit, used = measure()
    print(f"import torch: {torch:.0f} ms; import neuroinit after it: {neuroinit:.0f} ms")
    print(f"first use of neuroinit.nio_: {used:.0f} ms")


if __name__ == "__main__":
    main()
