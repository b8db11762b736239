"""One training, in which the steering is switched off for every other update.

Two trainings differ by more than one per cent before anything is steered, by where their weights
lie in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

import torch.optim.optimizer as home

from it2nb.integrations.steered_run import SNAPSHOT_SHARE
from it2nb.pytorch.past import Past
from it2nb.pytorch.schedulers import unwrapped
from it2nb.pytorch.switchboard import switchboard
from scripts.bench.measured import Measured, middle, of_the_median

#: Updates that are steered and not looked at, before the first one that counts.
WARM_UP = 8
#: Steps from one snapshot in passing to the next: half of the default, since half of the updates
#: are none of the session's. By time they come as often as where all are steered.
SNAPSHOTS_EVERY = 25
#: Snapshots under a trainer, with the share of time that it sets.
IN_PASSING = {"every": SNAPSHOTS_EVERY, "max_share": SNAPSHOT_SHARE}


class Switch:
    """Times the updates of a training thread, with the steering and without it, in turn.

    Off are the control point and all hooks of the optimizer; what else is taken away a trainer
    says with `sides`.

    Parameters
    ----------
    optimizer : Optimizer
        Its own hooks and those of all are it2nb's here.
    timed : iterable of (object, names of its methods)
        Where it2nb is entered, beside the hooks.
    sides : callable, optional
        Called with whether it goes on or off.
    clock : callable
        Seconds, for what is spent inside of it2nb.

    Attributes
    ----------
    steered, plain : list of (float, float)
        Seconds of each stretch: processor time of the training thread, and by the wall clock.
    inside : list of float
        Seconds inside of it2nb in each steered stretch; timing them takes some more.
    """

    def __init__(
        self,
        optimizer: Any,
        timed: Iterable[tuple[Any, Iterable[str]]] = (),
        sides: Callable[[bool], object] = lambda on: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.steered: list[tuple[float, float]] = []
        self.plain: list[tuple[float, float]] = []
        self.inside: list[float] = []
        #: Seconds of this stretch that are counted elsewhere.
        self.aside_s = 0.0
        self._inside_s = 0.0
        self._sides = sides
        self._clock = clock
        self._off: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self._began: tuple[float, float] | None = None
        own = unwrapped(optimizer, "optimizer")._optimizer_step_pre_hooks
        self._hooks = (home._global_optimizer_pre_hooks, home._global_optimizer_post_hooks, own)
        for owner, names in ((switchboard(), ("before", "after")), *timed):
            for name in names:
                setattr(owner, name, self._timed(getattr(owner, name)))
        for key, hook in own.items():
            own[key] = self._timed(hook)

    def turn(self, on: bool) -> None:
        """End a stretch and begin the next one, steered or not."""
        self._stop()
        self._switch(on)
        self.aside_s = self._inside_s = 0.0
        self._began = time.thread_time(), time.perf_counter()

    def end(self) -> None:
        """The last stretch is over."""
        self._stop()
        self._switch(True)
        self._began = None

    def _stop(self) -> None:
        cpu, wall = time.thread_time(), time.perf_counter()
        if self._began is not None:
            spent = cpu - self._began[0] - self.aside_s, wall - self._began[1] - self.aside_s
            (self.plain if self._off else self.steered).append(spent)
            if not self._off:
                self.inside.append(self._inside_s - self.aside_s)

    def _switch(self, on: bool) -> None:
        if on == (not self._off):
            return
        self._sides(on)
        if on:
            for hooks, kept in self._off:
                hooks.update(kept)
            self._off = []
            return
        for hooks in self._hooks:
            self._off.append((hooks, dict(hooks)))
            hooks.clear()

    def _timed(self, call: Any) -> Any:
        def in_time(*args: Any, **kwargs: Any) -> Any:
            began = self._clock()
            found = call(*args, **kwargs)
            self._inside_s += self._clock() - began
            return found

        return in_time


class Snapshots:
    """Times the snapshots that nobody asked for: few are taken, whose mean is what counts."""

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self.switch: Switch | None = None
        self._take = Past.take

    def __enter__(self) -> Snapshots:
        def take(past: Past, *args: Any, **kwargs: Any) -> Any:
            began = time.thread_time()
            kept = self._take(past, *args, **kwargs)
            spent = time.thread_time() - began
            if self.switch is not None:
                self.switch.aside_s += spent
            self.cpu.append(spent)
            return kept

        Past.take = take  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *args: object) -> None:
        Past.take = self._take  # type: ignore[method-assign]


def told(
    what: str,
    switch: Switch,
    snapshots: Snapshots,
    goal: float | None,
    warm_up: int = WARM_UP,
    updates: int = 1,
    aside: str = "without snapshots",
) -> list[Measured]:
    """Compare the stretches, pair by pair: how much longer steered ones take, and why.

    Parameters
    ----------
    warm_up : int
        So many steered stretches at the beginning are left out.
    updates : int
        Of a stretch.
    aside : str
        What is not in `Switch.inside`.
    """
    ours, theirs = switch.steered[warm_up:], switch.plain
    pairs = list(zip(ours, theirs, strict=False))
    base = median(bare[0] for bare in theirs)
    share = 100 * sum(snapshots.cpu) / sum(each[0] for each in switch.steered + theirs)
    more = of_the_median([mine[0] - bare[0] for mine, bare in pairs])
    value, low, high = (100 * each / base + share for each in more)
    longer = of_the_median([mine[1] - bare[1] for mine, bare in pairs])
    wall, fast, slow = (100 * each / median(bare[1] for bare in theirs) + share for each in longer)
    inside, first, last = middle([each / updates * 1e6 for each in switch.inside[warm_up:]])
    what = f"{what}, {base / updates * 1e3:.3g} ms an update"
    every = "every other update" if updates == 1 else f"every other {updates} updates"
    return [
        Measured(
            f"{what}: slow-down", value, "%", goal, low, high,
            note=f"{every} steered, {len(pairs)} pairs, processor time, interval of the median; by "
            f"the wall clock {wall:.2g} % ({fast:.2g} to {slow:.2g}); of it snapshots in passing "
            f"{share:.2g} %",
        ),
        Measured(
            f"{what}: spent inside of it2nb in one", inside, "us", None, first, last,
            note=f"{aside}; {inside * updates / base / 1e4:.2g} % of the update",
        ),
    ]  # fmt: skip
