"""What a branch that was left had come to is not told as if it were now."""

from __future__ import annotations

import shutil

from it2nb.core.session import Session

from .sessions import made


def latest(session: Session) -> dict[str, tuple[int, float | None]]:
    return {name: (each.step, each.value) for name, each in session.state().metrics.items()}


def steps(session: Session, last: int, every: int = 4) -> None:
    """Train up to a step; evaluate at each `every`-th one."""
    for step in range(session.step_count + 1, last + 1):
        session.step({"loss": step + session.branch_id / 10})
        if step % every == 0:
            session.metrics.record(
                step, {"val_loss": -step - session.branch_id / 10}, 0.0, session.branch_id, 0
            )


def test_the_state_tells_what_the_line_of_branches_had_at_the_step_gone_back_to() -> None:
    _, session = made()
    with session.run():
        steps(session, 9)
        assert latest(session) == {"loss": (9, 9.0), "val_loss": (8, -8.0)}
        session.fork_branch(6, "goto 6")
        assert latest(session) == {"loss": (6, 6.0), "val_loss": (4, -4.0)}
        steps(session, 7)
        assert latest(session) == {"loss": (7, 7.1), "val_loss": (4, -4.0)}
        session.fork_branch(5, "of branch 0", parent=0)
        steps(session, 8)
        assert latest(session) == {"loss": (8, 8.2), "val_loss": (8, -8.2)}
        session.fork_branch(2, "before the first evaluation", parent=0)
        steps(session, 3)
        # It has its place, so that the curve stays in the panel, and no value.
        assert latest(session) == {"loss": (3, 3.3), "val_loss": (3, None)}
        session.resume_branch(2, 8)
        assert latest(session) == {"loss": (8, 8.2), "val_loss": (8, -8.2)}


def test_a_run_that_was_taken_up_has_the_values_of_its_line() -> None:
    _, session = made(run_id="again")
    with session.run():
        steps(session, 9)
        session.journal.seal()
        shutil.copytree("it2runs", "killed")
    again = Session(directory="killed", run_id="again")
    with again.run():
        again.step({"loss": 1.5}, step=7)
        assert latest(again) == {"loss": (7, 1.5), "val_loss": (4, -4.0)}


def test_what_an_earlier_round_came_to_stays_until_this_one_has_its_own() -> None:
    _, session = made()
    with session.run():
        steps(session, 9)
        session.fork_branch(6, "goto 6")
        session.open_round(1)
        session.metrics.record(1, {"loss": 0.5}, 0.0, 0, 1)
        session.fork_branch(1, "goto 1")
        assert latest(session) == {"loss": (1, 0.5), "val_loss": (8, -8.0)}
