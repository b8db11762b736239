"""Write tests/golden/panel.json: the messages of a panel that both languages are tested with.

    python scripts/golden_panel.py            writes the file
    python scripts/golden_panel.py --check    says whether it is stale (exit 1)

It tells the story of one run: knobs of every type, each kind of result, curves with a hole, a
restore. `js/dev` shows it without a kernel.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from it2nb.core import wire, wire_panel
from it2nb.core.wire import ActionSchema, KnobView, LastRequest, Latest, Member, Offer
from it2nb.core.wire_panel import (
    AgentDecision,
    AgentRequest,
    AgentView,
    Curve,
    Head,
    Mark,
    Output,
    OutputLine,
    Row,
)

TARGET = Path(__file__).resolve().parents[1] / "tests" / "golden" / "panel.json"
CLIENT = "golden-page"
EVIL = '<img src=x onerror="window.hacked=1">'


def main(arguments: list[str]) -> int:
    text = json.dumps(golden(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if "--check" in arguments:
        if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
            return 0
        print(f"{TARGET.name} is stale: run python scripts/golden_panel.py", file=sys.stderr)
        return 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    return 0


def golden() -> dict[str, Any]:
    """Return requests and messages, each with its buffer in base64."""
    return {
        "requests": [each.model_dump(mode="json", exclude_unset=False) for each in requests()],
        "messages": [
            {
                "message": json.loads(message.model_dump_json()),
                "buffer": base64.b64encode(buffer).decode("ascii"),
            }
            for message, buffer in messages()
        ],
    }


def requests() -> list[wire_panel.FromPanel]:
    action = wire.Action(
        type="set_knob",
        payload={"name": "lr", "value": 2.5e-6},
        id="0123456789abcdef01234567",
        observed={"step": 1204, "metrics": {"loss": 0.2713}},
    )
    return [
        wire_panel.Hello(client=CLIENT),
        wire_panel.Watch(client=CLIENT, names=["loss", "acc"]),
        wire_panel.Submit(client=CLIENT, action=action),
        wire_panel.Answer(client=CLIENT, id="agent-0001", approve=True),
        wire_panel.WindowAsk(client=CLIENT, ask=1, names=["loss"], axis="step", lo=100, hi=200.5),
        wire_panel.RowsAsk(client=CLIENT, ask=2, types=["note"], limit=50),
        wire_panel.AssetAsk(client=CLIENT, name="chart.mjs"),
        wire_panel.Ack(client=CLIENT, n=12),
        wire_panel.Bye(client=CLIENT),
    ]


def messages() -> list[tuple[wire_panel.ToPanel, bytes]]:
    curves, buffer = _curves(0, 1205)
    more, more_buffer = _curves(1205, 1216)
    snapshot = wire_panel.Snapshot(
        n=7,
        to=CLIENT,
        state=_state(),
        rows=_rows(),
        marks=_marks(),
        curves=curves,
        watch=["loss", "acc"],
        agents=[_agent("thinking")],
        received=["waiting-0001"],
        output=_output(0, 37),
        subshell=True,
        variable="session",
        heartbeat_s=5.0,
    )
    applied = _result(52, 1212, "lr", 2e-5, 3e-4, 2e-5, "applied", "ask-0001")
    batch = wire_panel.Batch(
        n=8,
        head=_head(1215),
        knobs=[_lr(2e-5, LastRequest(
            id="ask-0001", status="applied", requested=2e-5, applied=2e-5, step=1212,
            source="panel",
        ))],
        rows=[applied],
        marks=[Mark(seq=52, step=1212, t=5.9, label="lr 2e-5")],
        curves=more,
        received=["ask-0002"],
        faults=["panel message: ValueError: an example of a fault"],
        agents=[_agent("on")],
        context="a small net on digits; stop at 98 %",
        output=_output(5, 38),
    )  # fmt: skip
    return [
        (snapshot, buffer),
        (batch, more_buffer),
        (wire_panel.Heartbeat(n=8), b""),
        (wire_panel.WindowView(n=8, to=CLIENT, ask=1, curves=curves[:1]), buffer),
        (wire_panel.Rows(n=8, to=CLIENT, ask=2, rows=_rows()[:2]), b""),
        (wire_panel.Asset(n=8, to=CLIENT, name="chart.mjs"), b"\x1f\x8b"),
    ]


# ----------------------------------------------------------------------------------- the run


def _head(step: int) -> Head:
    return Head(
        status="running",
        step=step,
        total_steps=3240,
        steps_per_s=212.4,
        elapsed_s=step / 200,
        max_rounds=4,
        stepper="opt (AdamW)",
        metrics=_latest(step),
        warnings=[],
    )


def _latest(step: int) -> dict[str, Latest]:
    return {
        "loss": Latest(step=step, value=0.2713),
        "acc": Latest(step=step, value=0.914),
        "grad_norm": Latest(step=step, nonfinite="nan"),
        EVIL: Latest(step=step, value=1.0),
    }


def _agent(state: str) -> AgentView:
    lowered = AgentRequest(
        id="agent-0000", type="set_knob", name="lr", requested=3e-4, status="applied",
        reason="val_loss has been flat for 300 steps",
    )  # fmt: skip
    waits = AgentRequest(
        id="agent-0001", type="set_knob", name="lr", requested=1e-5, status="waiting",
        reason="the loss has been flat for 300 steps",
    )  # fmt: skip
    refused = AgentRequest(
        id="agent-0002", type="pause", status="rejected", why="agent may not use pause"
    )
    return AgentView(
        name="llm",
        kind="openai:small",
        thinking=state == "thinking",
        every=100,
        calls=12,
        requests=3,
        tokens=41_230,
        max_tokens=100_000,
        cost=0.0312,
        max_cost=0.5,
        plan="lr 0.0003: the first round was still falling when it ended",
        decisions=[
            AgentDecision(step=900, said=f"The curve is flat. {EVIL}", requests=[lowered]),
            AgentDecision(step=1000, said="Both losses fall: nothing to change."),
            AgentDecision(step=1200, said="Flat again.", requests=[waits, refused]),
        ],
    )


def _state() -> wire.State:
    head = _head(1204)
    return wire.State(
        run_id="20261129-141502-digits-cnn",
        title="digits-cnn",
        status=head.status,
        step=head.step,
        total_steps=head.total_steps,
        steps_per_s=head.steps_per_s,
        elapsed_s=head.elapsed_s,
        max_rounds=head.max_rounds,
        seq=49,
        knobs=_knobs(),
        actions=_actions(),
        metrics=head.metrics,
        watch=["loss", "acc"],
        stepper=head.stepper,
        waiting=[
            wire.Waiting(
                id="agent-0001",
                type="set_knob",
                payload={"name": "lr", "value": 1e-5},
                source="agent",
                actor="llm",
                reason="the loss has been flat for 300 steps",
            )
        ],
        branches=[wire.Branch(id=0)],
        journal_path="it2runs/20261129-141502-digits-cnn/journal.jsonl",
    )


def _lr(value: float, last: LastRequest | None) -> KnobView:
    return KnobView(
        name="lr",
        dtype="float",
        value=value,
        min=1e-7,
        max=1e-1,
        scale="log",
        group="opt · AdamW",
        description="learning rate of the next step",
        mode="rescale",
        modes=["rescale", "hold", "release"],
        members=[Member(name="lr[0]", value=value), Member(name="lr[1]", value=value / 10)],
        aliases=["learning_rate"],
        last=last,
    )


def _last(status: Any, requested: Any, applied: Any, **more: Any) -> LastRequest:
    return LastRequest(
        id=f"id-{status}", status=status, requested=requested, applied=applied,
        source=more.pop("source", "panel"), **more,
    )  # fmt: skip


def _knobs() -> list[KnobView]:
    opt = "opt · AdamW"
    return [
        _lr(3e-4, _last("applied", 3e-4, 3e-4, step=980)),
        KnobView(
            name="weight_decay", dtype="float", value=1.0, min=0.0, max=1.0, scale="log",
            group=opt, description="pull of the weights towards zero",
            last=_last("clamped", 2, 1.0, step=639, reason="max 1", source="magic"),
        ),
        KnobView(name="betas[0]", dtype="float", value=0.9, min=0.0, max=0.999, group=opt),
        KnobView(
            name="amsgrad", dtype="bool", value=False, group=opt, enabled=False,
            reason="AdamW was built without it",
        ),
        KnobView(
            name="clip", dtype="float", value=1.0, min=0.1, max=10.0, scale="log",
            group="variables", description="largest norm of the gradient",
            last=_last("rejected", "abc", None, reason="not a number"),
        ),
        KnobView(
            name="dropout.p", dtype="float", value=0.1, min=0.0, max=0.9, step=0.05,
            group="variables",
            last=LastRequest(id="waiting-0001", status="pending", requested=0.2, source="panel"),
        ),
        KnobView(
            name="accumulate", dtype="int", value=4, min=1, max=64, scale="log",
            group="variables", unit="batches",
        ),
        KnobView(name="augment", dtype="bool", value=True, group="variables"),
        KnobView(
            name="sampler", dtype="choice", value="uniform", group="variables",
            choices=["uniform", "hard", EVIL],
        ),
        KnobView(name="note", dtype="str", value="baseline", group="variables"),
    ]  # fmt: skip


def _actions() -> list[ActionSchema]:
    nothing: dict[str, Any] = {"type": "object", "properties": {}}
    path = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "path or name of the checkpoint"},
            "tag": {"type": "string", "description": "the same as path; give one of them"},
            "keep_knobs": {"type": "boolean", "default": False},
        },
        "required": ["path"],
    }
    tag = {
        "type": "object",
        "properties": {"tag": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}},
    }
    note = {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "level": {"enum": ["info", "warning"], "default": "info", "type": "string"},
        },
        "required": ["text"],
    }
    return [
        ActionSchema(name="set_knob", description="Set a knob"),
        ActionSchema(name="set_mode", description="How a knob goes with its schedule"),
        ActionSchema(name="pause", description="Hold the loop between two steps", args=nothing),
        ActionSchema(name="resume", description="Go on after a pause", args=nothing),
        ActionSchema(name="stop", description="End the run", args=nothing, dangerous=True),
        ActionSchema(
            name="evaluate",
            description="Evaluate now",
            args=nothing,
            enabled=False,
            reason="this loop can't evaluate: give it a function, %%it2 --evaluate fn",
        ),
        ActionSchema(name="save_checkpoint", description="Save the state of the run", args=tag),
        ActionSchema(
            name="load_checkpoint",
            description="Go back to a checkpoint",
            args=path,
            also={"tag": "path"},
            offers={"path": _offers()},
            dangerous=True,
        ),
        ActionSchema(name="note", description="Write a remark into the journal", args=note),
    ]


def _offers() -> list[Offer]:
    return [
        Offer(value="step-001000-best.pt", label="step 1,000, best, 483.7 kB"),
        Offer(value="step-000500.pt", label="step 500, 483.7 kB"),
    ]


def _result(
    seq: int, step: int, name: str | None, requested: Any, before: Any, after: Any,
    status: Any, action_id: str, **more: Any,
) -> Row:  # fmt: skip
    return Row(
        seq=seq,
        ts=1_796_000_000.0 + step / 200,
        t=step / 200,
        step=step,
        type="action_result",
        source=more.pop("source", "panel"),
        action_id=action_id,
        action=more.pop("action", "set_knob"),
        name=name,
        requested=requested,
        before=before,
        after=after,
        status=status,
        **more,
    )


def _rows() -> list[Row]:
    return [
        Row(
            seq=4, ts=1_796_000_000.0, type="note", text=f"warm restart {EVIL}", source="python",
        ),
        _result(
            22, 400, None, None, None, None, "applied", "id-evaluate", action="evaluate",
            source="rule", actor="plateau", text="val_loss 0.412, seconds 0.3",
        ),
        _result(33, 640, "weight_decay", 2, 0.01, 1.0, "clamped", "id-clamped", source="magic",
                reason="max 1"),
        _result(41, 802, "clip", "abc", 1.0, None, "rejected", "id-rejected",
                reason="not a number"),
        _result(48, 981, "lr", 3e-4, 1e-3, 3e-4, "applied", "id-applied"),
    ]  # fmt: skip


def _marks() -> list[Mark]:
    return [
        Mark(seq=33, step=640, t=3.2, label="weight_decay 1"),
        Mark(seq=48, step=981, t=4.9, label="lr 3e-4"),
    ]


def _output(first: int, percent: int) -> Output:
    """What was printed: some lines, one with colours, and a bar, which alone changes."""
    warning = "UserWarning: 2 samples were empty"
    texts = [
        "epoch 1: val_loss 0.894",
        f"note {EVIL}",
        warning,
        "epoch 2: val_loss 0.517, the best so far",
        "epoch 3: val_loss 0.412, the best so far",
        f"train: {percent}%|{'█' * (percent // 5):<20}| {32.4 * percent:.0f}/3240 [212 steps/s]",
    ]
    lines = [
        OutputLine(line=at, text=text, look="D" * 11 + "a" * (len(text) - 11))
        if text == warning
        else OutputLine(line=at, text=text)
        for at, text in enumerate(texts)
    ]
    return Output(lines=lines[first:])


def _curves(first: int, last: int) -> tuple[list[Curve], bytes]:
    steps = np.arange(first, last, 4 if last - first > 100 else 1, dtype=float)
    noise = np.array([_noise(int(step)) for step in steps])
    drop = 1 / (1 + np.exp(-(steps - 1000) / 20))
    loss = 0.35 + 1.9 * np.exp(-steps / 260) - 0.12 * drop + 0.25 * noise
    acc = 0.95 - 0.8 * np.exp(-steps / 330) + 0.06 * noise
    if first == 0:
        loss[100] = math.nan
    curves, parts, at = [], [], 0
    for name, values in (("loss", loss), ("acc", acc)):
        curves.append(Curve(name=name, at=at, count=len(steps), thinned=first == 0))
        parts += [steps, steps / 200, np.round(values, 5)]
        at += 3 * len(steps)
    return curves, np.concatenate(parts).astype("<f8").tobytes()


def _noise(step: int) -> float:
    """Noise that is the same on every machine."""
    mixed = (step + 1) * 0x9E3779B97F4A7C15 & (1 << 64) - 1
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
    return (mixed ^ mixed >> 27) / (1 << 64) - 0.5


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
