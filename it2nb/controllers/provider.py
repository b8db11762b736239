"""The way to a language model: one question, one answer, with a time limit and second tries."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from it2nb.controllers.body import PLAIN, bound
from it2nb.controllers.own_loop import OwnLoop
from it2nb.core.errors import AgentError, It2nbError, require
from it2nb.core.redaction import Secrets

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

#: Where the key is found when none is given; wins over the vendor's own variable.
KEY_VARIABLE = "IT2NB_LLM_API_KEY"
#: What local endpoints get that need no key.
NO_KEY = "none"
#: First wait before another try, seconds; doubled each time.
BACKOFF_S = 0.5
#: Longest wait that an endpoint may ask for.
MAX_WAIT_S = 30.0
#: Of HTTP: another try may work.
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
#: Of HTTP: no other try will work, nor will the next call.
HOPELESS = frozenset({401, 403, 404})
EXTRA = {"extra": "llm", "feature": "it2nb.LLMAgent"}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What the model wants done. `args` is raw text where the endpoint sent text."""

    name: str
    args: Any


@dataclass(frozen=True, slots=True)
class Tool:
    """What the model may ask for: a name and a JSON schema of its arguments."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said.

    Attributes
    ----------
    counted : (int, int) or None
        Tokens in and out; None when the endpoint did not say.
    latency_s : float
        With all tries.
    tries : int
    lost_tries : int
        Those before it that may be on the bill all the same.
    """

    text: str
    calls: list[ToolCall]
    counted: tuple[int, int] | None
    latency_s: float
    tries: int
    lost_tries: int = 0


class Provider:
    """Asks one model. Any thread; what it does runs on a thread of its own.

    Parameters
    ----------
    model : str or pydantic_ai Model
        ``"openai:NAME"``, ``"anthropic:NAME"``, ``"ollama:NAME"``, or just a name with a
        `base_url`; other prefixes are pydantic-ai's. A model object is taken as it is.
    base_url : str, optional
        Of an OpenAI-compatible endpoint (``http://127.0.0.1:8000/v1``), or of Anthropic's
        protocol with the prefix ``anthropic:``.
    api_key : str, optional
        From ``IT2NB_LLM_API_KEY``, else, for a vendor's own endpoint, from the vendor's
        variable (``OPENAI_API_KEY``, ``ANTHROPIC_API_KEY``): another `base_url` never gets the
        vendor's key unless it is given here.
    timeout_s : float, > 0
        For each try.
    retries : int, >= 0
        Further tries after a time-out, a lost connection, 429 or 5xx.

    Raises
    ------
    MissingDependency
        Without ``pip install 'it2nb[llm]'``.
    """

    def __init__(
        self,
        model: Any,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float = 60.0,
        retries: int = 2,
    ) -> None:
        require("pydantic_ai", **EXTRA)
        if not timeout_s > 0:
            raise It2nbError(f"timeout_s={timeout_s!r} has to be above 0 seconds")
        if retries < 0:
            raise It2nbError(f"retries={retries!r} has to be 0 or more")
        if base_url is not None and urlsplit(base_url).scheme not in ("http", "https"):
            raise It2nbError(f"base_url={base_url!r} has to begin with http:// or https://")
        self.timeout_s = timeout_s
        self.retries = retries
        self._clients: list[Any] = []
        key = api_key or os.environ.get(KEY_VARIABLE)
        self.secrets = Secrets.of_environment(key)
        if isinstance(model, str):
            self.name = model
            self._make: Callable[[], Model] = lambda: self._named(model, base_url, key)
        else:
            if base_url is not None or api_key is not None:
                raise It2nbError("base_url and api_key go with a model's name, not with an object")
            self._make = lambda: model
            self.name = str(getattr(model, "model_name", type(model).__name__))
        #: Made at once, so that what is wrong is said at once; after `close` anew.
        self._model: Model | None = self._make()
        self._loop = OwnLoop(f"it2nb model {self.name}")

    def ask(self, instructions: str, prompt: str, tools: Sequence[Tool], max_tokens: int) -> Answer:
        """Ask one question and wait for the answer.

        Raises
        ------
        AgentError
            With why there is no answer; secrets are hidden in it.
        """
        began = time.monotonic()
        answer, tries, lost = self._loop.run(
            lambda: self._tries(instructions, prompt, tools, max_tokens)
        )
        from pydantic_ai.messages import TextPart, ToolCallPart

        usage = answer.usage
        counted = (usage.input_tokens, usage.output_tokens)
        # An endpoint knows the key, and may say it anywhere: as a tool's name, too.
        hide = self.secrets.hide
        return Answer(
            text=hide("".join(_text(p.content) for p in answer.parts if isinstance(p, TextPart))),
            calls=[
                ToolCall(hide(_text(each.tool_name)), hide(each.args))
                for each in answer.parts
                if isinstance(each, ToolCallPart)
            ],
            counted=counted if any(counted) else None,
            latency_s=time.monotonic() - began,
            tries=tries,
            lost_tries=lost,
        )

    def close(self) -> None:
        """Give up what is asked, close the connections. Any thread, idempotent.

        A later question opens them again.
        """
        clients, self._clients, self._model = self._clients, [], None

        async def last() -> None:
            for each in clients:
                await each.close()

        self._loop.close(last)

    def __repr__(self) -> str:
        return f"<Provider {self.name}>"

    async def _tries(
        self, instructions: str, prompt: str, tools: Sequence[Tool], max_tokens: int
    ) -> tuple[ModelResponse, int, int]:
        wait_s = BACKOFF_S
        lost = 0
        for tried in range(1, self.retries + 2):
            try:
                return await self._try(instructions, prompt, tools, max_tokens), tried, lost
            except AgentError as err:
                lost += err.maybe_billed
                if not err.passing or tried > self.retries:
                    said = f" (tried {tried} times)" if tried > 1 else ""
                    raise AgentError(
                        f"{err}{said}", passing=err.passing, hopeless=err.hopeless,
                        maybe_billed=lost > 0, lost_tries=lost,
                    ) from None  # fmt: skip
                await asyncio.sleep(min(max(wait_s, err.wait_s), MAX_WAIT_S))
                wait_s *= 2
        raise AssertionError("unreachable")

    async def _try(
        self, instructions: str, prompt: str, tools: Sequence[Tool], max_tokens: int
    ) -> ModelResponse:
        from pydantic_ai.direct import model_request
        from pydantic_ai.exceptions import AgentRunError, ModelConnectionError, ModelHTTPError
        from pydantic_ai.messages import ModelRequest, UserPromptPart
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.tools import ToolDefinition

        offered = [
            ToolDefinition(
                name=each.name, description=each.description, parameters_json_schema=each.schema
            )
            for each in tools
        ]
        request = ModelRequest(parts=[UserPromptPart(prompt)], instructions=instructions)
        if self._model is None:
            self._model = self._make()
        try:
            async with asyncio.timeout(self.timeout_s):
                return await model_request(
                    self._model,
                    [request],
                    model_settings={"max_tokens": max_tokens},
                    model_request_parameters=ModelRequestParameters(function_tools=offered),
                )
        except TimeoutError:
            raise AgentError(
                f"no answer within {self.timeout_s:g} s", passing=True, maybe_billed=True
            ) from None
        except ModelHTTPError as err:
            raise AgentError(
                self._said(err),
                passing=err.status_code in PASSING,
                hopeless=err.status_code in HOPELESS,
                wait_s=err.retry_after or 0.0,
            ) from None
        except ModelConnectionError as err:
            raise _refused(err) or AgentError(self._said(err), passing=True) from None
        except AgentRunError as err:
            # An answer that is none: it was made and is on the bill.
            raise AgentError(self._said(err), passing=True, maybe_billed=True) from None
        except AgentError:
            raise
        # The library trips over an answer of a shape that it does not know, in as many ways as
        # there are shapes: each is an error of the endpoint, and a row, not an end of the agent.
        except Exception as err:  # noqa: BLE001 - the boundary to it
            raise _refused(err) or AgentError(
                f"the answer can't be read: {self._said(err)}", passing=True, maybe_billed=True
            ) from None

    def _said(self, err: Exception) -> str:
        return str(self.secrets.hide(f"{type(err).__name__.strip('_')}: {err}"))[:500]

    # ------------------------------------------------------------------------------- by name

    def _named(self, name: str, base_url: str | None, key: str | None) -> Model:
        vendor, bare = _split(name, base_url)
        if vendor == "anthropic" or (not vendor and base_url is None and bare.startswith("claude")):
            return self._anthropic(bare, base_url, key)
        if vendor == "ollama" and base_url is None:
            base_url = os.environ.get("OLLAMA_BASE_URL", "http://127.0.0.1:11434/v1")
        if vendor in ("", "openai", "ollama") and (base_url is not None or vendor == "openai"):
            return self._openai(bare, base_url, key)
        if not vendor:
            raise It2nbError(
                f"model={name!r} does not say where it is: 'openai:{name}', 'anthropic:{name}', "
                f"'ollama:{name}', or give base_url="
            )
        return self._inferred(name)

    def _openai(self, name: str, base_url: str | None, key: str | None) -> Model:
        require("openai", **EXTRA)
        from openai import AsyncOpenAI, OpenAIError
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        try:
            # Tries are counted here, not in the vendor's library.
            client = AsyncOpenAI(
                api_key=key if base_url is None else key or NO_KEY,
                base_url=base_url,
                max_retries=0,
                http_client=_http(base_url, self.timeout_s),
            )
        except OpenAIError as err:
            raise AgentError(f"{err}; or set {KEY_VARIABLE}") from err
        self._clients.append(client)
        if base_url is None:
            return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))
        compatible = OpenAICompatibleProvider("endpoint", openai_client=client)
        return OpenAIChatModel(name, provider=compatible)

    def _anthropic(self, name: str, base_url: str | None, key: str | None) -> Model:
        require("anthropic", **EXTRA)
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        own = os.environ.get("ANTHROPIC_API_KEY") if base_url is None else NO_KEY
        if not (key or own):
            raise AgentError(
                f"anthropic:{name} needs a key: api_key=, {KEY_VARIABLE} or ANTHROPIC_API_KEY"
            )
        client = AsyncAnthropic(
            api_key=key or own,
            base_url=base_url,
            max_retries=0,
            http_client=_http(base_url, self.timeout_s),
        )
        self._clients.append(client)
        return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))

    def _inferred(self, name: str) -> Model:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model

        try:
            return infer_model(name)
        except (UserError, ImportError, ValueError) as err:
            raise AgentError(f"model={name!r} can't be used: {err}") from err


def _text(said: object) -> str:
    """What the library hands on unchecked: nothing where it is no text."""
    return said if isinstance(said, str) else ""


def _refused(err: BaseException | None) -> AgentError | None:
    """Find what we raised ourselves while a response was read, under what became of it."""
    for _ in range(10):
        if err is None or isinstance(err, AgentError):
            return err
        err = err.__cause__ or err.__context__
    return None


def _split(name: str, base_url: str | None) -> tuple[str, str]:
    """Vendor and name; with an address of its own a name may hold colons: ``qwen3:8b``."""
    vendor, colon, bare = name.partition(":")
    if not colon or (base_url is not None and vendor not in ("openai", "anthropic", "ollama")):
        return "", name
    return vendor, bare


def _http(base_url: str | None, timeout_s: float) -> Any:
    """A client that no proxy of the environment keeps from this machine's own addresses."""
    import httpx2

    host = urlsplit(base_url).hostname if base_url else None
    local = host in ("127.0.0.1", "localhost", "::1")
    return httpx2.AsyncClient(
        trust_env=not local, timeout=httpx2.Timeout(timeout_s), follow_redirects=False,
        headers=PLAIN, event_hooks={"response": [bound]},
    )  # fmt: skip
