"""Locks of files."""

import os
import subprocess
import sys

import pytest

from neuroinit.common.files import FileLock

KILLED = """
import os, sys, time
from neuroinit.common.files import FileLock
lock = FileLock(sys.argv[1])
if os.fork() == 0:
    print("forked", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(os.name != "posix", reason="forks a process")
def test_a_forked_process_does_not_keep_the_lock_of_a_killed_one(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "run")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        try:
            assert parent.stdout.readline() == "forked\n"
            with pytest.raises(BlockingIOError):
                FileLock(tmp_path / "run")
            parent.kill()
            parent.wait()
            FileLock(tmp_path / "run").close()
        finally:
            os.killpg(parent.pid, 9)
