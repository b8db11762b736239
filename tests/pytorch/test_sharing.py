"""One tensor in several parameter groups, as PyTorch makes them from a default."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as lrs

from it2nb.pytorch.optimizers import add_optimizer_knobs, steering_of
from tests.pytorch.schedules import OwnSchedule
from tests.pytorch.steering import parameters, record, rows, run, statuses, train


def _adam(lr: torch.Tensor) -> torch.optim.Adam:
    groups = [{"params": parameters()} for _ in range(2)]
    optimizer = torch.optim.Adam(groups, lr=lr, foreach=False)
    assert optimizer.param_groups[0]["lr"] is optimizer.param_groups[1]["lr"]
    return optimizer


def test_C18_a_group_is_set_alone_where_all_of_them_hold_one_tensor() -> None:
    lr = torch.tensor(0.1, dtype=torch.float64)
    optimizer = _adam(lr)
    used = record(optimizer, at=None)
    with run() as (session, _):
        train(optimizer, 4, None, {2: {"name": "lr[1]", "value": 0.002}}, session=session)
        notes = [row["text"] for row in rows(session, "note")]
    assert used == [[0.1, 0.1], [0.1, 0.1], [0.1, 0.002], [0.1, 0.002]]
    assert optimizer.param_groups[0]["lr"] is lr
    assert any("each has its own now" in text for text in notes)


@pytest.mark.parametrize("mode", ["rescale", "hold", "release"])
@pytest.mark.parametrize(
    "make",
    [
        lambda o: lrs.CosineAnnealingLR(o, 20, 0.003),
        lambda o: lrs.ReduceLROnPlateau(o, factor=0.5, patience=1),
        # Nobody knows its arithmetic: what it writes is multiplied during each step.
        OwnSchedule,
    ],
    ids=["cosine", "plateau", "unknown"],
)
def test_C01_groups_that_share_a_tensor_obey_the_mode_and_go_on_sharing_it(
    make: Any, mode: str
) -> None:
    """Whoever holds the tensor, a compiled step for one, goes on to see it (C41)."""

    def used_with(edits: dict[int, Any]) -> list[list[float]]:
        lr = torch.tensor(0.1, dtype=torch.float64)
        optimizer = _adam(lr)
        scheduler = make(optimizer)
        used = record(optimizer, at=None)
        with run([scheduler]) as (session, _):
            train(optimizer, 12, scheduler, edits, session=session)
        assert all(group["lr"] is lr for group in optimizer.param_groups)
        return used

    plain = used_with({})
    used = used_with({5: {"name": "lr", "value": 0.013, "mode": mode}})
    factor = 0.013 / plain[5][0]
    rest: dict[str, list[float]] = {
        "hold": [0.013] * 6,
        "release": [each for each, _ in plain[6:]],
        "rescale": [each * factor for each, _ in plain[6:]],
    }
    for group in (0, 1):
        assert [each[group] for each in used[:5]] == [each[group] for each in plain[:5]]
        assert [each[group] for each in used[5:]] == pytest.approx([0.013, *rest[mode]])


def test_C42_one_group_of_a_captured_graph_that_shares_a_tensor_is_rejected() -> None:
    optimizer = _adam(torch.tensor(0.1))
    with run() as (session, _):
        add_optimizer_knobs(session, optimizer)
        train(optimizer, 1, session=session)
        steering_of(session).optimizers[0].captured()
        edits = {1: [{"name": "lr[1]", "value": 0.02}, {"name": "lr", "value": 0.05}]}
        train(optimizer, 1, None, edits, session=session)
        assert statuses(session) == ["rejected", "applied"]
    assert [group["lr"].item() for group in optimizer.param_groups] == pytest.approx([0.05, 0.05])
