"""What a journal can be asked, live or read from its file: events, tables, estimates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from it2nb.core.chain import whole
from it2nb.core.effects import changes_of, effect_columns
from it2nb.core.event_table import event_columns, metric_columns
from it2nb.core.export import write_csv, write_parquet
from it2nb.core.record import Record
from it2nb.core.request_table import request_columns
from it2nb.core.round_table import ROUND_TYPES, round_columns
from it2nb.core.subscription import Subscription
from it2nb.frames import events_frame, frame_of, requests_frame

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from it2nb.core.metrics import MetricStore

#: Rows that tell of a request.
REQUEST_TYPES = ("action_submitted", "approval_requested", "action_result")


class History(Record):
    """The events of one run. Every method may be called on any thread."""

    def __init__(self, metrics: MetricStore, run: str) -> None:
        super().__init__(metrics)
        self.run = run

    # ------------------------------------------------------------- what a subclass fills in

    def _enroll(self, subscription: Subscription) -> None:
        """Tell a subscription from now on when there is more."""

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a subscription; it calls this itself."""

    @property
    def is_closed(self) -> bool:
        """Whether no event can come any more."""
        return True

    # ------------------------------------------------------------------------------- following

    def subscribe(
        self,
        types: Sequence[str] | None = None,
        maxlen: int = 1000,
        *,
        since: int | None = None,
        wake: Callable[[], Any] | None = None,
    ) -> Subscription:
        """Follow the journal from now on, or from the event `since` on. Any thread.

        Returns
        -------
        Subscription
            Close it when it is no longer read.
        """
        start = self.next_seq if since is None else since
        subscription = Subscription(self, types, maxlen, start, wake)
        self._enroll(subscription)
        return subscription

    # ------------------------------------------------------------------------------- in tables

    def frame(self) -> pd.DataFrame:
        """Return all events as a DataFrame; the columns stand in `it2nb.frames`. Any thread."""
        self._refresh()
        head, count = self._extent()
        seqs = np.array(self._seqs[:count], np.int64)
        rows: list[Any] = [None]
        while None in rows:  # again, should the oldest ones be dropped meanwhile
            oldest = self.oldest
            kept = int(np.searchsorted(seqs, oldest))
            rows = [stem and orjson.loads(whole(stem)) for stem in self._stems[kept:count]]
        metrics = metric_columns(self.metrics, oldest - kept, head - count, self._epochs)
        return events_frame(event_columns(seqs[kept:], rows, metrics, oldest, head))

    def requests(self) -> pd.DataFrame:
        """Return all requests with their results as a DataFrame. Any thread.

        A request without a result is `pending`, or `waiting` for approval. One that is about no
        knob has what was asked in `asked` (a note's text, a tag), and what came of any request
        is in `data`: metrics of an evaluation, path and hash of a checkpoint.
        """
        return requests_frame(request_columns(self._rows_of(REQUEST_TYPES)))

    def effects(self, metrics: Sequence[str] | None = None, window: int = 50) -> pd.DataFrame:
        """Estimate what each applied change did to the metrics. Any thread.

        Parameters
        ----------
        metrics : sequence of str, optional
            All by default.
        window : int
            Values before and after the change that are looked at, at most. A window ends
            where the next change begins.

        Returns
        -------
        DataFrame
            See `it2nb.core.effects`: level and slope before and after, the change with its
            95 % interval, and a verdict that is ``"unclear"`` when the interval holds 0.
        """
        changes = changes_of(self._rows_of(("knob_changed",)))
        names = self.metrics.names() if metrics is None else list(metrics)
        return frame_of("effects", effect_columns(self.metrics, changes, names, window))

    def rounds(self) -> pd.DataFrame:
        """Return the rounds as a DataFrame: plan, value of the goal, settings. Any thread."""
        return frame_of("rounds", round_columns(self._rows_of(ROUND_TYPES)))

    def to_csv(self, path: str | Path, table: str = "events") -> Path:
        """Write the events, requests or metrics as CSV. Any thread."""
        return write_csv(self._table(table), path)

    def to_parquet(self, path: str | Path, table: str = "events") -> Path:
        """Write the events, requests or metrics as Parquet; needs pyarrow. Any thread."""
        return write_parquet(self._table(table), path)

    def _table(self, table: str) -> pd.DataFrame:
        makers = {
            "events": self.frame,
            "requests": self.requests,
            "metrics": self.metrics.frame,
            "effects": self.effects,
            "rounds": self.rounds,
        }
        if table not in makers:
            raise ValueError(f"table={table!r} is none of {', '.join(makers)}")
        return makers[table]()
