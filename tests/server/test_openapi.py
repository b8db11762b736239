"""Schemathesis on the OpenAPI document: whatever it sends, the answer is one that is promised."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from it2nb.core.session import Session
from it2nb.server.limits import Limits
from it2nb.server.server import Server, serve
from tests.core.driving import LIMIT_S

with warnings.catch_warnings():
    # Its own dependencies warn while they are imported.
    warnings.simplefilter("ignore")
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        negative_data_rejection,
        response_schema_conformance,
        status_code_conformance,
    )

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
#: Requests of each kind for each of the thirteen routes.
EXAMPLES = 15


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    session = Session(directory=tmp_path_factory.mktemp("runs"), title="fuzzed")
    values = {"lr": 0.1}
    session.register_knob("lr", lambda: values["lr"], lambda v: values.update(lr=v), min=0, max=1)
    for step in range(20):
        session.step({"loss": 1.0 / (step + 1), "odd": float("nan")})
    # Nobody steps on: a request that waits for something waits for nothing.
    with serve(session, limits=Limits(wait_s=0.01)) as made:
        yield made
    session.end()


@pytest.fixture(scope="module")
def schema(server: Server) -> Any:
    headers = {"authorization": f"Bearer {server.token}"}
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json", headers=headers)


ROUTES = [
    "GET /state",
    "POST /actions",
    "GET /actions/{action_id}",
    "DELETE /actions/{action_id}",
    "POST /actions/{action_id}/approval",
    "GET /events",
    "GET /api/get_info/",
    "GET /api/get_optimizer_info/",
    "GET /api/get_model_info/",
    "GET /api/get_dataset_info/",
    "GET /api/get_checkpoints/",
    "GET /api/get_logs/",
    "POST /api/command/",
]


def spoiled_body(case: Any) -> bool:
    return any(
        str(getattr(place, "value", place)) == "body" and part.mode is GenerationMode.NEGATIVE
        for place, part in case.meta.components.items()
    )


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("route", ROUTES)
def test_every_answer_is_one_that_is_promised(
    server: Server, schema: Any, route: str, mode: GenerationMode
) -> None:
    method, path = route.split()
    operation = schema[path][method]
    cases = operation.as_strategy(generation_mode=mode)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def check(case: Any) -> None:
        headers = {"authorization": f"Bearer {server.token}"}
        answer = case.call(headers=headers, timeout=LIMIT_S)
        # Unknown query parameters and headers are nobody's business; a bad body is ours. One that
        # is too large is refused as well, by a status that the check doesn't know of.
        refused = answer.status_code == 413
        checks = CHECKS if refused or not spoiled_body(case) else [*CHECKS, negative_data_rejection]
        case.validate_response(answer, checks=checks, headers=headers)

    check()


def test_the_document_names_all_routes_and_needs_the_token(schema: Any) -> None:
    document = schema.raw_schema
    found = [
        f"{method.upper()} {path}"
        for path, operations in document["paths"].items()
        for method in operations
    ]
    assert sorted(found) == sorted(ROUTES)
    assert document["security"] == [{"token": []}]
    body = document["paths"]["/actions"]["post"]["requestBody"]["content"]["application/json"]
    assert body["schema"]["$ref"].endswith("/Action")
    for operations in document["paths"].values():
        for operation in operations.values():
            assert {"401", "403", "429"} <= set(operation["responses"])


def test_after_all_that_the_run_still_takes_requests(server: Server) -> None:
    session = server.session
    assert session.status in ("running", "paused")
    assert not [text for text in session.warnings if text.startswith("server")]
