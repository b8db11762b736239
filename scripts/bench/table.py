"""The result of a run as a table, and its place in the README."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "docs" / "bench.json"
BEGIN, END = "<!-- bench -->", "<!-- /bench -->"
PACKAGES = ("torch", "numpy", "pydantic", "orjson", "ipykernel", "jupyterlab", "tensorboard",
            "transformers", "lightning", "plotly", "livelossplot")  # fmt: skip


def machine() -> dict[str, Any]:
    """Say where it was measured: processor, cores, load, versions."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "python": platform.python_version(),
        "load": [round(each, 2) for each in os.getloadavg()],
        "versions": versions,
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", info.read_text()) if info.exists() else None
    return found[1] if found else platform.machine()


def markdown(result: dict[str, Any]) -> str:
    """Write the table."""
    lines = ["| measure | here | goal | instead |", "|---|---|---|---|"]
    for each in result["lines"]:
        if "value" not in each:
            lines.append(f"| {each['what']} | | | |")
            continue
        shown = _number(each["value"], each["unit"])
        if each["low"] is not None:
            shown += f" ({_bare(each['low'])} to {_bare(each['high'])})"
        goal = ""
        if each["goal"] is not None:
            goal = f"{_number(each['goal'], each['unit'])}"
            if not each["meets"]:
                goal += f", missed {_miss(each)}"
        beside = "; ".join(
            f"{name}: {_number(found, each['unit']) if isinstance(found, float) else found}"
            for name, found in each["beside"].items()
        )
        notes = [note for note in (beside, each["note"]) if note]
        lines.append(f"| {each['what']} | {shown} | {goal} | {'; '.join(notes)} |")
    return "\n".join(lines) + "\n\n" + _where(result)


def _miss(each: dict[str, Any]) -> str:
    if each["unit"] == "%":
        return f"by {each['value'] - each['goal']:.1f} points"
    return f"by a factor of {each['value'] / each['goal']:.1f}"


def _where(result: dict[str, Any]) -> str:
    told = result["machine"]
    versions = ", ".join(f"{name} {each}" for name, each in told["versions"].items())
    loads = [each["load"] for each in result["lines"] if "load" in each]
    busy = f"load {min(loads):.1f} to {max(loads):.1f}" if loads else ""
    quick = "; few repetitions" if result["quick"] else ""
    warning = ""
    if loads and max(loads) > told["cores"] + 1:
        warning = (
            "**The machine was busy with other work: these times are too long, and which goals "
            "are met can't be told from them.** "
        )
    return warning + (
        f"Measured with `make bench` on {told['cores']} cores ({told['cpu']}, {busy}{quick}), "
        f"Python {told['python']}, {versions}. Medians, in brackets the middle half of the "
        f"repetitions unless it says otherwise.{result.get('note', '')}\n"
    )


def _number(value: float, unit: str) -> str:
    return f"{_bare(value)} {unit.replace('us', 'µs')}"


def _bare(value: float) -> str:
    return (
        f"{value:,.0f}"
        if abs(value) >= 100
        else f"{value:.2g}"
        if abs(value) < 10
        else f"{value:.0f}"
    )


def write(result: dict[str, Any], into: Path = ROOT / "README.md") -> None:
    """Put the table between its marks."""
    text = into.read_text()
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{into.name} has no place for the table: {BEGIN} and {END}")
    into.write_text(f"{before}{BEGIN}\n{markdown(result)}{END}{after}")
