"""The way to a model, against a real HTTP server."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from it2nb.controllers import provider
from it2nb.controllers.body import MAX_BODY
from it2nb.controllers.own_loop import OwnLoop
from it2nb.controllers.provider import Provider, Tool
from it2nb.controllers.reading import wishes
from it2nb.controllers.tools import Toolbox
from it2nb.core.errors import AgentError, It2nbError
from it2nb.core.wire import ActionSchema
from tests.controllers.endpoint import Drops, Endpoint, Fails, Hangs, Raw, Says

KEY = "sk-secret-12345"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
TOOL = Tool("set_knob", "set a knob", SCHEMA)
SLOW = Fails(429, headers={"retry-after": "0"})


@pytest.fixture(autouse=True)
def no_keys_no_waits(monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "IT2NB_LLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(provider, "BACKOFF_S", 0.001)


@pytest.fixture
def ask():
    """Ask an endpoint one question; everything is closed afterwards."""
    made: list[Provider] = []

    def ask(endpoint, **options):
        options = {"api_key": KEY, "timeout_s": 20.0, "retries": 2, **options}
        vendor = options.pop("vendor", "")
        url = endpoint.root if vendor == "anthropic:" else endpoint.url
        one = Provider(f"{vendor}tiny", url, **options)
        made.append(one)
        return one.ask("rules", "the run", [TOOL], 77)

    yield ask
    for each in made:
        each.close()


def test_one_question_in_the_chat_completions_protocol(ask):
    with Endpoint(Says("so", [("set_knob", {"name": "lr"})], (11, 5))) as endpoint:
        answer = ask(endpoint)
    assert (answer.text, answer.counted, answer.tries) == ("so", (11, 5), 1)
    assert [(each.name, each.args) for each in answer.calls] == [("set_knob", '{"name": "lr"}')]
    (asked,) = endpoint.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert [each["content"] for each in asked.body["messages"]] == ["rules", "the run"]
    assert asked.tools == ["set_knob"]
    assert asked.body["max_completion_tokens"] == 77


def test_one_question_in_the_messages_protocol(ask):
    with Endpoint(Says("so", [("set_knob", {"name": "lr"})], (11, 5))) as endpoint:
        answer = ask(endpoint, vendor="anthropic:")
    assert (answer.text, answer.counted) == ("so", (11, 5))
    assert [(each.name, each.args) for each in answer.calls] == [("set_knob", {"name": "lr"})]
    (asked,) = endpoint.asked
    assert asked.path == "/v1/messages"
    assert KEY in str(asked.headers.values())
    assert asked.tools == ["set_knob"]


@pytest.mark.parametrize(
    "trouble",
    [SLOW, Fails(500), Fails(503), Raw("no json"), Raw("{}"), Drops()],
)
def test_trouble_that_may_pass_is_tried_again(ask, trouble):
    with Endpoint(trouble, trouble, Says("so")) as endpoint:
        answer = ask(endpoint)
    assert (answer.text, answer.tries) == ("so", 3)


def test_after_the_last_try_the_reason_is_told(ask):
    with (
        Endpoint(Fails(500, "kaputt")) as endpoint,
        pytest.raises(AgentError, match=r"kaputt.*tried 3"),
    ):
        ask(endpoint)
    assert len(endpoint.asked) == 3


@pytest.mark.parametrize(
    ("status", "hopeless"), [(400, False), (401, True), (403, True), (404, True)]
)
def test_a_refusal_is_not_tried_again(ask, status, hopeless):
    with (
        Endpoint(Fails(status, f"not with {KEY}")) as endpoint,
        pytest.raises(AgentError) as caught,
    ):
        ask(endpoint)
    assert len(endpoint.asked) == 1
    assert caught.value.hopeless is hopeless
    assert KEY not in str(caught.value)
    assert not caught.value.maybe_billed


def test_an_endpoint_that_hangs_is_given_up(ask):
    with Endpoint(Hangs(threading.Event())) as endpoint, pytest.raises(AgentError) as caught:
        ask(endpoint, timeout_s=0.2, retries=1)
    assert "no answer within 0.2 s (tried 2 times)" in str(caught.value)
    assert caught.value.maybe_billed


@pytest.mark.parametrize(
    "answer",
    [{"choices": "none"}, {"choices": ["x"]}, {"choices": [{"message": 3}]}, {"choices": {"a": 1}},
     {"choices": 5}],
    ids=str,
)  # fmt: skip
def test_an_answer_of_a_shape_that_the_library_trips_over_is_no_other_error(ask, answer):
    told = {"id": "1", "object": "chat.completion", "created": 1, "model": KEY, **answer}
    with Endpoint(Raw(json.dumps(told))) as endpoint, pytest.raises(AgentError) as caught:
        ask(endpoint, retries=1)
    assert caught.value.maybe_billed and caught.value.lost_tries == 2
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "part",
    [{"type": "text", "text": None}, {"type": "text", "text": 3},
     {"type": "tool_use", "id": "1", "name": None, "input": 5},
     {"type": "tool_use", "id": 7, "name": "set_knob", "input": [1]}],
    ids=str,
)  # fmt: skip
def test_parts_that_are_no_text_and_no_object_are_no_other_error(ask, part):
    told = {
        "id": "1", "type": "message", "role": "assistant", "model": "m", "content": [part],
        "stop_reason": "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip
    box = Toolbox([ActionSchema(name="set_knob")], [])
    with Endpoint(Raw(json.dumps(told))) as endpoint:
        try:
            answer = ask(endpoint, vendor="anthropic:", retries=0)
        except AgentError:
            return
    assert isinstance(answer.text, str)
    assert all(each.wrong for each in wishes(answer.text, answer.calls, box))


def test_a_flood_is_cut_off_and_not_asked_for_again(ask):
    flood = Says("x" * (MAX_BODY + 1))
    with Endpoint(flood) as endpoint, pytest.raises(AgentError) as caught:
        ask(endpoint)
    assert "longer than 2,000,000 bytes" in str(caught.value)
    assert caught.value.lost_tries == len(endpoint.asked) == 1


def test_a_compressed_answer_is_not_unpacked(ask):
    def bomb(body):
        return Fails(200, "small", {"content-encoding": "gzip"})

    with Endpoint(bomb) as endpoint, pytest.raises(AgentError, match="compressed"):
        ask(endpoint)
    assert endpoint.asked[0].headers["accept-encoding"] == "identity"


def test_tries_that_were_lost_are_told(ask):
    lost = Raw("no json")
    with Endpoint(lost, lost, Says("so")) as endpoint:
        assert ask(endpoint).lost_tries == 2
    with Endpoint(Fails(500), Says("so")) as endpoint:
        assert ask(endpoint).lost_tries == 0


def test_nobody_there_is_told(ask):
    with Endpoint() as endpoint:
        pass
    with pytest.raises(AgentError, match="Connection"):
        ask(endpoint, retries=0)


def test_closing_gives_up_what_is_asked():
    with Endpoint(Hangs(threading.Event())) as endpoint:
        one = Provider("tiny", endpoint.url, KEY, timeout_s=60)
        caught: list[str] = []

        def ask() -> None:
            with pytest.raises(AgentError) as error:
                one.ask("", "", [], 1)
            caught.append(str(error.value))

        thread = threading.Thread(target=ask)
        thread.start()
        assert endpoint.called.wait(20)
        one.close()
        thread.join(20)
        assert "closed" in caught[0]
        endpoint.script = [Says("again")]
        assert one.ask("", "", [], 1).text == "again"
        one.close()


def test_it_works_inside_of_a_running_event_loop(ask):
    async def cell() -> str:
        return ask(endpoint).text

    with Endpoint(Says("so")) as endpoint:
        assert asyncio.run(cell()) == "so"


def test_a_vendors_key_goes_to_the_vendor_alone(monkeypatch, ask):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-vendors-own-key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-vendors-own-key")
    with Endpoint(Says("so")) as endpoint:
        ask(endpoint, api_key=None)
        ask(endpoint, api_key=None, vendor="anthropic:")
        monkeypatch.setenv("IT2NB_LLM_API_KEY", "sk-for-this-endpoint")
        ask(endpoint, api_key=None)
    assert "vendors-own" not in str([each.headers for each in endpoint.asked])
    assert endpoint.asked[-1].headers["authorization"] == "Bearer sk-for-this-endpoint"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "gpt"}, "does not say where it is"),
        ({"model": "openai:gpt"}, "IT2NB_LLM_API_KEY"),
        ({"model": "anthropic:claude"}, "needs a key"),
        ({"model": "nobody:knows"}, "can't be used"),
        ({"model": "gpt", "base_url": "file:///etc/passwd"}, "http"),
        ({"model": "gpt", "base_url": "http://x/v1", "timeout_s": 0}, "timeout_s"),
        ({"model": "gpt", "base_url": "http://x/v1", "retries": -1}, "retries"),
    ],
)
def test_what_cannot_be_asked_is_said_at_once(options, said):
    with pytest.raises(It2nbError, match=said):
        Provider(**options)


def test_a_model_object_is_taken_as_it_is():
    from pydantic_ai.models.test import TestModel

    one = Provider(TestModel(call_tools=[], custom_output_text="so"))
    assert one.ask("rules", "run", [], 10).text == "so"
    one.close()
    with pytest.raises(It2nbError, match="model's name"):
        Provider(TestModel(), "http://x/v1")


def test_names_with_colons_stay_whole_at_an_endpoint():
    with Endpoint(Says("so")) as endpoint:
        one = Provider("qwen3:8b", endpoint.url)
        one.ask("", "run", [], 10)
        one.close()
    assert endpoint.asked[0].body["model"] == "qwen3:8b"


def test_own_loop_serves_many_threads_and_ends_twice():
    loop = OwnLoop("test")
    found: list[int] = []

    async def work(n: int) -> int:
        await asyncio.sleep(0)
        return n

    threads = [
        threading.Thread(target=lambda n=n: found.append(loop.run(lambda: work(n))))
        for n in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    loop.close()
    loop.close()
    assert sorted(found) == list(range(8))
