"""LLMAgent: a language model that plans rounds, acts in them, and says what they taught."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from it2nb.controllers.decisions import Decisions
from it2nb.controllers.interview import Interview
from it2nb.controllers.planning import (
    MAX_REFLECTION,
    plan_of,
    plan_text,
    plan_tool,
    reflect_text,
)
from it2nb.controllers.prompts import ACT, PLAN, REFLECT, SMALLEST, cut, observation_text
from it2nb.controllers.provider import Provider
from it2nb.controllers.reading import Wish, wishes
from it2nb.controllers.spending import Prices, Purse
from it2nb.controllers.thinking import MAX_REQUESTS
from it2nb.controllers.tools import Toolbox
from it2nb.core.errors import AgentError, It2nbError
from it2nb.core.strict import strict
from it2nb.core.wire import Action, ActionResult

if TYPE_CHECKING:
    from it2nb.controllers.attached import Attached
    from it2nb.controllers.observation import Observation
    from it2nb.core.rounds import Plan, RoundContext


class LLMAgent:
    """A language model as a controller: ``session.attach(it2nb.LLMAgent("openai:NAME"))``.

    It is shown the run every so many steps and asks for changes like everybody else, with the
    permissions of the source ``agent``. Training never waits for it, and nothing that an endpoint
    does or says ends a run: what it costs, says, and gets wrong are rows of the journal.

    Parameters
    ----------
    model : str or pydantic_ai Model
        ``"openai:NAME"``, ``"anthropic:NAME"``, ``"ollama:NAME"``; with `base_url` the name alone.
    base_url : str, optional
        Of an endpoint that speaks chat completions (or, with ``anthropic:``, messages).
    api_key : str, optional
        By default from ``IT2NB_LLM_API_KEY``, else from the vendor's own variable, which only
        the vendor's own endpoint gets. It stands in no row and no state.
    name : str
        The `actor` of its requests.
    every : int, optimizer steps, >= 1
        Between two looks.
    prices : Prices, mapping or pair, optional
        Of a million tokens in and out: ``{"input": 3.0, "output": 15.0}``.
    max_tokens : int, optional
        In and out over all calls; then it asks no more, and a row says so.
    max_cost : float, optional
        In the currency of the prices, likewise.
    max_answer_tokens : int, >= 1
        Of one answer.
    max_prompt_chars : int, characters, >= 4000
        Of one prompt without the tools; an observation is thinned until it fits.
    max_requests : int, >= 1
        Taken out of one answer; the rest is rejected, and beyond 300 left out.
    timeout_s : float, seconds, > 0
        For one try.
    retries : int, >= 0
        Further tries after a time-out, a lost connection, 429 or 5xx.
    instructions : str
        Added to the rules that the model is given.

    Raises
    ------
    MissingDependency
        Without ``pip install 'it2nb[llm]'``.
    AgentError, It2nbError
        For a model that can't be asked, and for values that make no sense.

    Notes
    -----
    Endpoint, model and key are set here and nowhere else: no request can change them. One agent
    works for one session at a time.
    """

    source: Literal["agent"] = "agent"
    #: What a request may change: how much is taken and said, never whom it asks.
    configurable = frozenset({"instructions", "max_requests"})

    def __init__(
        self,
        model: Any,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        name: str = "llm",
        every: int = 100,
        prices: Any = None,
        max_tokens: int | None = None,
        max_cost: float | None = None,
        max_answer_tokens: int = 1_024,
        max_prompt_chars: int = 16_000,
        max_requests: int = 8,
        timeout_s: float = 60.0,
        retries: int = 2,
        instructions: str = "",
    ) -> None:
        _whole(every=every, max_answer_tokens=max_answer_tokens, max_requests=max_requests)
        _whole(SMALLEST, max_prompt_chars=max_prompt_chars)
        self.name = name
        self.every = every
        self.max_prompt_chars = max_prompt_chars
        self.max_requests = max_requests
        provider = Provider(model, base_url, api_key, timeout_s=timeout_s, retries=retries)
        purse = Purse(Prices.parse(prices), max_tokens, max_cost)
        self._hide = provider.secrets.hide
        self._interview = Interview(provider, purse, max_answer_tokens, instructions)
        self._decisions = Decisions()
        self._plan: dict[str, Any] | None = None
        self._attached: Attached | None = None

    # ----------------------------------------------------------------------------- controller

    def on_attach(self, attached: Attached) -> None:
        """Work for this session from now on."""
        self._attached = attached
        self._interview.begin(attached)
        attached.session.on_end(self.close)
        attached.show()

    def ask(self, observation: Observation) -> list[Action]:
        """Show the model the run, and return what it wants. Not on the training thread.

        What can't be asked for as it stands (arguments that can't be read, the ninth request of
        one answer) is rejected in the journal here, and told to the model next time.

        Raises
        ------
        AgentError
            When there is no answer.
        """
        box = Toolbox(observation.actions, observation.knobs)
        prompt = self._hide(
            observation_text(observation, self._decisions.listed(ids=False), self.max_prompt_chars)
        )
        answer = self._interview.ask(ACT, prompt, box.tools)
        if answer is None:
            return []
        found = wishes(answer.text, answer.calls, box)
        if found and all(each.type == "unreadable" for each in found):
            # Once more, with what was wrong; a second such answer is a rejected row.
            again = f"{prompt}\n\nYour last answer was of no use: {self._hide(found[0].wrong)}"
            answer = self._interview.ask(ACT, again, box.tools)
            if answer is None:
                return []
            found = wishes(answer.text, answer.calls, box)
        return self._requests(found, answer.text, observation)

    def plan(self, ctx: RoundContext) -> Plan | None:
        """Let the model plan a round; None when nothing may be asked any more.

        Raises
        ------
        AgentError
            When there is no answer, or no plan in it; then the round has no plan.
        """
        prompt = self._hide(plan_text(ctx, self.max_prompt_chars))
        tool = plan_tool(ctx.knobs)
        answer = self._interview.ask(PLAN, prompt, [tool])
        if answer is None:
            return None
        try:
            plan = plan_of(answer, ctx.knobs)
        except AgentError as err:
            again = f"{prompt}\n\nYour last answer was of no use: {self._hide(str(err))}"
            answer = self._interview.ask(PLAN, again, [tool])
            if answer is None:
                return None
            plan = plan_of(answer, ctx.knobs)
        plan = replace(plan, settings=self._hide(plan.settings), reason=self._hide(plan.reason))
        self._plan = {"round": ctx.round, "settings": plan.settings, "text": cut(plan.reason, 400)}
        return plan

    def reflect(self, ctx: RoundContext, record: Mapping[str, Any]) -> str | None:
        """Let the model say what a round taught; it stands in the record and in later prompts.

        Raises
        ------
        AgentError
            When there is no answer.
        """
        prompt = self._hide(reflect_text(ctx, record, self.max_prompt_chars))
        answer = self._interview.ask(REFLECT, prompt, [])
        if answer is None:
            return None
        return cut(self._hide(answer.text.strip()), MAX_REFLECTION) or None

    def tell(self, result: ActionResult) -> None:
        """Note what became of a request. Any thread."""
        self._decisions.tell(result)

    def call_row(self) -> dict[str, Any]:
        """What was asked and answered since the last row, and what it cost; for ``agent_call``."""
        return self._interview.take_row()

    def configure(
        self, *, instructions: str | None = None, max_requests: int | None = None
    ) -> None:
        """Change what a request may change. Training thread."""
        if max_requests is not None:
            _whole(max_requests=max_requests)
            self.max_requests = max_requests
        if instructions is not None:
            self._interview.instructions = str(instructions)[:4_000]

    def describe(self) -> dict[str, Any]:
        """Model, what was used up, last decisions, as JSON; no key and no address."""
        told: dict[str, Any] = self._hide(
            {
                **self._interview.describe(),
                "plan": self._plan,
                "decisions": self._decisions.listed(ids=True),
            }
        )
        return told

    def close(self) -> None:
        """Give up what is asked, close the connections. Any thread, idempotent."""
        self._interview.close()

    def __repr__(self) -> str:
        return f"<LLMAgent {self.name!r}: {self._interview.model}>"

    # -------------------------------------------------------------------------------- wishing

    def _requests(self, found: Sequence[Wish], said: str, seen: Observation) -> list[Action]:
        """Make requests of what the model wants; what can't be one is rejected here."""
        requests: list[tuple[Action, str | None]] = []
        taken: list[Action] = []
        for wish in found[:MAX_REQUESTS]:
            wrong = wish.wrong
            action = self._action(wish)
            if wrong is None and any(
                (each.type, each.payload) == (action.type, action.payload) for each in taken
            ):
                wrong = "the same was asked for twice in one answer"
            if wrong is None and len(taken) >= self.max_requests:
                wrong = f"{self.max_requests} requests of one answer are taken, {len(found)} came"
            if wrong is None:
                taken.append(action)
            requests.append((action, None if wrong is None else self._hide(wrong)))
        self._decisions.add(seen.step, self._hide(said), requests, seen.round)
        if self._attached is not None:
            actor, observed = self._attached.name, seen.observed()
            door = self._attached.session.door
            for action, wrong in requests:
                if wrong is not None:
                    door.enter(action, "agent", wrong=wrong, actor=actor, observed=observed)
            if len(found) > MAX_REQUESTS:
                text = f"{actor} asked for {len(found)} things at once: the rest was left out"
                self._attached.session.emit(
                    "note", {"text": text, "level": "warning"}, source="agent"
                )
        return taken

    def _action(self, wish: Wish) -> Action:
        # Half a surrogate pair is no text that could be written.
        type, reason = strict(wish.type)[0], strict(wish.reason)[0]
        return Action(
            type=type or "nameless",
            payload=self._hide(strict(wish.payload)[0]),
            reason=cut(self._hide(reason), 4_000) or None,
        )


def _whole(least: int = 1, **values: int) -> None:
    for name, value in values.items():
        if type(value) is not int or value < least:
            raise It2nbError(f"{name}={value!r} has to be a whole number, at least {least}")
