"""A run to look at: one HTML file that needs no network, no server and no package."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from it2nb._version import __version__
from it2nb.core.drifted import VALUE_TYPES, drifted_names, is_in_force, told_values
from it2nb.core.faults import guard
from it2nb.core.readable import size_text
from it2nb.core.recording import RESTORES, Recording
from it2nb.core.strict import restore, strict
from it2nb.core.utf8 import whole

if TYPE_CHECKING:
    from it2nb.core.history import History
    from it2nb.core.wire import Event

#: Points of all curves together, and of one.
ALL_POINTS, POINTS = 24_000, 1_500
#: Curves: metrics times branches; the newest branches of the first metrics.
MAX_CURVES = 240
#: Bytes of JSON that the journal's rows may take.
MAX_ROW_BYTES = 900_000
#: Characters of a text in a row.
MAX_TEXT = 400
#: Characters of the cell that are shown.
MAX_CELL = 60_000

#: Rows that say nothing to a reader: they are numbers for a replay.
_HIDDEN = frozenset({"metrics", "in_force", "random_state", "resources", "knobs_registered",
                     "knobs_ended", "source_cell", "environment", "model_tree",
                     "action_submitted"})  # fmt: skip


def write(journal: History, path: str | Path, *, title: str = "") -> Path:
    """Write the report of a run into a file. Any thread, also while the run goes on.

    Parameters
    ----------
    journal : History
        Live or opened.
    path : str or Path
        ``run.html``; an older file gives way when the new one is whole.
    title : str
        For people.

    Returns
    -------
    Path

    Raises
    ------
    OSError
        If the disk refuses.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_text(render(journal, title=title), encoding="utf-8")
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target


def render(journal: History, *, title: str = "") -> str:
    """Return the report of a run as HTML, below 2 MB."""
    page = _asset("report.html")
    style, script = _asset("report.css"), _asset("report.js")
    data = _as_script(run_data(journal, title=whole(title)))
    # The parts are put in from the last to the first place: none of them is searched.
    for mark, part in (("@data@", data), ("@script@", script), ("@style@", style)):
        before, _, after = page.partition(mark)
        page = before + part + after
    return page


def run_data(journal: History, *, title: str = "") -> dict[str, Any]:
    """Collect what a report shows, as JSON."""
    recording = Recording(journal)
    events = journal.tail(len(journal), journal.row_types())
    requests, rows, left_out = _rows(journal, events)
    last = recording.last
    anchor = None
    with guard("hash of the journal's end"):
        anchor = getattr(journal, "anchor", lambda: None)()
    return {
        "it2nb": __version__,
        "run": journal.run,
        "title": title,
        "status": recording.status,
        "step": 0 if last is None else last.step,
        "round": 0 if last is None else last.round,
        "rounds": _rounds(recording),
        "made_at": time.time(),
        "seed": recording.seed,
        "anchor": anchor,
        "events": len(journal),
        "curves": list(_curves(journal, _lineage(journal), 0 if last is None else last.round)),
        "requests": requests,
        "rows": rows,
        "left_out": left_out,
        "knobs": _knobs(journal),
        "environment": strict(recording.environment)[0],
        "cell": str((recording.cell or {}).get("text") or "")[:MAX_CELL],
        "trials": sorted(recording.trial_branches()),
    }


def _lineage(journal: History) -> dict[int, int | None]:
    """Return the branches that led to where the run is, each with its last step in that line."""
    forks = {
        int(event.payload["id"]): event.payload
        for event in journal.tail(len(journal), ("branch_forked",))
    }
    last = journal.tail(1)
    branch = last[0].branch_id if last else 0
    found: dict[int, int | None] = {branch: None}
    while branch in forks and forks[branch].get("parent") is not None:
        step = int(forks[branch]["step"])
        branch = int(forks[branch]["parent"])
        if branch in found:
            break
        found[branch] = step
    return found


def _rounds(recording: Recording) -> int:
    """Return how many rounds the run was to have; 1 without rounds."""
    if not recording.rounds:
        return 1
    said = recording.rounds[-1].payload.get("max_rounds")
    return max(len(recording.rounds), said if isinstance(said, int) else 1)


def _curves(journal: History, lineage: dict[int, int | None], now: int) -> Iterator[dict[str, Any]]:
    """Yield every curve in few points: one for each metric, round and branch.

    `until` is the last step that belongs to the line of the run, which is in its last round,
    `now`; null for all, -1 for none.
    """
    store = journal.metrics
    names = store.names()[:MAX_CURVES]
    each = MAX_CURVES // max(1, len(names))
    lines = [(name, *line) for name in names for line in store.lines(name)[-each:]]
    points = max(60, min(POINTS, ALL_POINTS // max(1, len(lines))))
    for name, round, branch in lines:
        view = store.view(name, points=points, branch_id=branch, round=round)
        yield {
            "name": name, "round": round, "branch": branch,
            "until": lineage.get(branch, -1) if round == now else -1,
            "step": [int(step) for step in view.steps.tolist()],
            "t": [float(f"{t:.7g}") for t in view.t.tolist()],
            "value": [_number(value) for value in view.values.tolist()],
        }  # fmt: skip


def _number(value: float) -> float | str:
    """Shorten a value to what a picture can show; name what is no number."""
    if value - value != 0.0:
        return "nan" if value != value else ("inf" if value > 0 else "-inf")
    return float(f"{value:.6g}")


def _rows(
    journal: History, events: list[Event]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """Return the requests, the other rows, and how many did not fit; newest ones are kept."""
    asked = {e.action_id: e for e in events if e.type == "action_submitted"}
    requests: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    size = left_out = 0
    for event in reversed(events):
        row = None
        if event.type == "action_result":
            row = _request(event, asked.pop(event.action_id, None))
        elif event.type not in _HIDDEN:
            row = _row(event)
        if row is None:
            continue
        size += len(orjson.dumps(row))
        if size > MAX_ROW_BYTES:
            left_out += 1
            continue
        (requests if event.type == "action_result" else rows).append(row)
    return requests[::-1], rows[::-1], left_out


def _request(event: Event, asked: Event | None) -> dict[str, Any]:
    found = event.payload
    wait = None if asked is None else round(event.t - asked.t, 6)
    what = found.get("payload") or (asked.payload.get("payload") if asked else None)
    row = {
        **_place(event),
        "source": event.source,
        "actor": found.get("actor"),
        "wait": wait,
        "status": found.get("status"),
        "name": found.get("name"),
        "requested": found.get("requested"),
        "before": found.get("before"),
        "after": found.get("after"),
        "reason": found.get("reason"),
        "why": None if asked is None else asked.payload.get("reason"),
        "data": None if found.get("name") else _outcome(found, what),
    }
    row["type"] = found.get("type")
    return _plain(row)


def _outcome(found: dict[str, Any], asked: Any) -> str | None:
    """Say in words what a request came to."""
    kind, data = found.get("type"), found.get("data")
    if isinstance(data, dict):
        if kind in RESTORES and "step" in data:
            return f"back to step {data['step']:,}"
        if kind == "save_checkpoint" and "path" in data:
            size = data.get("size_bytes")
            shown = f", {size_text(size)}" if isinstance(size, int) else ""
            return f"{Path(str(data['path'])).name}{shown}, sha256 {str(data.get('sha256'))[:12]}"
        if kind == "evaluate":
            return ", ".join(f"{name} {_shown(value)}" for name, value in data.items())[:MAX_TEXT]
    return _brief(data or asked)


def _shown(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _row(event: Event) -> dict[str, Any]:
    row = {**_place(event), "source": event.source, "data": _brief(event.payload)}
    if is_in_force(event):
        found = event.payload
        row |= {"name": drifted_names(found)[-1], "before": found.get("before")}
        row |= {"after": found.get("found"), "by": found.get("by")}
    return _plain(row)


def _place(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq, "type": event.type, "t": round(event.t, 4), "ts": event.ts,
        "step": event.step, "branch": event.branch_id, "round": event.round,
    }  # fmt: skip


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Make a row strict JSON; numbers that JSON has no word for become text."""
    plain, odd = strict({key: value for key, value in row.items() if value is not None})
    made: dict[str, Any] = restore(plain, None)
    for path, kind in odd.items():
        if path in made:
            made[path] = kind
    return {k: v[:MAX_TEXT] if isinstance(v, str) else v for k, v in made.items()}


def _brief(data: Any) -> str | None:
    """Return data as short text."""
    if not data:
        return None
    plain, odd = strict(data)
    text = orjson.dumps(plain).decode() if not isinstance(plain, str) else plain
    if odd:
        text += " (" + ", ".join(f"{path}: {kind}" for path, kind in list(odd.items())[:5]) + ")"
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."


def _knobs(journal: History) -> list[dict[str, Any]]:
    """Return each knob with its values over time: ``[[t, value], ...]``.

    A value that something else than a request wrote has who it was as a third.
    """
    found: dict[str, dict[str, Any]] = {}
    for event in journal.tail(len(journal), VALUE_TYPES):
        for name, value in told_values(event).items():
            knob = found.setdefault(name, {"name": name, "group": "", "values": []})
            _add_value(knob["values"], event, _strict_value(value))
        for view in event.payload.get("knobs") or []:
            found[str(view.get("name"))]["group"] = view.get("group") or ""
    # Those that moved first; an optimizer has twenty that nobody touches.
    moved = [each for each in found.values() if len(each["values"]) > 1]
    still = [each for each in found.values() if len(each["values"]) <= 1]
    return [*moved, *still][:200]


def _add_value(values: list[list[Any]], event: Event, shown: Any) -> None:
    by = event.payload.get("by") if event.type == "knob_drifted" else None
    if event.type == "knobs_ended" and values:
        by = next(iter(values[-1][2:]), None)  # whoever began to write it went on
    if by is not None or not values or values[-1][1] != shown:
        values.append([round(event.t, 4), shown, *([] if by is None else [f"{by}"[:80]])])


def _strict_value(value: Any) -> Any:
    plain, odd = strict(value)
    return next(iter(odd.values()), plain)


def _as_script(data: dict[str, Any]) -> str:
    """Write JSON that no HTML parser can take for its own: without ``<``."""
    return orjson.dumps(data).decode().replace("<", "\\u003c").replace("\u2028", "\\u2028")


def _asset(name: str) -> str:
    return resources.files("it2nb").joinpath("assets", name).read_text(encoding="utf-8")
