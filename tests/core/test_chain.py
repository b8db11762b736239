"""Lines of the journal, as they are written."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import orjson
import pytest

from it2nb.core.chain import PACK, pack_rows, pack_stem, whole
from tests.conftest import ROOT

#: -0.000012345678901234567: as long as the text of a float64 gets, 24 characters.
LONG = -1.2345678901234567e-5

PACKS = f"""
import numpy as np
from it2nb.core.chain import PACK, pack_stem
for count in range(1, PACK + 1):
    pack_stem(0, 1.7e9, ("loss",), 0, 0, np.full((count, 3), {LONG!r}))
"""
ARGUMENTS = f"""
import numpy as np
from it2nb.core.actions import _validated
from pydantic import create_model
model = create_model("Args", values=(list[float], ...))
for count in range(1, 1025):
    _validated(model, {{"values": np.full(count, {LONG!r})}})
"""


@pytest.mark.parametrize("code", [PACKS, ARGUMENTS], ids=["packs", "arguments"])
def test_long_numbers_stay_within_the_memory_that_is_theirs(code: str) -> None:
    # Where a byte was written beyond a block, this allocator ends the process; without it the
    # program may go on for hours, and then dies elsewhere.
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONMALLOC": "debug"}, cwd=ROOT,
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr


def test_no_array_is_left_to_orjson() -> None:
    # Its versions 3.12 and 3.13 write beyond their buffer.
    for file in sorted(ROOT.joinpath("it2nb").rglob("*.py")):
        assert "OPT_SERIALIZE_NUMPY" not in file.read_text(), file


def test_a_pack_reads_as_what_was_written_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    values = np.frombuffer(rng.bytes(8 * 4 * PACK), np.float64).reshape(PACK, 4).copy()
    values[:5, 1] = [np.nan, np.inf, -np.inf, LONG, -0.0]
    values[~np.isfinite(values)] = np.nan  # a NaN has many forms, and the journal knows one
    values[1:3, 1] = np.inf, -np.inf
    rows = np.column_stack([np.arange(PACK), np.arange(PACK) / 3, values])
    stem = pack_stem(7, 1.7e9, ("a", "b", "c", "d"), 2, 1, rows)
    pack = orjson.loads(whole(stem))
    assert pack_rows(pack).tobytes() == rows.tobytes()
    assert (pack["seq"], pack["round"], pack["branch_id"]) == ([7, 6 + PACK], 2, 1)
    assert all(type(step) is int for step in pack["step"])
    assert pack["nonfinite"]["b"]["1"] == "inf"
