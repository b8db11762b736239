"""Rows in memory reduced to few points by tsdownsample, none that sticks out being lost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tsdownsample import MinMaxDownsampler

Floats = NDArray[np.float64]

_MIN_MAX = MinMaxDownsampler()


def thin(rows: Floats, most: int) -> Floats:
    """Keep the lowest and the highest point of each of ``most // 2`` equal stretches.

    Parameters
    ----------
    rows : array, shape (3, n)
        Step, time, value, in the order in which they were recorded.
    most : int
        About how many points are kept, at least 2; where values are not finite up to half as
        many come on top.

    Returns
    -------
    array, shape (3, m)
        Points as recorded, in their order; of a stretch with non-finite values also the first
        of these.
    """
    if rows.shape[1] <= most:
        return rows
    stretches = max(1, most // 2)
    values = rows[2]
    odd = np.flatnonzero(~np.isfinite(values))
    if len(odd):
        # NaN is passed over, an infinity would be the extreme.
        values = values.copy()
        values[odd] = np.nan
    kept = _MIN_MAX.downsample(np.ascontiguousarray(values), n_out=2 * stretches)
    if len(odd):
        _, first = np.unique(odd * stretches // len(values), return_index=True)
        kept = np.concatenate([kept.astype(np.intp), odd[first]])
    return rows.take(np.unique(kept).astype(np.intp), axis=1)
