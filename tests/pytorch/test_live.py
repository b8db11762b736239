"""Live variables: numbers that are knobs."""

from __future__ import annotations

import copy
import gc
import math
import numbers
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler as lrs

from it2nb.core.errors import KnobError, KnobRangeError
from it2nb.core.session import Session
from it2nb.pytorch.hooks import attach
from it2nb.pytorch.live import live
from tests.pytorch.steering import gradients, parameters, record, rows, statuses


def ask(session: Session, name: str, value: Any) -> None:
    session.submit({"type": "set_knob", "payload": {"name": name, "value": value}})
    session.pump()


def test_a_live_number_behaves_as_its_value() -> None:
    clip = live(0.25, "clip")
    assert clip + 1 == 1.25 and 1 + clip == 1.25 and 1 - clip == 0.75 and clip - 1 == -0.75
    assert clip * 4 == 1 and 1 / clip == 4 and clip / 2 == 0.125 and clip**2 == 0.0625
    assert 2**clip == 2**0.25 and 7 // clip == 28 and 0.6 % clip == pytest.approx(0.1)
    assert divmod(1, clip) == (4, 0)
    assert -clip == -0.25 and +clip == 0.25 and abs(-clip) == 0.25
    assert clip < 1 and 0 < clip <= 0.25 and clip >= 0.25 and clip > 0.1 and not clip > 1
    assert clip == 0.25 and clip != 0.5 and clip == 0.25
    assert float(clip) == 0.25 and int(live(2.7, "x")) == 2 and complex(clip) == 0.25
    assert round(live(2.718, "e"), 1) == 2.7 and math.floor(live(2.7, "f")) == 2
    assert math.ceil(live(2.1, "g")) == 3 and math.trunc(live(-2.7, "h")) == -2
    assert math.sqrt(clip) == 0.5 and bool(clip) and not live(0.0, "zero")
    assert f"{clip:.3f}" == "0.250" and str(clip) == "0.25" and f"{clip}" == "0.25"
    assert repr(clip) == "live(0.25, 'clip')"
    assert hash(clip) == hash(0.25) and {clip: 1}[0.25] == 1
    assert clip() == clip.value == 0.25 and issubclass(type(clip), numbers.Real)
    assert type(clip + 1) is float and max(clip, 0.1) == 0.25
    assert clip + live(0.5, "other") == 0.75


def test_a_live_number_meets_tensors_and_arrays() -> None:
    clip = live(0.5, "clip")
    x = torch.tensor([2.0, 4.0])
    assert torch.equal(x * clip, x * 0.5) and torch.equal(clip * x, x * 0.5)
    assert torch.equal(x / clip, x * 2) and torch.equal(clip / x, 0.5 / x)
    assert torch.equal(x > clip, torch.tensor([True, True]))
    assert np.allclose(np.array([2.0]) * clip, [1.0])
    weight = torch.nn.Parameter(torch.ones(4))
    weight.grad = torch.ones(4)
    torch.nn.utils.clip_grad_norm_([weight], clip)
    assert weight.grad.norm().item() == pytest.approx(0.5)


def test_a_live_whole_number_is_an_index_and_a_range() -> None:
    k = live(3, "k", min=1, max=10)
    assert list(range(k)) == [0, 1, 2] and [10, 20, 30, 40][k] == 40
    assert k << 1 == 6 and 1 << k == 8 and k & 1 == 1 and k | 4 == 7 and k ^ 1 == 2
    assert isinstance(k, numbers.Integral) and "ab" * k == "ababab"


def test_bools_texts_and_choices_are_live_too() -> None:
    assert not live(False, "flag")
    mode = live("mean", "mode", choices=["mean", "sum"])
    assert mode == "mean" and str(live("abc", "text")) == "abc"
    session = Session(directory=None)
    mode.register(session)
    assert session.knobs["mode"].dtype == "choice"


def test_a_live_variable_is_a_knob_of_the_session_that_attaches_next() -> None:
    clip = live(0.1, "clip", min=0.01, max=10.0, scale="log", description="clip of the norm")
    session = Session(directory=None)
    with session.run():
        attach(session)
        ask(session, "clip", 0.5)
        assert clip == 0.5
        ask(session, "clip", 100.0)
        assert clip == 10.0
        ask(session, "clip", "nan")
        view = session.knobs["clip"].view()
    assert (view.min, view.max, view.scale, view.value) == (0.01, 10.0, "log", 10.0)
    assert statuses(session) == ["applied", "clamped", "rejected"]


def test_a_variable_made_inside_the_loop_joins_its_session() -> None:
    session = Session(directory=None)
    with session.run():
        attach(session)
        late = live(2, "late")
        ask(session, "late", 5)
        assert late == 5
        # The line runs again: the new variable takes the place of the old one.
        again = live(2, "late")
        ask(session, "late", 7)
        assert again == 7 and late == 5


def test_a_given_session_is_taken() -> None:
    session = Session(directory=None)
    clip = live(0.1, "clip", session=session)
    assert session.knobs["clip"].value == 0.1 and clip.has_session


def test_a_variable_survives_its_run_and_joins_the_next() -> None:
    clip = live(0.1, "clip")
    for value in (0.2, 0.3):
        session = Session(directory=None)
        with session.run():
            attach(session)
            ask(session, "clip", value)
        assert clip == value


def test_a_variable_that_is_gone_is_no_knob() -> None:
    gone = live(0.1, "gone_variable")
    del gone
    gc.collect()
    session = Session(directory=None)
    with session.run():
        attach(session)
        assert "gone_variable" not in session.knobs


def test_wrong_declarations_are_told_where_they_are_made() -> None:
    with pytest.raises(KnobRangeError, match=r"max is 1\.0"):
        live(5.0, "x", min=0.0, max=1.0)
    with pytest.raises(KnobError, match="no type of a knob"):
        live([1, 2], "x")
    with pytest.raises(KnobError, match="none of"):
        live("c", "x", choices=["a", "b"])
    session = Session(directory=None)
    session.register_knob("x", lambda: 0.0, lambda v: None)
    with pytest.raises(KnobError, match="a knob of that name already"):
        live(1.0, "x", session=session)


def test_a_name_that_is_taken_is_a_warning_when_the_run_starts() -> None:
    kept = live(1.0, "taken")
    session = Session(directory=None)
    session.register_knob("taken", lambda: 0.0, lambda v: None)
    with session.run():
        attach(session)
    assert "'taken'" in rows(session, "note")[0]["text"] and kept == 1.0


def test_copies_follow_and_pickles_are_plain() -> None:
    clip = live(0.5, "clip")
    assert copy.copy(clip) is clip and copy.deepcopy({"c": clip})["c"] is clip
    for made, kind in ((clip, float), (live(3, "k"), int), (live("a", "t"), str)):
        back = pickle.loads(pickle.dumps(made))
        assert type(back) is kind and made == back


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=str)
def test_an_optimizer_follows_the_live_variable_that_it_was_given(
    kind: str, options: dict[str, Any]
) -> None:
    lr = live(0.1, "lr0", min=0.0, max=1.0)
    optimizer = getattr(torch.optim, kind)(parameters(), lr=lr, **options)
    used = record(optimizer)
    session = Session(directory=None)
    with session.run():
        attach(session)
        for step in range(6):
            gradients(optimizer)
            if step == 2:
                session.submit({"type": "set_knob", "payload": {"name": "lr0", "value": 0.02}})
            optimizer.step()
        # The optimizer's own knob still is there, and what is saved is a plain number.
        assert session.knobs["lr"].value == 0.02
        assert type(optimizer.state_dict()["param_groups"][0]["lr"]) is float
    assert used == [0.1, 0.1, 0.1, 0.02, 0.02, 0.02]


def test_a_live_lr_under_a_scheduler_rescales_it() -> None:
    lr = live(0.1, "lr0", min=0.0, max=1.0)
    optimizer = torch.optim.SGD(parameters(), lr=lr)
    scheduler = lrs.ExponentialLR(optimizer, 0.5)
    used = record(optimizer)
    session = Session(directory=None)
    with session.run():
        attach(session)
        for step in range(5):
            gradients(optimizer)
            if step == 1:
                session.submit({"type": "set_knob", "payload": {"name": "lr0", "value": 0.4}})
            optimizer.step()
            scheduler.step()
    assert used == pytest.approx([0.1, 0.05, 0.4, 0.2, 0.1])
