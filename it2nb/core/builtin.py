"""The actions that every session has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from it2nb.core.actions import ActionSpec, Owed
from it2nb.core.errors import KnobError, Rejected
from it2nb.core.knobs import Coerced, Outcome
from it2nb.core.readable import checkpoint_text
from it2nb.core.recorder import number_of, shown
from it2nb.core.serving import KnobChange, Said
from it2nb.core.wire import Offer

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Checkpoints that a form offers: the newest ones.
MOST_OFFERS = 30

_STRICT = ConfigDict(extra="forbid", strict=True)


class NoArgs(BaseModel):
    """No arguments."""

    model_config = _STRICT


class TagArgs(BaseModel):
    """A name for what is saved."""

    model_config = _STRICT
    tag: str | None = Field(default=None, max_length=200, description="a name to find it by")


class PathArgs(BaseModel):
    """Which checkpoint."""

    model_config = _STRICT
    path: str = Field(max_length=4096, description="path or name of the checkpoint")
    keep_knobs: bool = Field(default=False, description="keep the live knob values")


class NameArgs(BaseModel):
    """Which module."""

    model_config = _STRICT
    name: str = Field(max_length=400, description="dotted name of the module")


class ModeArgs(BaseModel):
    """Which knob, and how it goes together with its schedule."""

    model_config = _STRICT
    name: str = Field(max_length=200)
    mode: Literal["rescale", "hold", "release"]


class NoteArgs(BaseModel):
    """A remark for the journal."""

    model_config = _STRICT
    text: str = Field(max_length=10_000)
    level: Literal["info", "warning"] = "info"


class ContextArgs(BaseModel):
    """What controllers should know about this run."""

    model_config = _STRICT
    context: str = Field(max_length=20_000)


def set_knob(payload: dict[str, Any], session: Session) -> KnobChange:
    """Set one knob: ``{"name", "value", "mode"?}``; see `relative` for factor and add."""
    name = payload.get("name")
    if not isinstance(name, str):
        raise Rejected(f"name={name!r:.60} has to be the name of a knob")
    try:
        knob = session.knobs[name]
    except KnobError as err:
        raise Rejected(str(err)) from err
    if unknown := sorted(map(str, payload.keys() - {"name", "value", "mode"})):
        raise Rejected(
            f"set_knob takes name, mode, and one of value, factor and add; it has no argument "
            f"{unknown[0]!r:.60}"
        )
    if "value" not in payload:
        alone = "; set_mode picks a mode alone" if "mode" in payload else ""
        raise Rejected(f"{name}: set_knob needs one of value, factor and add{alone}")
    reason = knob.reason_unavailable()
    if reason is not None:
        raise Rejected(reason)
    coerced = knob.coerce(payload["value"])
    return KnobChange(knob.name, payload["value"], knob.apply(coerced, payload.get("mode")))


def set_mode(payload: dict[str, Any], session: Session) -> KnobChange:
    """Pick how a knob goes together with its schedule."""
    try:
        knob = session.knobs[payload["name"]]
    except KnobError as err:
        raise Rejected(str(err)) from err
    mode = payload["mode"]
    if knob.set_mode is None or mode not in knob.modes:
        known = ", ".join(knob.modes) or "none, since nothing else drives it"
        raise Rejected(f"{knob.name} has no mode {mode!r}; its modes: {known}")
    before = knob.value
    knob.set_mode(mode)
    return KnobChange(
        knob.name, mode, Outcome("applied", before, knob.value, f"mode is {mode} now")
    )


def batch(payload: dict[str, Any], session: Session) -> list[dict[str, Any]]:
    """Set several knobs at one control point, all or none: ``{"set": {name: value, ...}}``."""
    asked = payload.get("set")
    if not isinstance(asked, dict) or not asked or payload.keys() != {"set"}:
        raise Rejected("batch takes {'set': {knob name: value, ...}} with at least one knob")
    planned: list[tuple[Any, Coerced, Any]] = []
    for name, value in asked.items():
        try:
            knob = session.knobs[name]
        except KnobError as err:
            raise Rejected(f"nothing was set: {err}") from err
        reason = knob.reason_unavailable()
        if reason is not None:
            raise Rejected(f"nothing was set: {knob.name}: {reason}")
        try:
            planned.append((knob, knob.coerce(value), value))
        except Rejected as err:
            raise Rejected(f"nothing was set: {knob.name}: {err.reason}") from err
    return _apply_all(planned, session)


def _apply_all(planned: list[tuple[Any, Coerced, Any]], session: Session) -> list[dict[str, Any]]:
    done: list[tuple[Any, Outcome, Any]] = []
    for knob, coerced, value in planned:
        outcome = knob.apply(coerced)
        if outcome.status in ("applied", "clamped"):
            done.append((knob, outcome, value))
            continue
        undone = [each.name for each, was, _ in reversed(done) if _put_back(each, was.before)]
        kept = [each.name for each, _, _ in done if each.name not in undone]
        said = f"{knob.name}: {outcome.reason}; put back: {', '.join(undone) or 'nothing'}"
        if outcome.status == "rejected" and not kept:
            raise Rejected(said)
        raise RuntimeError(said + (f"; could not put back: {', '.join(kept)}" if kept else ""))
    session.write_rows(
        [
            ("knob_changed", {"name": k.name, "value": o.after, "before": o.before})
            for k, o, _ in done
        ],
        source=session.serving.source if session.serving else None,
        action_id=session.serving.id if session.serving else None,
    )
    return [
        {
            "name": k.name, "requested": v, "before": o.before, "after": o.after,
            "status": o.status, "reason": o.reason, **(o.data or {}),
        }
        for k, o, v in done
    ]  # fmt: skip


def _put_back(knob: Any, value: Any) -> bool:
    outcome: Outcome = knob.apply(Coerced(value))
    return outcome.status == "applied"


def pause(payload: dict[str, Any], session: Session) -> dict[str, Any]:
    """Hold the loop at this control point until it is resumed or stopped."""
    if session.status == "paused":
        return {"status": "paused", "note": "it was paused already"}
    session.change_status("paused")
    return {"status": "paused"}


def resume(payload: dict[str, Any], session: Session) -> dict[str, Any]:
    """Go on after a pause."""
    if session.status != "paused":
        return {"status": session.status, "note": "it was not paused"}
    session.change_status("running")
    return {"status": "running"}


def stop(payload: dict[str, Any], session: Session) -> dict[str, Any]:
    """End the run: no optimizer step happens after this one's result."""
    session.request_stop()
    return {"status": "stopped", "step": session.step_count}


def evaluate(payload: dict[str, Any], session: Session) -> Any:
    """Evaluate now; the result carries the metrics."""
    if session.evaluator is None:
        session.emit("evaluate_requested", {"step": session.step_count})
        return Owed("evaluate")
    found = session.evaluate_now()
    wrong = _no_numbers(found)
    return Said(found, wrong) if wrong else found


def _no_numbers(found: Any) -> str:
    """Say which of an evaluator's values are no numbers; empty when all are."""
    if found is None:
        return "the evaluator returned None: nothing was recorded"
    values = found if isinstance(found, Mapping) else {"evaluate": found}
    wrong = [
        f"{name} is {shown(value).rstrip(',')}"
        for name, value in values.items()
        if number_of(value)[0] is None
    ]
    if not wrong:
        return ""
    return f"not recorded as metrics, for it is no number: {'; '.join(wrong[:8])}"


def save_checkpoint(payload: dict[str, Any], session: Session) -> Any:
    """Save the state of the run."""
    return Owed("save", payload.get("tag"))


def load_checkpoint(payload: dict[str, Any], session: Session) -> Any:
    """Go back to a checkpoint."""
    return Owed("load", payload["path"])


def told_checkpoints(session: Session) -> list[Offer]:
    """Offer the checkpoints that a loop wrote by itself and told of, newest first."""
    told = [each for each in session.checkpoints if "sha256" not in each]
    return [
        Offer(value=each["path"], label=checkpoint_text({**each, "name": Path(each["path"]).name}))
        for each in reversed(told[-MOST_OFFERS:])
    ]


def reset_module(payload: dict[str, Any], session: Session) -> Any:
    """Initialise a module anew."""
    return Owed("reset", payload["name"])


def note(payload: dict[str, Any], session: Session) -> None:
    """Write a remark into the journal."""
    session.emit("note", {"text": payload["text"], "level": payload["level"]})


def set_context(payload: dict[str, Any], session: Session) -> None:
    """Tell controllers what to know about this run."""
    session.context = payload["context"]
    session.emit("context_changed", {"context": session.context})


def install(session: Session) -> None:
    """Register the built-in actions on a new session."""

    def no_loop(doing: str, remedy: str) -> str | None:
        # A loop that is driven by hooks never looks at StepControl: nobody would do it.
        return None if session.honours_control else f"this loop can't {doing}: {remedy}"

    def can_evaluate() -> str | None:
        if session.evaluator is not None:
            return None
        return no_loop("evaluate", "give it a function, %%it2 --evaluate fn or session.on_evaluate")

    def can_save() -> str | None:
        return no_loop("save", "no model was found; session.bind(model=..., optimizers=[...])")

    def can_load() -> str | None:
        return no_loop("load", "no model was found; session.bind(model=..., optimizers=[...])")

    def can_reset() -> str | None:
        return no_loop("reset modules", "no model was found; session.bind_model(model)")

    for spec in (
        ActionSpec("set_knob", set_knob, "Set a knob", keys=("name",),
                   optional=("value", "mode", "factor", "add")),
        ActionSpec("set_mode", set_mode, "How a knob goes with its schedule", ModeArgs),
        ActionSpec("batch", batch, "Set several knobs at once, all or none", keys=("set",)),
        ActionSpec("pause", pause, "Hold the loop between two steps", NoArgs),
        ActionSpec("resume", resume, "Go on after a pause", NoArgs),
        ActionSpec("stop", stop, "End the run", NoArgs, dangerous=True),
        ActionSpec("evaluate", evaluate, "Evaluate now", NoArgs, unavailable=can_evaluate),
        ActionSpec("save_checkpoint", save_checkpoint, "Save the state of the run", TagArgs,
                   unavailable=can_save),
        ActionSpec("load_checkpoint", load_checkpoint, "Go back to a checkpoint", PathArgs,
                   dangerous=True, unavailable=can_load,
                   offers=lambda: {"path": told_checkpoints(session)}),
        ActionSpec("reset_module", reset_module, "Initialise a module anew", NameArgs,
                   dangerous=True, unavailable=can_reset),
        ActionSpec("note", note, "Write a remark into the journal", NoteArgs),
        ActionSpec("set_context", set_context, "Tell controllers about this run", ContextArgs),
    ):  # fmt: skip
        session.actions.register(spec)
