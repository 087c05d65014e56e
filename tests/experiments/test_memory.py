"""Memory of this process."""

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
from neuroinit.experiments.memory import memory_in_use, peak_memory
before = memory_in_use()
block = bytearray(2**28)
for i in range(0, len(block), 4096):
    block[i] = 1
held = memory_in_use()
del block
print(held - before, peak_memory() - before, memory_in_use() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reports the peak instead")
def test_a_block_of_256_megabytes_is_seen():
    command = [sys.executable, "-c", CODE]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    held, peak, after = (int(number) / 2**28 for number in found.split())
    assert 0.95 < held < 1.1
    assert peak > 0.95
    assert after < 0.1
