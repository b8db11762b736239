"""Without its library, each integration says how to install it."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None
try:
    import {module}
except ImportError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    "module, library, extra",
    [
        ("it2nb.integrations.hf", "transformers", "hf"),
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
        assert f"needs '{library}'" in done.stdout
        assert f"pip install 'it2nb[{extra}]'" in done.stdout
