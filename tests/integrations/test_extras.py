"""Without its library, each integration says how to install it."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root in {blocked!r}:
            raise ModuleNotFoundError("No module named " + repr(root), name=root)

sys.meta_path.insert(0, Absent())
try:
    import {module}
except ImportError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    "module, library, extra",
    [
        ("it2nb.integrations.hf", "transformers", "hf"),
        ("it2nb.integrations.lightning", "lightning", "lightning"),
        ("it2nb.integrations.accelerate", "accelerate", "accelerate"),
    ],
)
def test_the_message_names_the_extra_with_and_without_pytorch(
    module: str, library: str, extra: str
) -> None:
    for blocked in ([library], [library, "torch"]):
        done = subprocess.run(
            [sys.executable, "-c", BLOCKED.format(blocked=blocked, module=module)],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.stdout.startswith("MissingDependency "), done.stdout + done.stderr
        assert f"needs '{library}" in done.stdout
        assert f"pip install 'it2nb[{extra}]'" in done.stdout
