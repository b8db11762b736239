"""From a plan to a run: its session, what it is connected to, its panel, its thread."""

from __future__ import annotations

from typing import Any

from it2nb.controllers.attach import attach
from it2nb.core.faults import guard
from it2nb.core.recording import cell_row
from it2nb.core.session import Session
from it2nb.notebook.output import CellOutput
from it2nb.notebook.plan import Plan
from it2nb.notebook.runner import Run, RunInProgress, running
from it2nb.notebook.wiring import Wiring
from it2nb.session import TrainingSession


def start(shell: Any, plan: Plan, output: CellOutput, *, waits: bool) -> Run:
    """Start a run in the background; returns at once.

    Raises
    ------
    RunInProgress
        While another run lives in the namespace.
    """
    try:
        running.refuse_second(shell.user_ns)
    except RunInProgress as err:
        if plan.options.panel:
            # Running the cell once more has cleared the panel that stood under it.
            with guard("showing the panel", err.session.report):
                _show_panel(err.session)
        raise
    session = _session(plan, shell.user_ns)
    if plan.again is not None:
        plan.again.attach(session, go_on=plan.options.go_on)
    session.emit("source_cell", cell_row(plan.cell.text, plan.line, plan.at))
    wiring = Wiring(session, plan, shell.user_ns)
    wiring.connect()
    for rule in plan.options.rules:
        attach(session, rule)
    run = Run(shell, plan, session, wiring, output)
    run.cell_waits = waits
    if plan.options.panel:
        with guard("showing the panel", session.report):
            run.panel = _show_panel(session)
    running.begin(shell.user_ns, run)
    return run


def _session(plan: Plan, namespace: dict[str, Any]) -> Session:
    """Make the run's session, or take the user's."""
    options = plan.options
    if options.session is not None:
        session: Session = namespace[options.session]
        session.title = options.title or session.title
        session.watch.extend(each.name for each in options.watch if each.name not in session.watch)
    else:
        directory = options.directory or "it2runs"
        session = TrainingSession(
            options.goal,
            directory=None if directory == "none" else directory,
            title=options.title,
            watch=[each.name for each in options.watch],
        )
    if options.autosave is not None and isinstance(session, TrainingSession):
        session._autosave_s = options.autosave or None
    if options.steps is not None:
        session.total_steps = options.steps
    if options.seed is not None:
        session.seed = options.seed
    session.source_cell = plan.cell.text
    if isinstance(session, TrainingSession):
        for name in options.track:
            session.track(name)
    return session


def _show_panel(session: Session) -> Any:
    from IPython.display import display

    from it2nb.notebook.panel import Panel

    panel = Panel.of(session)
    display(panel)
    return panel
