"""What a form of ``load_checkpoint`` can offer: the checkpoints that there are, as they come."""

from __future__ import annotations

import os
from pathlib import Path

from it2nb.core.session import Session
from it2nb.core.wire import ActionSchema, Offer
from it2nb.panel.feed import Feed

from .rewinding import Run


def schema(session: Session) -> ActionSchema:
    return next(each for each in session.state().actions if each.name == "load_checkpoint")


def offers(session: Session) -> list[Offer]:
    return schema(session).offers.get("path", [])


def test_saved_checkpoints_are_offered_newest_first_as_they_come_and_go(tmp_path: Path) -> None:
    run = Run(directory=tmp_path)
    run.steps(3)
    assert offers(run.session) == []
    saved = [Path(run.ask("save_checkpoint", tag="best").data["path"])]
    assert [each.value for each in offers(run.session)] == ["step-000003-best.pt"]
    assert offers(run.session)[0].label.startswith("step 3, best, ")
    assert offers(run.session)[0].label.endswith(" kB")
    run.steps(2)
    saved.append(Path(run.ask("save_checkpoint").data["path"]))
    assert [each.value for each in offers(run.session)] == ["step-000005.pt", "step-000003-best.pt"]
    # Somebody tidies up.
    os.unlink(saved[0])
    assert [each.value for each in offers(run.session)] == ["step-000005.pt"]


def test_what_is_offered_can_be_loaded(tmp_path: Path) -> None:
    run = Run(directory=tmp_path)
    run.steps(3)
    run.ask("save_checkpoint", tag="best")
    run.steps(2)
    (offer,) = offers(run.session)
    result = run.ask("load_checkpoint", path=offer.value)
    assert result.ok and result.data["step"] == 3


def test_a_loop_that_saves_itself_offers_what_it_told() -> None:
    session = Session(directory=None)
    with session.run():
        session.step()
        session.checkpoint_saved("out/a.pt", tag="first")
        session.step()
        session.checkpoint_saved("out/b.pt")
        told = offers(session)
    assert [(each.value, each.label) for each in told] == [
        ("out/b.pt", "step 2, b.pt"),
        ("out/a.pt", "step 1, first, a.pt"),
    ]


def test_only_so_many_are_offered() -> None:
    session = Session(directory=None)
    with session.run():
        for step in range(60):
            session.checkpoint_saved(f"{step}.pt", step=step)
        told = offers(session)
    assert len(told) == 30 and told[0].value == "59.pt"


def test_pages_hear_of_a_new_checkpoint_with_the_next_batch(tmp_path: Path) -> None:
    run = Run(directory=tmp_path)
    run.steps(3)
    feed = Feed(run.session, "session", None)
    feed.batch()
    run.ask("save_checkpoint", tag="best")
    sent = feed.batch()
    assert sent is not None
    (told,) = (each for each in sent[0].actions if each.name == "load_checkpoint")
    assert [each.value for each in told.offers["path"]] == ["step-000003-best.pt"]


def test_the_further_name_of_an_argument_is_in_the_schema(tmp_path: Path) -> None:
    run = Run(directory=tmp_path)
    for told in (schema(run.session), schema(Session(directory=None))):
        properties = told.args["properties"]
        assert list(properties) == ["path", "tag", "keep_knobs"]
        assert "path" in properties["tag"]["description"]
        assert told.also == {"tag": "path"}
        # Either of them will do.
        assert "path" not in told.args.get("required", [])
        assert list(told.as_tool()["function"]["parameters"]["properties"]) == list(properties)
    run.steps(3)
    run.ask("save_checkpoint", tag="best")
    assert run.ask("load_checkpoint", tag="best").data["step"] == 3
