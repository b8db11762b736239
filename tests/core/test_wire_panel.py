from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from it2nb.core.wire_panel import PANEL_MESSAGE, PANEL_REQUEST
from tests.conftest import ROOT

GOLDEN: dict[str, Any] = json.loads((ROOT / "tests/golden/panel.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("request_", GOLDEN["requests"], ids=lambda each: str(each["kind"]))
def test_each_golden_request_is_read_and_written_alike(request_: dict[str, Any]) -> None:
    assert PANEL_REQUEST.validate_python(request_).model_dump(mode="json") == request_


@pytest.mark.parametrize(
    "message", [each["message"] for each in GOLDEN["messages"]], ids=lambda each: str(each["kind"])
)
def test_each_golden_message_is_read_and_written_alike(message: dict[str, Any]) -> None:
    read = PANEL_MESSAGE.validate_python(message)
    assert json.loads(read.model_dump_json()) == message


@pytest.mark.parametrize("script", ["wire_ts.py", "golden_panel.py"])
def test_what_is_generated_from_the_models_is_not_stale(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_golden_file_has_every_kind_of_message() -> None:
    kinds = {each["message"]["kind"] for each in GOLDEN["messages"]}
    assert kinds == {"snapshot", "batch", "heartbeat", "window", "rows", "asset"}
