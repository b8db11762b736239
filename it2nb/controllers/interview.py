"""An agent's questions to its model: what they may cost, what they did, what is written of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from it2nb.controllers.decisions import short
from it2nb.controllers.prompts import cut
from it2nb.controllers.provider import Answer, Provider, Tool
from it2nb.controllers.spending import Purse, Use, tokens_of
from it2nb.controllers.thinking import MAX_ERRORS
from it2nb.core.errors import AgentError
from it2nb.core.strict import strict

if TYPE_CHECKING:
    from it2nb.controllers.attached import Attached

#: Characters of a prompt, and of an answer, in the journal.
MAX_TEXT = 40_000
#: Tool calls of an answer in the journal, and characters of the arguments of each.
MAX_CALLS, MAX_ARGS = 32, 500
#: Turns that are left out after calls that failed: 1, 2, 4... up to this many.
MAX_SILENCE = 32


class Interview:
    """Asks one model, within its caps. One thread at a time asks; any thread may look.

    Parameters
    ----------
    provider : Provider
    purse : Purse
    max_answer_tokens : int
    instructions : str
        Added to the rules of each question.
    """

    def __init__(
        self, provider: Provider, purse: Purse, max_answer_tokens: int, instructions: str
    ) -> None:
        self._provider = provider
        self._purse = purse
        self._max_answer_tokens = max_answer_tokens
        self.instructions = instructions
        self._attached: Attached | None = None
        self._lock = threading.Lock()
        self._exchanges: list[dict[str, Any]] = []
        self._failures = 0
        self._silent = 0
        self._over = threading.Event()

    @property
    def model(self) -> str:
        """The model's name, as it was given."""
        return self._provider.name

    def begin(self, attached: Attached) -> None:
        """Work for a session: its budget holds, and it is paused when nothing is left."""
        self._over.clear()
        self._failures = self._silent = 0
        self._attached = attached

    def ask(self, rules: str, prompt: str, tools: Sequence[Tool]) -> Answer | None:
        """Ask one question.

        Returns
        -------
        Answer or None
            None when nothing may be asked: the caps are reached (then the agent is paused, and
            a row says so), or it keeps silent for a while after calls that failed.

        Raises
        ------
        AgentError
            When there is no answer.
        """
        if self._over.is_set():
            return None
        if self._silent > 0:
            self._silent -= 1
            return None
        if self.instructions:
            rules = f"{rules}\n{self._provider.secrets.hide(self.instructions)}"
        whole = f"{rules}\n{prompt}\n{[each.schema for each in tools]}"
        needed = tokens_of(whole)
        why = self._purse.used_up(needed) or self._over_policy()
        if why is not None:
            self._stop(why)
            return None
        most = self._purse.answer_tokens(self._max_answer_tokens, needed)
        try:
            answer = self._provider.ask(rules, prompt, tools, most)
        except AgentError as err:
            if self._over.is_set():
                return None  # the run is over: nobody waits for it any more
            self._failed(prompt, whole, err)
            raise
        self._failures = 0
        said = answer.text + "".join(f"{each.name}{each.args}" for each in answer.calls)
        use = self._purse.book(whole, said, answer.counted, answer.lost_tries)
        self._note(
            prompt, use, answer=cut(answer.text, MAX_TEXT), latency_s=round(answer.latency_s, 4),
            tries=answer.tries, answer_calls=_calls(answer),
        )  # fmt: skip
        return answer

    def take_row(self) -> dict[str, Any]:
        """What is to be written of the questions since the last row; takes it away."""
        with self._lock:
            exchanges, self._exchanges = self._exchanges, []
        if not exchanges:
            return {}
        costs = [each["cost"] for each in exchanges if each.get("cost") is not None]
        row: dict[str, Any] = {
            "model": self.model,
            "tokens": sum(each.get("tokens", 0) for each in exchanges),
            "cost": sum(costs) if costs else None,
            "exchanges": exchanges,
        }
        return row

    def describe(self) -> dict[str, Any]:
        """Model, tokens and money, as JSON."""
        return {"kind": "llm", "model": self.model, **self._purse.describe()}

    def close(self) -> None:
        """Give up what is asked. Any thread, idempotent."""
        self._over.set()
        self._provider.close()

    # --------------------------------------------------------------------------------- inside

    def _failed(self, prompt: str, whole: str, err: AgentError) -> None:
        self._failures += 1
        if self._failures > 1:
            self._silent = min(2 ** (self._failures - 2), MAX_SILENCE)
        # The endpoint may have got the prompt: whether it is on the bill nobody said.
        use = None
        if err.lost_tries:
            use = self._purse.book(whole, "", None, err.lost_tries - 1)
        self._note(prompt, use, error=str(err))
        if err.hopeless:
            self._stop(str(err))
        elif self._failures >= MAX_ERRORS:
            self._stop(f"{self._failures} errors in a row, the last one {err}")

    def _note(self, prompt: str, use: Use | None, **more: Any) -> None:
        exchange: dict[str, Any] = {"prompt": cut(prompt, MAX_TEXT), **more}
        if use is not None:
            exchange |= {
                "tokens": use.tokens, "input_tokens": use.input_tokens,
                "output_tokens": use.output_tokens, "cost": use.cost,
            }  # fmt: skip
            if use.estimated:
                exchange["estimated"] = True
        with self._lock:
            self._exchanges.append(self._provider.secrets.hide(strict(exchange)[0]))

    def _stop(self, why: str) -> None:
        if self._attached is not None:
            self._attached.pause(why)

    def _over_policy(self) -> str | None:
        if self._attached is None:
            return None
        session = self._attached.session
        return session.policy.used_up("agent", session.elapsed_s)


def _calls(answer: Answer) -> list[dict[str, Any]]:
    told = [{"name": each.name, "args": short(each.args, MAX_ARGS)} for each in answer.calls]
    left = len(told) - MAX_CALLS
    return told if left <= 0 else [*told[:MAX_CALLS], {"left_out": left}]
