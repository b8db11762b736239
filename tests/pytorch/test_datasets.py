"""make_interactive_dataset: attributes are knobs in every process, and the data can be reloaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from it2nb.core.errors import KnobError, Rejected
from it2nb.pytorch.board import ROOM, Board
from it2nb.pytorch.datasets import make_interactive_dataset
from it2nb.session import TrainingSession


class Plain(Dataset[torch.Tensor]):
    """Items that tell what the settings were when they were made."""

    def __init__(self, size: int, base: float = 0.0) -> None:
        self.size = size
        self.noise = base
        self.shares = [0.5, 0.5]
        self.per_source = {"a": 1, "b": 2}
        self.word = "one"

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(self.noise)


class Stream(IterableDataset[torch.Tensor]):
    def __init__(self) -> None:
        self.noise = 0.0

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(40):
            yield torch.tensor(self.noise)


def trained(
    session: TrainingSession, loader: Any, ask: Any, at: int = 5, passes: int = 1
) -> tuple[list[float], Any]:
    """Train, ask once after a step, and collect the mean of every batch."""
    seen: list[float] = []
    handle = None
    with session.run():
        for _ in range(passes):
            for batch in loader:
                seen.append(float(batch.mean()))
                session.step({"noise": seen[-1]})
                if len(seen) == at:
                    handle = ask()
    assert handle is not None
    return seen, handle.result(0)


@pytest.mark.parametrize(
    "options, prefetched",
    [
        ({}, 0),
        ({"num_workers": 2}, 4),
        ({"num_workers": 1, "multiprocessing_context": "spawn"}, 2),
    ],
    ids=["here", "forked", "spawned"],
)
def test_a_setting_reaches_the_items_of_every_process(options: Any, prefetched: int) -> None:
    session = TrainingSession(directory=None)
    made = make_interactive_dataset(Plain)(
        80, interactive_parameter_names=["noise"], session=session
    )
    loader = DataLoader(made, batch_size=4, shuffle=True, **options)
    seen, result = trained(session, loader, lambda: session.set("noise", 1.0))
    first = 6 + prefetched
    assert result.status == "applied"
    assert f"in force from batch {first} of this pass on" in result.reason
    # What was prefetched may have been made by then or not; what comes after it was not.
    assert seen[:6] == [0.0] * 6
    assert seen[first:] == [1.0] * (20 - first)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterable_data_set_follows_too(workers: int) -> None:
    session = TrainingSession(directory=None)
    made = make_interactive_dataset(Stream)(interactive_parameter_names=["noise"], session=session)
    loader = DataLoader(made, batch_size=2, num_workers=workers)
    seen, result = trained(session, loader, lambda: session.set("noise", 1.0))
    assert result.status == "applied"
    assert seen[:6] == [0.0] * 6
    assert seen[10:] == [1.0] * 10


def test_lists_mappings_and_text_are_knobs_of_the_group_dataset() -> None:
    session = TrainingSession(directory=None)
    names = ["noise", "shares", "per_source", "word"]
    made = make_interactive_dataset(Plain)(8, interactive_parameter_names=names, session=session)
    assert list(session.knobs) == [
        "noise", "shares[0]", "shares[1]", "per_source[a]", "per_source[b]", "word",
    ]  # fmt: skip
    assert {knob.group for knob in session.knobs.values()} == {"dataset"}
    with session.run():
        session.pump()
        session.batch({"shares[1]": 0.75, "per_source[a]": 5, "word": "two"})
        session.pump()
    assert (made.shares, made.per_source, made.word) == ([0.5, 0.75], {"a": 5, "b": 2}, "two")


def test_an_instance_becomes_interactive_in_place() -> None:
    session = TrainingSession(directory=None)
    made = Plain(8)
    assert make_interactive_dataset(made, ["noise"], session=session) is made
    assert isinstance(made, Plain)
    assert session.knobs["noise"].value == 0.0
    assert len(made) == 8


def test_reload_makes_it_anew_with_other_arguments_and_keeps_what_was_set() -> None:
    session = TrainingSession(directory=None)
    made = make_interactive_dataset(Plain)(
        40, base=2.0, interactive_parameter_names=["noise"], session=session
    )
    with session.run():
        session.pump()
        asked = session.submit({"type": "set_knob", "payload": {"name": "noise", "value": 3.0}})
        reload = session.do("reload_dataset", size=48, base=9.0)
        session.pump()
    assert asked.result(0).ok
    assert reload.result(0).data["length"] == len(made) == 48
    assert made.noise == 3.0
    assert session.knobs["noise"].value == 3.0


def test_a_reload_takes_effect_where_its_result_says() -> None:
    for options, said in (
        ({}, "from the next batch on"),
        ({"num_workers": 1}, "from the next pass on"),
        ({"num_workers": 1, "persistent_workers": True}, "keep the old data"),
    ):
        session = TrainingSession(directory=None)
        made = make_interactive_dataset(Plain)(40, session=session)
        loader = DataLoader(made, batch_size=4, **options)  # type: ignore[arg-type]
        seen, result = trained(
            session, loader, lambda s=session: s.do("reload_dataset", base=5.0), passes=2
        )
        assert said in result.data["notes"][0]
        first = {"next batch": 6, "next pass": 10, "old data": 20}[
            next(each for each in ("next batch", "next pass", "old data") if each in said)
        ]
        assert seen == [0.0] * first + [5.0] * (20 - first)


def test_a_reload_that_would_break_the_pass_is_rejected_and_nothing_changes() -> None:
    session = TrainingSession(directory=None)
    made = make_interactive_dataset(Plain)(40, session=session)
    loader = DataLoader(made, batch_size=4)
    _, shorter = trained(session, loader, lambda: session.do("reload_dataset", size=4))
    assert shorter.status == "rejected"
    assert "may still ask for any of 40" in shorter.reason
    assert len(made) == 40


@pytest.mark.parametrize(
    "changes, said", [({"sise": 1}, "was not made with these arguments"), ({"size": 9}, "unknown")]
)
def test_a_reload_that_can_not_be_done_says_why(changes: Any, said: str) -> None:
    session = TrainingSession(directory=None)
    if said == "unknown":
        make_interactive_dataset(Plain(8), ["noise"], session=session)
    else:
        make_interactive_dataset(Plain)(8, session=session)
    with session.run():
        session.pump()
        handle = session.do("reload_dataset", **changes)
        session.pump()
    assert handle.result(0).status == "rejected"
    assert said in handle.result(0).reason


@pytest.mark.parametrize(
    "make, error",
    [
        (lambda: make_interactive_dataset(dict), TypeError),
        (lambda: make_interactive_dataset([1]), TypeError),
        (lambda: make_interactive_dataset(Plain(3), ["nothing"]), KnobError),
        (lambda: make_interactive_dataset(Plain(3), "noise"), KnobError),
        (lambda: make_interactive_dataset(Plain)(3, interactive_parameter_names=["__doc__", "x"]),
         KnobError),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_said_when_it_is_made(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


def test_a_board_holds_plain_values_up_to_its_room() -> None:
    board = Board()
    assert board.read() == (0, {})
    board.write({"a": 1.5, "b": "c"})
    assert board.read() == (2, {"a": 1.5, "b": "c"})
    with pytest.raises(Rejected, match="plain values"):
        board.write({"a": object()})
    with pytest.raises(Rejected, match="at most"):
        board.write({"a": "x" * ROOM})
    assert board.read() == (2, {"a": 1.5, "b": "c"})


class Fussy(Dataset[Any]):
    def __init__(self, size: Any, noise: Any = 1.0, shares: Any = (0.5, 0.5), bad: bool = False):
        self.size, self.noise, self.shares, self.bad = size, noise, shares, bad

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> float:
        if self.bad:
            raise ValueError("nothing here")
        return float(self.noise + torch.rand(()))


def fussy() -> tuple[TrainingSession, Any]:
    session = TrainingSession(directory=None)
    names = ["noise", "shares"]
    made = make_interactive_dataset(Fussy)(8, interactive_parameter_names=names, session=session)
    return session, made


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"noise": float("nan")}, "noise: nan is not a number"),
        ({"noise": "text"}, "noise: 'text' is not a number"),
        ({"noise": None}, "noise"),
        ({"noise": [1.0]}, "one value"),
        ({"shares": [0.1, "x"]}, "'x' is not a number"),
        ({"shares": [0.1]}, "elements"),
        ({"shares": 1.0}, "a list"),
        ({"size": "x"}, "tells no length"),
        ({"size": -5}, "tells no length"),
        ({"size": 0}, "no items"),
        ({"bad": True}, "gives no item: ValueError: nothing here"),
    ],
)
def test_a_reload_that_no_knob_takes_or_gives_nothing_is_rejected_and_changes_nothing(
    changes: Any, said: str
) -> None:
    session, made = fussy()
    with session.run():
        session.pump()
        torch.manual_seed(1)
        handle = session.do("reload_dataset", **changes)
        session.pump()
        drawn = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(3))
    result = handle.result(0)
    assert (result.status, said in str(result.reason)) == ("rejected", True), result.reason
    assert (len(made), made.noise, made.shares, made.bad) == (8, 1.0, (0.5, 0.5), False)
    assert session.status == "finished"


@pytest.mark.parametrize("action", ["reload_dataset", "update_dataset"])
def test_a_reload_is_judged_as_its_knobs_are(action: str) -> None:
    session, made = fussy()
    session.policy.lock("shares", against=["agent"]).forbid("rule", "shares[1]")
    session.policy.limit("noise", max_change=2, cooldown=5).require_approval("noise")
    results = []

    def ask(source: str, **changes: Any) -> Any:
        handle = session.submit({"type": action, "payload": changes}, source=source)
        session.pump()
        results.append(handle)
        return handle

    with session.run():
        session.pump()
        assert "locked" in ask("agent", shares=[0.1, 0.9]).result(0).reason
        assert "may not use" in ask("rule", shares=[0.1, 0.9]).result(0).reason
        assert "at most" in ask("rule", noise=9.0).result(0).reason
        assert not ask("agent", noise=2).done()
        assert ask("rule", noise=2).result(0).ok
        assert "cooldown" in ask("rule", noise=3.0).result(0).reason
        assert ask("agent", size=9).result(0).ok
    assert (made.noise, made.shares, len(made)) == (2.0, (0.5, 0.5), 9)
    rows = [e.payload for e in session.journal.tail(100, ("knob_changed",))]
    assert [(r["name"], r["before"], r["value"]) for r in rows] == [("noise", 1.0, 2.0)]
    assert session.policy.spent("rule").changes == 1
