"""Run the tests: all that needs no browser on as many workers as there are cores, then the rest.

``python -m scripts.run_tests [pytest options]``. With ``CI=true`` what failed gets one more try,
and both are shown: real kernels and browsers share that machine with others.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

#: Two groups, so that no browser competes with the workers for the cores.
GROUPS = (
    ["-m", "not browser", "-n", str(max(2, min(os.cpu_count() or 2, 8))), "--dist", "loadfile"],
    ["-m", "browser"],
)
PASSED, FAILED, NOTHING_TO_RUN = 0, 1, 5
AGAIN = ["--last-failed", "--last-failed-no-failures", "none", "-n", "0"]

#: Thousands of small files: in memory where there is room, since some disks are slow at that.
MEMORY, ROOM = Path("/dev/shm"), 6 << 30


def in_memory() -> bool:
    """Whether the tests' folders fit into memory."""
    return (
        MEMORY.is_dir()
        and os.access(MEMORY, os.W_OK)
        and min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available) > ROOM
    )


def pytest(*options: str) -> int:
    """Run pytest in a process of its own; returns its exit status, negative when killed."""
    return subprocess.run([sys.executable, "-m", "pytest", *options], check=False).returncode


def run(group: list[str], options: list[str]) -> int:
    """Run one group, and once more what failed."""
    status = pytest(*group, *options)
    if os.environ.get("CI") != "true" or status in (PASSED, NOTHING_TO_RUN):
        return status
    print(f"\nwith status {status}; once more what did not pass", flush=True)
    # A process that was killed has left no list of what failed.
    return pytest(*group, *(AGAIN if status == FAILED else []), *options)


def main(options: list[str]) -> int:
    """Run all groups; the first bad status is the answer."""
    if not in_memory():
        found = [run(group, options) for group in GROUPS]
    else:
        with tempfile.TemporaryDirectory(dir=MEMORY, prefix="it2nb-") as folder:
            found = [run(group, [f"--basetemp={folder}/t", *options]) for group in GROUPS]
    bad = [each for each in found if each not in (PASSED, NOTHING_TO_RUN)]
    if bad:
        return abs(bad[0])
    return NOTHING_TO_RUN if set(found) == {NOTHING_TO_RUN} else PASSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
