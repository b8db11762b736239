"""The past of a run: what it can go back to, and the going back itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from it2nb.core.faults import guard
from it2nb.core.readable import size_text
from it2nb.pytorch.change import DRAGGED, GESTURE_S, INERT, Change
from it2nb.pytorch.knob_state import changes, read_knobs, write_knobs
from it2nb.pytorch.plain import Reducer, expand
from it2nb.pytorch.snapshots import Ring, Snapshot, size_of_live
from it2nb.pytorch.state import Live, check, restore

if TYPE_CHECKING:
    from it2nb.core.queue import ActionHandle
    from it2nb.core.session import Session

#: Entries that people make: a snapshot before each. Programs may ask at every step, and their
#: snapshots have to keep within a share of the time.
HUMAN = frozenset({"panel", "magic", "python"})
#: Bytes that a snapshot copies in a second, about: what the first one is reckoned by.
COPIED_PER_S = 2e9

DATA_GOES_ON = (
    "weights, optimizer, schedule and random streams are those of step {step}; the data goes on "
    "where the loop is, since a plain for loop can't be wound back: iterate over "
    "session.loop(loader) to get the same batches again"
)


def place_of(session: Session) -> list[int]:
    """Say where the run is; while a request is served, where that was before it."""
    serving = session.serving
    if serving is not None and serving.served is not None:
        return serving.served
    return session.place()


def live_of(session: Session) -> Live:
    """Name the live objects of a session by the user's names for them. Any thread."""
    bound = session.bound

    def by_name(objects: list[Any], stem: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for each in objects:
            name = wanted = bound.names.get(id(each)) or stem
            number = 0
            while name in found:
                number += 1
                name = f"{wanted}_{number}"
            found[name] = each
        return found

    return Live(
        by_name(bound.models, "model"),
        by_name(bound.optimizers, "optimizer"),
        by_name(bound.schedulers, "scheduler"),
        bound.scaler,
        dict(bound.stateful),
        dict(bound.generators),
    )


class Past:
    """What a session can go back to. Training thread, unless a method says otherwise.

    Parameters
    ----------
    session : Session
    ring : Ring
    max_share : float
        Snapshots that nobody asked for may take this share of the run's time.
    """

    def __init__(self, session: Session, ring: Ring, max_share: float = 0.02) -> None:
        self.session = session
        self.ring = ring
        self.max_share = max_share
        #: On several ranks rank 0 decides whether a snapshot is taken, and all do the same.
        self.decided: bool | None = None
        #: Why no snapshot is kept; None while they are.
        self.reason: str | None = "no snapshot was taken yet"
        self._changes: deque[Change] = deque(maxlen=100)
        self._cost_s = 0.0
        self._taken_t = float("-inf")
        #: What the first one will take, as its size lets expect.
        self._expected_s: float | None = None

    # --- what there is -----------------------------------------------------------------------

    def live(self) -> Live:
        """Name the live objects of the session by the user's names for them. Any thread."""
        return live_of(self.session)

    def last_change(self) -> Change | None:
        """Return the newest change that was not undone. Any thread."""
        for change in reversed(list(self._changes)):
            if change.is_effective:
                return change
        return None

    def lineage(self, branch_id: int) -> Iterator[tuple[int, float]]:
        """List a branch and its ancestors, each with the last step that belongs to the line."""
        branches = {each.id: each for each in self.session.branches}
        limit = float("inf")
        branch = branches.get(branch_id)
        while branch is not None:
            yield branch.id, limit
            limit = min(limit, branch.step)
            branch = branches.get(branch.parent) if branch.parent is not None else None

    def nearest(self, step: int, branch_id: int) -> Snapshot | None:
        """Find the snapshot at `step` of this line of branches, or the nearest before it."""
        limits = dict(self.lineage(branch_id))
        fitting = [
            each
            for each in self.ring
            if each.step <= min(step, limits.get(each.branch_id, -1))
            and each.round == self.session.round
        ]
        # Of two at one step the older one: the newer was taken after a change at that step.
        return max(fitting, key=lambda each: each.step, default=None)

    def before(self, change: Change) -> Snapshot | None:
        """Find the snapshot from before a change, or the nearest one before that."""
        if change.snapshot in self.ring:
            return change.snapshot
        return self.nearest(change.step, change.branch_id)

    def last_good(self) -> Snapshot | None:
        """Find the newest earlier snapshot of this line whose weights are all finite."""
        limits = dict(self.lineage(self.session.branch_id))
        now = self.session.step_count
        for each in sorted(self.ring, key=lambda one: -one.step):
            if each.step <= min(now - 1, limits.get(each.branch_id, -1)) and each.is_finite():
                return each
        return None

    # --- taking --------------------------------------------------------------------------------

    def take(self, why: str, *, is_change: bool = False) -> Snapshot | None:
        """Take a snapshot now and keep it; None where that is not possible (`reason` says why)."""
        session, live = self.session, self.live()
        if not live:
            self.reason = "no model was found or bound: only knobs can be put back"
            return None
        needed = size_of_live(live)
        if needed > self.ring.max_bytes:
            self.reason = (
                f"one snapshot takes {size_text(needed)} and the bound for all of them is "
                f"{size_text(self.ring.max_bytes)}; raise it with snapshots={{'max_bytes': ...}}"
            )
            return None
        began = session.clock.monotonic()
        snapshot = Snapshot(
            session.step_count,
            session.branch_id,
            session.round,
            self.ring.take(live),
            read_knobs(session),
            self.users_own(Reducer(portable=False, clone=True)),
            why,
            session.t,
            is_change,
            place_of(session),
        )
        gone = self.ring.add(snapshot)
        for change in self._changes:
            if any(change.snapshot is each for each in gone):
                change.snapshot = None  # its tensors are what the bound is about
        self._cost_s = session.clock.monotonic() - began
        self._taken_t = session.t
        self.reason = None
        return snapshot

    def users_own(self, reduce: Reducer) -> list[Any]:
        """Collect what the user's ``on_save`` functions give, as plain trees."""
        own = self.session.bound.on_save
        return [reduce(save(), f"what on_save function {i} returned") for i, save in enumerate(own)]

    def is_affordable(self, *, in_passing: bool = False) -> bool:
        """Whether another snapshot keeps within the share of time that they may take.

        The first one before a change always does; in passing it waits until the run has lasted
        long enough for it.
        """
        if self.decided is not None:
            return self.decided
        if in_passing and self._taken_t == float("-inf"):
            if self._expected_s is None:
                self._expected_s = size_of_live(self.live()) / COPIED_PER_S
            return self.session.elapsed_s * self.max_share >= self._expected_s
        return (self.session.t - self._taken_t) * self.max_share >= self._cost_s

    def take_in_passing(self, session: Session) -> None:
        """Take a snapshot that nobody asked for, if there is anything to take and time for it."""
        bound = session.bound
        # At step 0 the first step may be under way, its gradients made: nothing to go back to.
        is_step = session.step_count > 0
        if is_step and (bound.models or bound.optimizers) and self.is_affordable(in_passing=True):
            self.take(f"step {session.step_count}")

    def before_change(self, handle: ActionHandle) -> None:
        """Keep what is there before a request is carried out, so that it can be undone."""
        action, t = handle.action, self.session.t
        if action.type in INERT:
            return
        name = action.payload.get("name")
        what = f"{action.type} {name}" if isinstance(name, str) else action.type
        while self._changes and self._changes[-1].is_void:
            self._changes.pop()
        last = self._changes[-1] if self._changes else None
        if (
            last is not None
            and action.type == "set_knob"
            and last.what == what
            and last.handle.source == handle.source in DRAGGED
            and last.branch_id == self.session.branch_id
            and t - last.t < GESTURE_S
        ):
            last.joined_by(handle, t)
            return
        snapshot = None
        if handle.source in HUMAN or self.is_affordable():
            with guard("snapshot", self.session.report):
                snapshot = self.take(f"before {what}", is_change=True)
        self._changes.append(
            Change(
                what,
                handle,
                self.session.step_count,
                self.session.branch_id,
                read_knobs(self.session),
                snapshot,
                t,
                place_of(self.session),
            )
        )

    def put_back(self, handle: ActionHandle) -> bool:
        """Restore what was kept before the request under way; False where nothing was."""
        change = self._changes[-1] if self._changes else None
        if change is None or change.handle is not handle or change.snapshot is None:
            return False
        restore(self.live(), change.snapshot.tree, clone=True)
        self._give_back(change.snapshot.extra, True)
        return True

    def forget(self, change: Change) -> None:
        """It was undone."""
        with guard("forgetting a change"):
            self._changes.remove(change)

    def clear(self, reason: str = "the run is over") -> None:
        """Let go of every snapshot and change."""
        self.ring.clear()
        self._changes.clear()
        self.reason = reason

    # --- going back ----------------------------------------------------------------------------

    def go_back(
        self,
        tree: Mapping[str, Any],
        knobs: Mapping[str, Any],
        extra: Any,
        *,
        to: Mapping[str, Any],
        reason: str,
        keep_knobs: bool = False,
        clone: bool = True,
    ) -> dict[str, Any]:
        """Restore a tree in place, fork a branch, and say in a row what changed.

        Parameters
        ----------
        tree, knobs, extra
            What was kept.
        to : mapping
            ``step``, ``branch_id`` and where it comes from (``path``): part of the row.
        reason : str
            Of the branch.
        keep_knobs : bool
            The live values stay.
        clone : bool
            The tree is used again.

        Returns
        -------
        dict
            ``step, branch_id, parent, from_step, from_branch, knobs, notes``: the result's data
            and the payload of ``checkpoint_loaded``.

        Raises
        ------
        Rejected
            If the tree does not fit; nothing was touched.
        RuntimeError
            If the restore broke in the middle; it says whether all was put back.
        """
        session, live = self.session, self.live()
        check(live, tree)
        before = read_knobs(session)
        came_from = {"from_step": session.step_count, "from_branch": session.branch_id}
        notes = self._restore(live, tree, extra, clone)
        notes += write_knobs(session, before if keep_knobs else knobs)
        changed = changes(before, read_knobs(session))
        branch = session.fork_branch(int(to["step"]), reason, to.get("branch_id"))
        if self.replays:
            caveats = [getattr(each, "caveat", None) for each in live.stateful.values()]
            notes += [each for each in caveats if each]
        else:
            notes.append((session.bound.goes_on or DATA_GOES_ON).format(step=to["step"]))
            notes += self._fewer_steps(came_from["from_step"] - session.step_count)
        told = {
            **to,
            "branch_id": branch.id,
            "parent": branch.parent,
            **came_from,
            "knobs": changed,
            "keep_knobs": keep_knobs,
            "notes": notes,
        }
        self.write_changed(changed, [("checkpoint_loaded", told)])
        return told

    def _fewer_steps(self, lost: int) -> list[str]:
        total = self.session.total_steps
        if self.session.bound.goes_on or not self.session.total_falls or total is None or lost < 1:
            return []
        return [f"the loop has no turns for these {lost:,} steps: about {total - lost:,} in all"]

    @property
    def replays(self) -> bool:
        """Whether the data goes back too: the loop is ours, or a step function makes its own."""
        bound = self.session.bound
        if bound.step_fn is not None:
            return True
        return any(getattr(each, "replays", False) for each in bound.stateful.values())

    def write_changed(
        self, changed: Mapping[str, Mapping[str, Any]], rows: list[tuple[str, dict[str, Any]]]
    ) -> None:
        """Write `rows`, then one ``knob_changed`` for each knob that has another value now."""
        for name in changed:
            # The last request for it is no longer what is in force.
            self.session.knobs[name].last = None
        serving = self.session.serving
        rows += [
            ("knob_changed", {"name": name, "value": each["after"], "before": each["before"]})
            for name, each in changed.items()
        ]
        self.session.write_rows(
            rows,
            source=serving.source if serving else None,
            action_id=serving.id if serving else None,
        )

    def _restore(self, live: Live, tree: Mapping[str, Any], extra: Any, clone: bool) -> list[str]:
        notes: list[str] = []
        with guard("restore") as fault:
            notes = restore(live, tree, clone=clone)
            notes += self._give_back(extra, clone)
        if not fault:
            return notes
        # The change that is under way kept what was before it.
        kept = self._changes[-1].snapshot if self._changes else None
        said = "the run may hold parts of both states now: load a checkpoint or stop"
        if kept is not None and kept.step == self.session.step_count:
            with guard("putting back") as second:
                restore(live, kept.tree, clone=True)
                self._give_back(kept.extra, True)
            said = f"putting it back failed too: {second.error}" if second else "all was put back"
        raise RuntimeError(f"{fault.error}; {said}")

    def _give_back(self, extra: Any, clone: bool) -> list[str]:
        own = self.session.bound.on_load
        kept = list(extra or [])
        for index, (load, data) in enumerate(zip(own, kept, strict=False)):
            load(expand(data, where=f"what on_save function {index} returned", clone=clone))
        if len(own) == len(kept):
            return []
        return [f"{len(kept)} on_save functions gave data and {len(own)} on_load functions take it"]
