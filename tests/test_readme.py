"""The README does what it says: its code runs, in its order, in one real kernel."""

from __future__ import annotations

import asyncio
import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import nbformat
import pytest

from it2nb.core.wire import Status
from it2nb.notebook.options import VERBS
from scripts.demo import WIDGET
from scripts.kernel_client import KernelClient

from .conftest import ROOT

README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# What the first example means by "your model, your loader".
YOURS = """
import torch
import torch.nn.functional as F
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
data = torch.utils.data.TensorDataset(torch.randn(8192, 4), torch.randint(3, (8192,)))
loader = torch.utils.data.DataLoader(data, batch_size=4)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=3 * len(loader))
"""
# What the reader knows afterwards.
FOUND = """
from pathlib import Path
assert list(Path("it2runs").glob("*/journal.jsonl"))
frame = session.journal.requests()
for run in it2nb.runs():
    run.stop()
    if run.started:
        run.wait()
"""


async def run_cells(folder: Path, cells: list[str]) -> list[list[Any]]:
    async with KernelClient(folder) as kernel:
        outputs: list[list[Any]] = [[] for _ in cells]
        for code, into in zip(cells, outputs, strict=True):
            await kernel.execute(code, into)
        return outputs


def text_of(outputs: list[Any]) -> str:
    return "".join(o.get("text", "") for o in outputs)


@pytest.mark.kernel
def test_code_of_the_readme_runs_in_its_order(tmp_path: Path) -> None:
    blocks = BLOCK.findall(README)
    assert blocks[0].startswith("%load_ext it2nb")
    assert blocks[1].startswith("%%it2 ")
    outputs = asyncio.run(run_cells(tmp_path, [YOURS, *blocks, FOUND]))
    for block, out in zip([YOURS, *blocks, FOUND], outputs, strict=True):
        said = [o for o in out if o["output_type"] == "stream" and o["name"] == "stderr"]
        assert said == [], block
    (script,) = [n for n, block in enumerate(blocks) if "session.action(" in block]
    printed = text_of(outputs[1 + script])
    assert re.search(r"set_knob\s+lr\s+0\.03\s+0\.1\s+0\.03\s+applied", printed), printed
    assert "kick" in printed


def test_commands_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)", README))
    assert {"lab", "demo", "test"} <= named <= targets


def test_every_verb_and_status_is_in_the_readme() -> None:
    rows = "\n".join(re.findall(r"^\| (`%it2 [^|]*)\|", README, re.MULTILINE))
    assert [verb for verb in VERBS if not re.search(rf"`(%it2 )?{verb}\b", rows)] == []
    final = set(get_args(Status)) - {"pending", "waiting"}
    assert [status for status in final if f"`{status}`" not in README] == []


def test_every_extra_is_in_the_readme() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = README.partition("| extra | brings |")[2].partition("\n\n")[0]
    assert [e for e in project["optional-dependencies"] if f"`{e}`" not in extras] == []


def test_files_that_the_readme_names_exist() -> None:
    house = README.partition("## The house")[2]
    names = re.findall(r"^ +([a-z]+(?:\.py|/)) ", house, re.MULTILINE)
    known = {path.name + "/" * path.is_dir() for path in (ROOT / "it2nb").rglob("*")}
    assert set(names) - known == set()
    floors = {f"{path.parent.name}/" for path in (ROOT / "it2nb").glob("*/__init__.py")}
    assert floors - set(names) == set()
    for link in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / link).exists(), link


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_notebooks_show_their_output_without_a_kernel_and_stay_small(path: Path) -> None:
    assert path.stat().st_size < 500_000
    outputs = [
        output
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "code"
        for output in cell.outputs
    ]
    assert outputs, "not executed: make notebooks"
    assert [o for o in outputs if o.output_type == "error" or WIDGET in o.get("data", {})] == []
