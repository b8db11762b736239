"""Secrets in requests reach their handler and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from it2nb.core.redaction import HIDDEN, Secrets, is_secret, redacted
from it2nb.core.session import Session

SECRET = "sk-very-secret-value"


@pytest.mark.parametrize(
    "name", ["api_key", "API-KEY", "openai_api_key", "apikey", "token", "hf_token", "password",
             "db.password", "secret", "client_secret", "Authorization", "credentials"],
)  # fmt: skip
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["lr", "tokens", "max_tokens", "token_count", "key", "name", "secretary", "", 3, None]
)
def test_other_names_are_left_alone(name: Any) -> None:
    assert not is_secret(name)


def test_a_copy_hides_at_any_depth_and_without_secrets_nothing_is_copied() -> None:
    payload = {"model": "m", "api_key": SECRET, "deep": [{"x": {"hf_token": SECRET, "n": 1}}]}
    assert redacted(payload) == {
        "model": "m", "api_key": "***", "deep": [{"x": {"hf_token": "***", "n": 1}}],
    }  # fmt: skip
    assert payload["api_key"] == SECRET
    plain = {"name": "lr", "value": 0.1}
    assert redacted(plain) is plain
    assert redacted({"password": None}) == {"password": None}


def test_a_secret_reaches_its_handler_and_no_row_no_state_no_file(tmp_path: Path) -> None:
    session = Session(directory=tmp_path)
    got: list[str] = []

    @session.action("configure", payload_keys=["api_key"])
    def configure(payload: dict[str, Any], session: Session) -> None:
        got.append(payload["api_key"])

    session.policy.require_approval("configure", sources=("http",))
    session.step()
    for source in ("python", "http"):
        session.submit(
            {"type": "configure", "payload": {"api_key": SECRET}, "id": source}, source=source
        )
        session.step()
    assert SECRET not in session.state().model_dump_json()
    session.approve("http")
    session.step()
    assert got == [SECRET, SECRET]
    session.end()
    assert SECRET not in str(session.journal.frame().to_dict())
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes()


def test_known_secrets_are_hidden_wherever_they_turn_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "from-the-environment")
    monkeypatch.setenv("SOME_WORDS", "no secret at all")
    secrets = Secrets.of_environment(SECRET, None, "short")
    told = secrets.hide(
        {
            "text": f"the key is {SECRET}!",
            SECRET: [f"({SECRET}", "from-the-environment", 7, None],
            "api_key": "anything",
            "words": "no secret at all, short",
        }
    )
    assert told == {
        "text": f"the key is {HIDDEN}!",
        HIDDEN: [f"({HIDDEN}", HIDDEN, 7, None],
        "api_key": HIDDEN,
        "words": "no secret at all, short",
    }
    assert SECRET not in repr(secrets)


def test_a_secret_that_begins_another_one_leaves_no_rest() -> None:
    assert Secrets("12345678", "12345678-rest").hide("12345678-rest") == HIDDEN


def test_a_secret_is_hidden_however_it_is_written() -> None:
    secret = 'sk-"quo\\te/é' + "x" * 9
    hide = Secrets(secret).hide
    once = json.dumps({"key": secret})
    for text in (secret, once, json.dumps(once), repr(secret), f"?key={quote(secret, safe='')}"):
        assert "quo" not in hide(text), text
