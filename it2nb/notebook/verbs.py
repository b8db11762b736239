"""What the ``%it2`` verbs do: a request of source "magic", or a view of the current run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from it2nb import archive, report
from it2nb.controllers.attach import attach
from it2nb.controllers.rules import who_waits
from it2nb.core import lifetime
from it2nb.core.errors import It2nbError
from it2nb.core.session import Session
from it2nb.core.wire import Action
from it2nb.notebook.commands import Command
from it2nb.notebook.export import export
from it2nb.notebook.options import VERBS, usage
from it2nb.notebook.waiting import WaitInterrupted, serve_until
from it2nb.notebook.words import CommandError, literal
from it2nb.panel.rows import rounds_text

if TYPE_CHECKING:
    import pandas as pd

#: How long a verb waits for its result, seconds. A step can be slow: then the handle comes back.
TIMEOUT_S = 10.0
#: Evaluations and saves take their time.
LONG_TIMEOUT_S = 600.0
_SLOW = frozenset({"evaluate", "save_checkpoint", "load_checkpoint", "undo", "goto"})


class Text:
    """Text that shows itself as it is when it is the value of a cell."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __str__(self) -> str:
        return self.text


def run_command(command: Command, shell: Any) -> Any:
    """Carry out a parsed ``%it2`` line; returns what the cell shows."""
    __tracebackhide__ = True
    act = _VERBS[command.verb]
    return act(command, shell)


def _ask(type_: str, payload: dict[str, Any], command: Command, shell: Any, limit: float) -> Any:
    """Submit a request and wait for its result with the panel alive."""
    session = lifetime.current()
    action = Action(type=type_, payload=payload, reason=command.options.get("reason"))
    handle = session.submit(action, source="magic")
    timeout = command.options.get("timeout", limit)
    try:
        if threading.current_thread() is threading.main_thread():
            serve_until(handle.done, timeout=timeout, kernel=getattr(shell, "kernel", None))
        elif not session.on_training_thread:
            return handle.result(timeout)
    except TimeoutError:
        pass
    except KeyboardInterrupt:
        raise WaitInterrupted(
            f"no longer waiting for {type_}; the request stays in force and is served at the "
            f"next control point"
        ) from None
    if handle.done():
        return handle.result(0)
    held = None if session.on_training_thread else session.patience.held()
    if held is not None:
        print(f"it2nb: {type_} waits: {held}")
    return handle


def _plain(type_: str, limit: float = TIMEOUT_S) -> Callable[[Command, Any], Any]:
    return lambda command, shell: _ask(type_, {}, command, shell, limit)


def _set(command: Command, shell: Any) -> Any:
    if "value" not in command.given:
        mode = {"name": command.words[0], "mode": command.options["mode"]}
        return _ask("set_mode", mode, command, shell, TIMEOUT_S)
    payload = {"name": command.words[0], "value": command.given["value"]}
    if "mode" in command.options:
        payload["mode"] = command.options["mode"]
    return _ask("set_knob", payload, command, shell, TIMEOUT_S)


def _do(command: Command, shell: Any) -> Any:
    limit = LONG_TIMEOUT_S if command.words[0] in _SLOW else TIMEOUT_S
    return _ask(command.words[0], dict(command.given), command, shell, limit)


def _save(command: Command, shell: Any) -> Any:
    payload = {"tag": command.words[0]} if command.words else {}
    return _ask("save_checkpoint", payload, command, shell, LONG_TIMEOUT_S)


def _load(command: Command, shell: Any) -> Any:
    payload = {"path": command.words[0]} if command.words else {}
    return _ask("load_checkpoint", payload, command, shell, LONG_TIMEOUT_S)


def _undo(command: Command, shell: Any) -> Any:
    payload = {"knobs_only": True} if "knobs_only" in command.options else {}
    return _ask("undo", payload, command, shell, LONG_TIMEOUT_S)


def _goto(command: Command, shell: Any) -> Any:
    step = literal(command.words[0])
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise CommandError(f"%it2 goto {command.words[0]}: that is no number of a step")
    return _ask("goto", {"step": step}, command, shell, LONG_TIMEOUT_S)


def _stop(command: Command, shell: Any) -> Any:
    session = lifetime.current()
    if session.is_ended:
        return Text(f"{session.run_id} is over already: {session.status}")
    return _ask("stop", {}, command, shell, TIMEOUT_S)


def _wait(command: Command, shell: Any) -> Any:
    __tracebackhide__ = True
    timeout = None
    if command.words:
        value = literal(command.words[0])
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise CommandError(f"%it2 wait {command.words[0]}: that is no number of seconds")
        timeout = float(value)
    session = lifetime.current()
    try:
        session.wait(timeout)
    except TimeoutError:
        if session.is_ended:
            raise  # the loop's own error
        held = session.status == "paused"
        on = "it is paused: %it2 resume lets it go on" if held else "it still runs"
        more = f"  {on}; waited {timeout:g} s: %it2 wait waits again, %it2 stop ends it"
        return Text(f"{_status(command, shell)}\n{more}")
    return _status(command, shell)


def _status(command: Command, shell: Any) -> Text:
    session = lifetime.current()
    state = session.state()
    rounds = rounds_text(state)
    done = f"{rounds and rounds + ', '}step {state.step:,}"
    if state.total_steps:
        done += f" of {state.total_steps:,} ({state.step / state.total_steps:.0%})"
    pace = "" if state.steps_per_s is None else f", {state.steps_per_s:,.1f} steps/s"
    lines = [f"{state.run_id}: {state.status}, {done}, {state.elapsed_s:,.1f} s{pace}"]
    if state.error:
        where = f" (line {state.error_line} of the cell)" if state.error_line else ""
        lines.append(f"  {state.error}{where}")
    shown = [
        f"{name} {each.nonfinite or f'{each.value:.5g}'}"
        for name, each in state.metrics.items()
        if each.nonfinite or each.value is not None  # not on this branch
    ]
    if shown:
        lines.append("  " + ", ".join(shown))
    if state.pending or state.waiting:
        lines.append(f"  {state.pending} requests pending, {len(state.waiting)} to be approved")
    warned = state.warnings[-5:]
    replaying = session.replaying
    if replaying is not None and replaying.outcome and replaying.outcome not in state.warnings:
        lines.append(f"  {replaying.outcome}")
    held = session.patience.held()
    if held is not None:
        lines.append(f"  {held}")
    lines += [
        f"  {who}: {doubt}"
        for who, doubt in session.expected.doubts()
        if not any(who in each for each in warned)
    ]
    # The same sentence a while ago says no more than the one of now.
    lines += [f"  warning: {each}" for each in warned if not _is_earlier(each, held)]
    if session.source_cell is not None and state.status in ("running", "paused"):
        lines.append("  the kernel's interrupt button does not reach it: %it2 stop ends it")
    if state.journal_path:
        lines.append(f"  journal: {state.journal_path}")
    return Text("\n".join(lines))


def _is_earlier(warned: str, held: str | None) -> bool:
    who = warned.partition(" is not back ")[0]
    return held is not None and held.startswith(f"{who} is not back ")


def _knobs(command: Command, shell: Any) -> pd.DataFrame:
    from it2nb.notebook.tables import knob_table

    table, left = knob_table(lifetime.current(), command.words[0] if command.words else None)
    if left:
        print(left)
    return table


def _actions(command: Command, shell: Any) -> pd.DataFrame:
    import pandas as pd

    schemas = lifetime.current().actions.schemas()
    columns: dict[str, list[Any]] = {
        "name": [each.name for each in schemas],
        "arguments": [", ".join(each.args.get("properties", {})) for each in schemas],
        "enabled": [each.enabled for each in schemas],
        "reason": [each.reason or "" for each in schemas],
        "description": [each.description for each in schemas],
    }
    return pd.DataFrame(columns).set_index("name")


def _runs(command: Command, shell: Any) -> pd.DataFrame:
    import pandas as pd

    sessions = lifetime.runs()
    columns: dict[str, list[Any]] = {
        "run_id": [each.run_id for each in sessions],
        "title": [each.title for each in sessions],
        "status": [each.status for each in sessions],
        "step": [each.step_count for each in sessions],
        "elapsed_s": [round(each.elapsed_s, 1) for each in sessions],
        "error": [each.error or "" for each in sessions],
        "journal": ["" if each.path is None else str(each.path) for each in sessions],
    }
    return pd.DataFrame(columns).set_index("run_id")


def _journal(command: Command, shell: Any) -> Any:
    rows = 20
    if command.words:
        value = literal(command.words[0])
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise CommandError(f"%it2 journal {command.words[0]}: that is no number of rows")
        rows = value
    from it2nb.notebook.tables import journal_table

    return journal_table(lifetime.current(), rows, command.options.get("type"))


def _plot(command: Command, shell: Any) -> Any:
    session: Any = lifetime.current()
    plot = getattr(session, "plot", None)
    if plot is None:
        raise It2nbError(f"{session.run_id} has no plot(); make the session with TrainingSession")
    try:
        return plot(list(command.words) or None)
    except ValueError as err:  # no such metric: a slip, not worth a traceback
        raise CommandError(f"%it2 plot: {err}") from None


def _panel(command: Command, shell: Any) -> Any:
    from it2nb.notebook.panel import Panel

    return Panel.of(lifetime.current())


def _policy(command: Command, shell: Any) -> Text:
    said = lifetime.current().policy.sentences()
    return Text("\n".join(said) or "no rule is in force")


def _rule(command: Command, shell: Any) -> Text:
    session = lifetime.current()
    attached = attach(session, command.words[0])
    own = who_waits(attached.controller.target.rule)
    said = [f"{attached.name}: watched from step {session.step_count} on"]
    said += [f"  {doubt}" for who, doubt in session.expected.doubts() if who == own]
    return Text("\n".join(said))


def _rules(command: Command, shell: Any) -> pd.DataFrame:
    import pandas as pd

    told = [each.describe() for each in lifetime.current().controllers]
    columns = ("name", "source", "enabled", "every", "calls", "requests", "errors", "error")
    frame = pd.DataFrame(
        {name: pd.Series([each[name] for each in told], dtype="object") for name in columns}
    )
    return frame.set_index("name")


def _export(command: Command, shell: Any) -> Text:
    session: Session = lifetime.current()
    target = Path(command.words[0]) if command.words else None
    try:
        return Text("\n".join(str(path) for path in _written(session, target)))
    except OSError as err:
        where = err.filename or target
        said = f"%it2 export: {str(where)!r} can't be written ({err.strerror or err})"
        raise It2nbError(
            f"{said}; name another place: %it2 export FOLDER, run.zip or run.html"
        ) from err


def _written(session: Session, target: Path | None) -> list[Path]:
    if target is not None and target.suffix == ".zip":
        return [archive.export(session.journal, target, title=session.title)]
    if target is not None and target.suffix in (".html", ".htm"):
        return [report.write(session.journal, target, title=session.title)]
    return export(session, target)


def _help(command: Command, shell: Any) -> Text:
    if not command.words:
        return Text(usage())
    verb = VERBS.get(command.words[0])
    if verb is None:
        raise CommandError(f"there is no verb {command.words[0]!r}; see %it2 help")
    lines = [f"%it2 {verb.name} {verb.usage}".rstrip(), f"  {verb.help}"]
    lines += [f"  --{each.name} {each.value:8}  {each.help}" for each in verb.options]
    return Text("\n".join(lines))


_VERBS: dict[str, Callable[[Command, Any], Any]] = {
    "status": _status,
    "knobs": _knobs,
    "set": _set,
    "do": _do,
    "actions": _actions,
    "pause": _plain("pause"),
    "resume": _plain("resume"),
    "stop": _stop,
    "evaluate": _plain("evaluate", LONG_TIMEOUT_S),
    "save": _save,
    "load": _load,
    "undo": _undo,
    "goto": _goto,
    "wait": _wait,
    "panel": _panel,
    "journal": _journal,
    "plot": _plot,
    "runs": _runs,
    "policy": _policy,
    "rule": _rule,
    "rules": _rules,
    "export": _export,
    "help": _help,
}
