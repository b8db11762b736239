"""Whether all ranks did the same, and what is told when they did not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from it2nb.core.actions import Owed
from it2nb.core.ranks import Ranks
from it2nb.core.serving import Attempt
from it2nb.core.wire import EFFECTIVE
from it2nb.pytorch import rewind, rng
from it2nb.pytorch.everywhere import Streams, Try, unpacked_streams

if TYPE_CHECKING:
    from it2nb.core.session import Session

Answers = Mapping[int, Mapping[str, Any]]


def did(answer: Mapping[str, Any]) -> bool:
    """Whether a rank's answer says that it did what was asked."""
    return answer["status"] == "owed" or answer["status"] in EFFECTIVE


def disagreement(own: Try, answers: Answers) -> str | None:
    """Say on which rank a request went otherwise than it should; None when all did the same."""
    mine = own.told()
    for rank, answer in {0: mine, **answers}.items():
        if not did(answer):
            return f"rank {rank}: {answer['reason'] or answer['status']}"
    for rank, answer in answers.items():
        if answer["after"] != mine["after"]:
            return (
                f"rank {rank} has {answer['after']!r} after it and rank 0 {mine['after']!r}: they "
                f"would part"
            )
        if list(answer["landed"]) != list(mine["landed"]):
            step, branch = answer["landed"]
            return (
                f"rank {rank} came to step {step} in branch {branch} and rank 0 to step "
                f"{own.landed[0]} in branch {own.landed[1]}: they would part"
            )
    return None


def agreed(own: Try, ranks: Ranks, distance: int) -> Attempt | Owed:
    """Make the result of a request that all ranks did; its data tells of the ranks."""
    if isinstance(own.tried, Owed):
        return own.tried
    about = {"size": ranks.size, "check_every": ranks.check_every or distance}
    data = own.tried.data
    if data is None:
        data = {"ranks": about}
    elif isinstance(data, dict):
        data = {**data, "ranks": about}
        if own.extra.get("notes") and isinstance(data.get("notes"), list):
            data["notes"] = [*data["notes"], *own.extra["notes"]]
    return own.tried._replace(data=data)


def refused(own: Try, answers: Answers, wrong: str, notes: list[str]) -> Attempt:
    """Make the result of a request that some rank did not do, after it was taken back."""
    everybody = {0: own.told(), **answers}
    done = [str(rank) for rank, answer in everybody.items() if answer["status"] != "rejected"]
    said = wrong
    if notes:
        said += "; " + "; ".join(notes)
    elif done:
        said += f"; put back on rank {', '.join(done)}"
    alike = all(answer["status"] == "rejected" for answer in everybody.values())
    return Attempt("rejected" if alike else "failed", said)


def can_afford(session: Session) -> bool:
    """Whether rank 0 may take a snapshot before a change that no person asked for."""
    known = rewind.of(session)
    return known is not None and known.past.is_affordable()


@contextmanager
def affording(session: Session, keep: bool) -> Iterator[None]:
    """Let rank 0's decision about a snapshot hold."""
    known = rewind.of(session)
    if known is not None:
        known.past.decided = keep
    try:
        yield
    finally:
        if known is not None:
            known.past.decided = None


@contextmanager
def collected(session: Session, answers: Answers) -> Iterator[None]:
    """Put the random streams of all ranks into what is saved meanwhile."""
    streams = session.bound.stateful.get("ranks")
    if isinstance(streams, Streams) and answers:
        streams.all = {"0": rng.capture()}
        for rank, answer in answers.items():
            if answer.get("streams"):
                streams.all[str(rank)] = unpacked_streams(answer["streams"])
    try:
        yield
    finally:
        if isinstance(streams, Streams):
            streams.all = {}
