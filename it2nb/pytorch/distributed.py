"""Several ranks (``torchrun``): the same request in force at the same step on every rank.

Rank 0 has the journal, the panel and the server, and decides. At its control points, every so
many of them, the ranks meet: what was asked meanwhile is carried out on all of them, and counts
when all of them did it (`leading.py`, `following.py`, `line.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from it2nb.core.errors import It2nbError
from it2nb.core.ranks import Ranks

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Turns that are rank 0's alone: the others hear what came of them.
_LEADERS_TURNS = ("snapshot", "autosave", "replay", "guard ", "controller ", "schedule of the plan")


def ranks_of(distributed: bool | str | Mapping[str, Any]) -> Ranks | None:
    """Tell which rank this process is; None where it trains alone.

    Parameters
    ----------
    distributed : {"auto", True, False} or mapping
        See `it2nb.TrainingSession`.

    Raises
    ------
    It2nbError
        If several ranks are demanded and no process group was made, or an option is unknown.
    """
    if distributed is False:
        return None
    wanted = distributed is True or isinstance(distributed, Mapping)
    if not wanted and distributed != "auto":
        raise It2nbError(
            f"distributed={distributed!r} has to be 'auto', True, False or a mapping of options "
            f"such as {{'check_every': 10}}"
        )
    options = distributed if isinstance(distributed, Mapping) else {}
    dist = sys.modules["torch"].distributed if "torch" in sys.modules else None
    if dist is None or not dist.is_available() or not dist.is_initialized():
        if wanted:
            raise It2nbError(
                "distributed sessions need a process group: call "
                "torch.distributed.init_process_group(...) before the TrainingSession is made"
            )
        return None
    ranks = Ranks.parse(dist.get_rank(), dist.get_world_size(), options)
    return ranks if ranks.size > 1 else None


def check_in_time(session: Session) -> None:
    """Refuse a session that steers this rank alone without having been asked to.

    Raises
    ------
    It2nbError
        If there is a process group that was not there when the session was made: a request
        would come into force on one rank, and the ranks would part.
    """
    ranks = ranks_of("auto")
    if ranks is not None:
        raise It2nbError(
            f"run {session.run_id} was made before the process group of {ranks.size} ranks, and "
            f"steers this one alone: make the TrainingSession after init_process_group(...) (with "
            f"Hugging Face after the TrainingArguments, with Accelerate after the Accelerator), "
            f"or with distributed=False if it is to steer rank {ranks.rank} alone"
        )


def install(session: Session, ranks: Ranks) -> None:
    """Make a new session one of several. Called by `TrainingSession`."""
    from it2nb.pytorch.everywhere import Streams
    from it2nb.pytorch.following import FollowerGate
    from it2nb.pytorch.leading import LeaderGate
    from it2nb.pytorch.line import connect

    line = connect(ranks.lost_after_s)
    session.bound.stateful["ranks"] = Streams()
    if ranks.leads:
        leader = LeaderGate(session, ranks, line)
        session.gate = leader
        session.turns.replace("snapshot", leader.snapshot_due)
        return
    session.gate = FollowerGate(session, ranks, line)
    session.door._closed = ranks.refusal()
    for name in _LEADERS_TURNS:
        session.turns.replace(name, None)
