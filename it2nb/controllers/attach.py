"""Joining controllers with a session, and the actions by which people pause and set them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from it2nb.controllers.attached import Attached
from it2nb.controllers.base import Adapted, ControllerError
from it2nb.controllers.late import Late
from it2nb.core.actions import ActionSpec
from it2nb.core.errors import Rejected, SessionEnded, near

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Steps between two turns when nobody says.
EVERY = 50


class AgentArgs(BaseModel):
    """Whether controllers are asked."""

    model_config = ConfigDict(extra="forbid", strict=True)
    enabled: bool = Field(description="false pauses, true goes on")
    name: str | None = Field(default=None, max_length=200, description="which; all by default")


class ConfigureArgs(BaseModel):
    """How a controller is asked."""

    model_config = ConfigDict(extra="forbid", strict=True)
    options: dict[str, Any] = Field(description="every, late, and what it lets be changed")
    name: str | None = Field(default=None, max_length=200, description="which; where several are")


def attach(
    session: Session,
    controller: Any,
    *,
    every: int | None = None,
    blocking: bool = False,
    late: Late = "apply",
    timeout_s: float | None = None,
    name: str | None = None,
) -> Attached:
    """Put a controller beside a run; see `TrainingSession.attach`. Any thread."""
    if session.is_ended:
        raise SessionEnded(f"{session.run_id} has ended: it takes no controller any more")
    controllers: list[Attached] = session.controllers
    for known in controllers:
        if known.target is controller and not isinstance(controller, str):
            return known  # a training that attaches it in each round
    adapted = Adapted(_begun(controller), name)
    steps = every if every is not None else adapted.every
    if steps is None:
        steps = 1 if adapted.source == "rule" else EVERY
    if type(steps) is not int or steps < 1:
        raise ControllerError(f"every={steps!r:.60} has to be a whole number of steps, at least 1")
    _install(session)
    attached = Attached(
        session, adapted, name=_free_name(session, adapted.name), every=steps, blocking=blocking,
        late=late, timeout_s=timeout_s, target=controller,
    )  # fmt: skip
    session.controllers = [*session.controllers, attached]
    session.on_end(attached.close)
    session.emit("agent_attached", attached.describe(), source=attached.source)
    attached.show()
    hook = adapted.hook("on_attach")
    if hook is not None:
        try:
            hook(attached)
        except BaseException:  # raised again: half attached is not left behind
            attached.detach()
            raise
    return attached


def _begun(controller: Any) -> Any:
    """Make what watches out of a rule or its text."""
    from it2nb.controllers.rules import Rule, rule

    if isinstance(controller, str):
        controller = rule(controller)
    return controller.begin() if isinstance(controller, Rule) else controller


def _free_name(session: Session, wanted: str) -> str:
    taken = {each.name for each in session.controllers}
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted} ({number})"
    return name


def _install(session: Session) -> None:
    if "set_agent" in session.actions:
        return

    def none_there() -> str | None:
        return None if session.controllers else "no controller is attached"

    for spec in (
        ActionSpec("set_agent", set_agent, "Pause or resume the controllers", AgentArgs,
                   unavailable=none_there),
        ActionSpec("configure_agent", configure_agent, "Change how a controller is asked",
                   ConfigureArgs, unavailable=none_there),
    ):  # fmt: skip
        session.actions.register(spec)


def set_agent(payload: dict[str, Any], session: Session) -> dict[str, Any]:
    """Pause or resume one controller, or all that are no rules."""
    enabled = payload["enabled"]
    chosen = _chosen(session, payload["name"])
    for each in chosen:
        if enabled:
            each.resume()
        else:
            each.pause()
    return {"enabled": enabled, "names": [each.name for each in chosen]}


def configure_agent(payload: dict[str, Any], session: Session) -> dict[str, Any]:
    """Change options of one controller."""
    chosen = _chosen(session, payload["name"])
    if len(chosen) > 1:
        names = ", ".join(repr(each.name) for each in chosen)
        raise Rejected(f"name is needed, there are several: {names}")
    try:
        done = chosen[0].configure(payload["options"])
    except ControllerError as err:
        raise Rejected(str(err)) from err
    return {"name": chosen[0].name, "options": done}


def _chosen(session: Session, name: str | None) -> list[Attached]:
    controllers: list[Attached] = session.controllers
    if name is None:
        return [each for each in controllers if each.source != "rule"] or list(controllers)
    found = [each for each in controllers if each.name == name]
    if not found:
        known = [each.name for each in controllers]
        raise Rejected(f"no controller is named {name!r:.80}{near(name, known)}")
    return found
