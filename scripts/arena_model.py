"""The language model of `scripts.arena_report`: a stand-in that answers from a script.

It is asked over HTTP in the chat-completions protocol, as any model is, by the server that the
tests use. What it says follows from the recipe below and from nothing else: how it scores says
something of the recipe, and nothing of any model.
"""

from __future__ import annotations

import json
from typing import Any

from it2nb.controllers.spending import tokens_of
from tests.controllers.endpoint import Says

#: Of a million tokens: made up, so that there is something to account for.
PRICES = {"input": 3.0, "output": 15.0}
#: lr of the rounds after the baseline, in turn.
RATES = (9e-3, 1.5e-3, 6e-3)
#: From this share of a round on lr is halved, once.
LATE = 0.7

RECIPE = (
    f"lr {', '.join(f'{each:g}' for each in RATES)} for the rounds after the baseline, and half "
    f"of it after {LATE:.0%} of each"
)


def says(body: dict[str, Any]) -> Says:
    """Answer one request; its tokens are counted by the lengths of the texts."""
    told = json.loads(body["messages"][-1]["content"].split("\n\n", 1)[0])
    tools = {each["function"]["name"] for each in body.get("tools", [])}
    if "plan_round" in tools:
        rate = RATES[(told["next_round"] - 2) % len(RATES)]
        plan = {"settings": {"lr": rate}, "reason": f"lr {rate:g}, as the script says"}
        return _counted(body, None, ("plan_round", plan))
    if not tools:
        return _counted(body, f"it came to {told['round'].get('value')}")
    run, earlier = told["run"], told["your_earlier_decisions"]
    late = run["step"] >= LATE * (run["total_steps"] or 1)
    done = bool(earlier) and earlier[-1]["said"] == _HALVES and earlier[-1]["step"] < run["step"]
    lr = next((each["value"] for each in told["knobs"] if each["name"] == "lr"), None)
    if not late or done or lr is None:
        return _counted(body, "nothing to change")
    asked = {"name": "lr", "value": lr / 2, "reason": "late in the round, as the script says"}
    return _counted(body, _HALVES, ("set_knob", asked))


_HALVES = "halves lr for the rest of the round"


def _counted(body: dict[str, Any], text: str | None, *calls: tuple[str, dict[str, Any]]) -> Says:
    made = f"{text or ''}{json.dumps(calls) if calls else ''}"
    return Says(text, calls, (tokens_of(json.dumps(body)), tokens_of(made)))
