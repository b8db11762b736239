"""The report and the export of a run, opened in a real Chromium without a network."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Page, sync_playwright

import it2nb
from it2nb.core.errors import JournalError
from it2nb.core.faults import Fault
from it2nb.core.replay import replay
from it2nb.core.round_runner import run_rounds
from it2nb.core.session import Session
from it2nb.curves import svg
from it2nb.report import render, run_data, write
from it2nb.session import TrainingSession

from .browser.harness import chromium
from .steered import Script, ask, train

EVIL = '<img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>&lt; ü'
MAX_SIZE = 2_000_000

SCRIPT: Script = {
    10: [ask("set_knob", name="lr", value=3e-3), ask("note", text=EVIL)],
    20: [ask("evaluate"), ask("set_knob", name="lr", value=EVIL)],
    40: [ask("set_knob", name="noise", value=7.0)],
    60: [ask("save_checkpoint", tag="a"), ask("set_knob", name="weight_decay", value=0.2)],
    80: [ask("undo")],
    100: [ask("set_knob", name="lr", value=8e-3)],
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright, chromium(playwright) as made:
        yield made


class Opened:
    """A report in a page that has no network."""

    def __init__(self, browser: Browser, path: Path, **options: Any) -> None:
        context = browser.new_context(
            offline=True, viewport={"width": 1200, "height": 900}, **options
        )
        self.page: Page = context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.resolve().as_uri())
        self.page.locator("#journal tbody").wait_for(state="attached")
        self.path = path

    def scrub(self, thousandths: int) -> None:
        self.page.evaluate(
            "v => { const s = document.getElementById('at'); s.value = v;"
            " s.dispatchEvent(new Event('input')); }",
            thousandths,
        )

    def rows(self) -> list[str]:
        return self.page.locator("#journal tbody tr").all_inner_texts()

    def knob(self, name: str) -> str:
        row = self.page.locator("#knobs tr", has=self.page.get_by_text(name, exact=True))
        return row.locator("td").last.inner_text()

    def check(self) -> None:
        """Nothing was asked of a network, nothing went wrong, nothing of the data ran."""
        assert self.said == []
        assert self.asked == [self.path.resolve().as_uri()]
        assert self.page.evaluate("window.hacked") is None
        self.page.context.close()


@pytest.fixture(scope="module")
def steered(tmp_path_factory: pytest.TempPathFactory) -> TrainingSession:
    folder = tmp_path_factory.mktemp("steered")
    session = train(SCRIPT, steps=140, directory=folder)
    session.title = f"digits {EVIL}"
    return session


@pytest.fixture(scope="module")
def report(steered: TrainingSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return steered.report(tmp_path_factory.mktemp("report") / "run.html")


def test_a_checkpoint_has_the_size_that_saving_it_told(steered: TrainingSession) -> None:
    [saved] = [each.payload for each in steered.journal.since(0) if each.type == "checkpoint_saved"]
    shown = f"{saved['size_bytes'] / 1000:.1f} kB, sha256 {saved['sha256'][:12]}"
    assert shown in json.dumps(run_data(steered.journal))


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_without_a_network_and_runs_nothing_of_its_data(
    browser: Browser, report: Path, steered: TrainingSession, scheme: Any
) -> None:
    assert report.stat().st_size < MAX_SIZE
    opened = Opened(browser, report, color_scheme=scheme)
    page = opened.page
    assert page.locator("h1").inner_text() == steered.title
    assert page.title() == f"{steered.title}: it2nb report"
    assert page.locator(".plot").count() == 2
    assert page.locator(".plot svg path.curve").count() >= 2
    assert page.locator(".plot").first.locator("path.mark").count() == 5
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(255, 255, 255)") is (scheme == "light")
    assert any(EVIL.partition("<")[0] in text and "onerror" in text for text in opened.rows())
    assert page.locator("#journal img, #journal script, #head img").count() == 0
    opened.check()


@pytest.mark.browser
def test_the_theme_can_be_picked(browser: Browser, report: Path) -> None:
    opened = Opened(browser, report, color_scheme="light")
    theme = opened.page.get_by_role("button", name="Theme")
    shades = []
    for _ in range(3):
        theme.click()
        shades.append(opened.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert shades == ["rgb(255, 255, 255)", "rgb(17, 19, 21)", "rgb(255, 255, 255)"]
    opened.check()


@pytest.mark.browser
def test_the_scrubber_plays_the_run(browser: Browser, report: Path) -> None:
    opened = Opened(browser, report)
    page = opened.page
    curve = page.locator(".plot").first.locator("path.curve").last
    whole = len(curve.get_attribute("d") or "")
    at_the_end = "0.0021042"  # what the schedule has made of the last edit, 0.008
    assert opened.knob("lr") == at_the_end
    assert page.locator("#journal tr.later").count() == 0

    opened.scrub(0)
    assert opened.knob("lr") not in ("0.008", "0.003")
    assert opened.knob("noise") == "0.1"
    assert page.locator("#journal tbody tr.later").count() == len(opened.rows())
    assert len(curve.get_attribute("d") or "") < whole
    opened.scrub(1000)
    assert opened.knob("noise") == "1"
    assert len(curve.get_attribute("d") or "") == whole

    # A click on a row goes to its moment.
    page.locator("#journal tbody tr", has_text="noise").click()
    assert "step 40" in page.locator("#now").inner_text()
    assert opened.knob("lr") == "0.003"
    assert page.locator("#journal tr.chosen").count() == 1
    assert page.locator("#journal tbody tr.later").count() > 0

    # Playing goes on from there to the end.
    page.locator("#pace").select_option("4")
    page.get_by_role("button", name="Play").click()
    page.locator("#run[aria-pressed=true]").wait_for()
    page.locator("#run[aria-pressed=false]").wait_for(timeout=90_000)
    assert page.locator("#at").input_value() == "1000"
    assert opened.knob("lr") == at_the_end
    opened.check()


@pytest.mark.browser
def test_the_journal_is_filtered(browser: Browser, report: Path) -> None:
    opened = Opened(browser, report)
    page = opened.page
    everything = len(opened.rows())
    assert everything == 9
    page.get_by_label("any result").select_option("rejected")
    assert len(opened.rows()) == 1
    page.get_by_label("any result").select_option("")
    page.get_by_label("Find in the journal").fill("noise")
    assert [row for row in opened.rows() if "noise 0.1 → 1 (asked 7)" in row] == opened.rows()
    page.get_by_label("Find in the journal").fill("")
    page.get_by_role("button", name="all rows").click()
    assert len(opened.rows()) > everything + 5
    assert any("branch_forked" in row for row in opened.rows())
    page.get_by_role("button", name="log y").click()
    page.get_by_role("button", name="loss", exact=True).click()
    assert page.locator(".plot").count() == 1
    opened.check()


@pytest.mark.browser
def test_the_journal_leaves_room_for_requests_and_says_what_is_below(
    browser: Browser, tmp_path: Path
) -> None:
    session = Session(directory=None)
    with session.run():
        for step in range(40):
            session.submit({"type": "note", "payload": {"text": f"note {step}"}}, source="rule")
            session.step({"loss": 1.0})
    rule = "as at 4000: lr x 0.5 and then note 'as planned', whatever the loss has come to by then"
    path = write(session.journal, tmp_path / "run.html")
    path.write_text(path.read_text("utf-8").replace('"source":"rule"', f'"source":"{rule}"'))
    page = Opened(browser, path).page
    source, request = (page.locator("#journal thead th", has_text=text).bounding_box()
                       for text in ("source", "request"))  # fmt: skip
    assert source is not None and request is not None
    assert 150 < source["width"] < 260 < request["width"]
    assert page.locator("#journal [role=status]").inner_text() == "40 rows, scroll for the rest"
    page.get_by_label("Find in the journal").fill("note 12")
    assert page.locator("#journal [role=status]").inner_text() == "1 row"
    page.get_by_label("Find in the journal").fill("nowhere")
    assert page.locator("#journal tbody").inner_text() == "no row is like this"
    # The header stays where it was: the request column is the wide one, also of no rows.
    empty = page.locator("#journal thead th", has_text="request").bounding_box()
    assert empty is not None and empty["width"] > 500
    page.context.close()


@pytest.mark.browser
def test_a_run_of_nothing_and_one_of_odd_numbers_can_be_looked_at(
    browser: Browser, tmp_path: Path
) -> None:
    empty = Session(directory="it2runs")
    empty.start()
    empty.finish()
    opened = Opened(browser, write(empty.journal, tmp_path / "empty.html"))
    shown = opened.page.inner_text("body")
    assert "No metric was recorded." in shown
    assert "null" not in shown and "undefined" not in shown
    opened.check()

    odd = Session(directory=None)
    with odd.run():
        for loss in (1.0, math.nan, 1e300, -1e300, math.inf, 2.0, -math.inf):
            odd.step({"loss": loss, "none": math.nan, "one": 5.0})
    opened = Opened(browser, write(odd.journal, tmp_path / "odd.html"))
    page = opened.page
    plot = page.locator(".plot").first
    assert plot.locator("path.odd").count() == 3
    assert "NaN" not in (plot.locator("path.curve").first.get_attribute("d") or "")
    assert page.locator(".plot").count() == 3
    page.get_by_role("button", name="log y").click()
    opened.check()


def test_a_long_run_of_many_metrics_and_requests_stays_below_two_megabytes(tmp_path: Path) -> None:
    session = Session(directory=None)
    values = {"x": 0.0}
    session.register_knob("x", lambda: values["x"], lambda v: values.update(x=v))
    draw = np.random.default_rng(0)
    with session.run():
        for step in range(1, 3001):
            if step % 2:
                session.submit(ask("set_knob", name="x", value=float(draw.random())))
                session.submit(ask("note", text="long " * 200))
            session.step({f"metric/{i}": float(draw.normal()) for i in range(30)})
    text = render(session.journal)
    assert len(text.encode()) < MAX_SIZE
    data = run_data(session.journal)
    assert data["left_out"] > 0
    # The newest rows are kept.
    assert data["requests"][-1]["step"] >= 2999
    spikes = [max(curve["value"]) for curve in data["curves"]]
    assert len(spikes) == 30
    assert min(spikes) > 2.5, "extremes are never left out"


def test_the_data_cannot_end_its_script() -> None:
    session = Session(directory=None, title=EVIL)
    session.warn(EVIL)
    page = render(session.journal, title="</script><!--<script>\u2028")
    script = page.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    assert "<" not in script
    assert json.loads(script)["title"] == "</script><!--<script>\u2028"
    assert page.count("</script>") == 2
    session.finish()


def test_a_session_still_records_faults() -> None:
    session = TrainingSession(directory=None)
    assert session.report(Fault("somewhere", "ValueError: x")) is None
    assert "somewhere: ValueError: x" in session.warnings
    session.finish()


# --- export ---------------------------------------------------------------------------------------


def test_an_exported_run_holds_everything_and_is_opened_again(
    steered: TrainingSession, tmp_path: Path
) -> None:
    path = steered.export(tmp_path / "there" / "run.zip")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        assert {"README.txt", "journal.jsonl", "environment.json", "report.html"} <= set(names)
        assert "figures/00-loss.svg" in names
        assert archive.testzip() is None
        figure = archive.read("figures/00-loss.svg").decode()
        assert "<script" not in figure
        environment = json.loads(archive.read("environment.json"))
        assert "python" in environment
    opened = it2nb.open(path)
    assert opened.verify(steered.journal.anchor()).ok
    assert opened.run == steered.run_id
    assert opened.requests().equals(steered.journal.requests())
    assert list(tmp_path.rglob("*.part")) == []


def test_an_exported_run_can_be_replayed(steered: TrainingSession, tmp_path: Path) -> None:
    path = steered.export(tmp_path / "run.zip")
    again = replay(path)
    train(replay=again, steps=140)
    assert again.verify(), str(again.verify())


def test_the_code_of_a_cell_is_exported(tmp_path: Path) -> None:
    from .programs import LOOP, QUICKSTART, run_cell

    session, _ = run_cell(QUICKSTART, LOOP, {8: [ask("set_knob", name="lr", value=1e-3)]})
    with zipfile.ZipFile(session.export(tmp_path / "run.zip")) as archive:
        assert archive.read("cell.py").decode() == LOOP
        assert archive.read("steered.py").decode() == session.to_code()


def test_a_run_in_memory_says_why_it_cannot_be_exported(tmp_path: Path) -> None:
    session = TrainingSession(directory=None)
    with pytest.raises(JournalError, match="keeps its journal in memory"):
        session.export(tmp_path / "run.zip")
    assert list(tmp_path.iterdir()) == []
    session.finish()


def test_a_run_that_goes_on_can_be_exported_and_reported(tmp_path: Path) -> None:
    session = TrainingSession(resources_every_s=3600)
    with session.run():
        session.step({"loss": 1.0})
        opened = it2nb.open(session.export(tmp_path / "run.zip"))
        assert opened.metrics.names() == ["loss"]
        assert not opened.is_sealed
        assert '"status":"running"' in session.report(tmp_path / "run.html").read_text()
        session.step({"loss": 2.0})
    assert session.path is not None
    assert it2nb.open(session.path).is_sealed


def test_earlier_rounds_are_no_part_of_the_runs_line(browser: Browser, tmp_path: Path) -> None:
    session = Session(directory=None, goal=it2nb.Goal("val_loss", "min"))
    values = {"lr": 0.1}
    session.register_knob("lr", lambda: values["lr"], lambda value: values.update(lr=value))

    def train(session: Session, context: Any) -> None:
        for step in range(30):
            if step == 10 and context.round < 2:
                session.submit(ask("set_knob", name="lr", value=0.2))
            session.step({"loss": 1.0 + context.round})
        if context.round < 2:
            session.report_eval({"val_loss": 0.5 - context.round / 10})

    run_rounds(session, train, 3)
    data = run_data(session.journal)
    assert (data["round"], data["rounds"]) == (2, 3)
    lines = {(each["name"], each["round"]): each["until"] for each in data["curves"]}
    assert lines == {
        ("loss", 0): -1, ("loss", 1): -1, ("loss", 2): None,
        ("val_loss", 0): -1, ("val_loss", 1): -1,
    }  # fmt: skip
    with_colour = svg(session.journal, "val_loss")
    assert "#1976d2" not in with_colour and "#b35900" not in with_colour
    assert "#1976d2" in svg(session.journal, "loss")

    page = Opened(browser, write(session.journal, tmp_path / "run.html")).page
    assert "round 3 of 3" in page.locator("#head").inner_text()
    old = page.locator("#plots path.curve.old title").all_text_contents()
    assert sorted(old) == [
        "loss, round 1", "loss, round 2", "val_loss, round 1", "val_loss, round 2",
    ]  # fmt: skip
    assert page.locator("#plots path.mark").count() == 0
    assert page.locator("#journal tbody td:nth-child(2)").all_text_contents() == ["1", "2"]
    assert "round 3, step 30" in page.locator("#now").inner_text()


@pytest.mark.browser
def test_the_points_of_a_short_abandoned_branch_are_pale_too(
    browser: Browser, tmp_path: Path
) -> None:
    session = Session(directory=None)
    session.start()
    for branch in (0, 1):
        for _ in range(10):
            session.step({"loss": 1.0})
        if branch == 0:
            session.fork_branch(5, "back to step 5")
    session.end()
    opened = Opened(browser, write(session.journal, tmp_path / "run.html"))
    fills = opened.page.evaluate(
        "Array.from(document.querySelectorAll('#plots circle.dot'), "
        "each => [each.classList.contains('old'), getComputedStyle(each).fill])"
    )
    old = {fill for is_old, fill in fills if is_old}
    live = {fill for is_old, fill in fills if not is_old}
    assert len(old) == len(live) == 1 and old != live
    assert sum(not is_old for is_old, _ in fills) == 15
    opened.check()


def test_of_many_rounds_the_newest_ones_are_drawn_of_every_metric() -> None:
    session = Session(directory=None, goal=it2nb.Goal("loss", "min"))

    def train(session: Session, context: Any) -> None:
        session.step({"loss": 1.0, "other": 2.0})

    run_rounds(session, train, 150)
    drawn = {(each["name"], each["round"]) for each in run_data(session.journal)["curves"]}
    assert {("loss", 149), ("other", 149)} <= drawn and len(drawn) <= 240


def test_an_lr_that_another_cell_wrote_is_in_the_report(browser: Browser, tmp_path: Path) -> None:
    session = TrainingSession("loss", directory=None)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.002)
    session.bind(optimizers=[optimizer])
    with session.run():
        for step in range(1, 41):
            if step == 11:
                optimizer.param_groups[0]["lr"] = 0.5
            optimizer.step()
            session.step({"loss": 1 / step})
    (lr,) = (each for each in run_data(session.journal)["knobs"] if each["name"] == "lr")
    assert [each[1:] for each in lr["values"]] == [[0.002], [0.5, "the loop"]]
    shapes = session.plot().layout.shapes
    assert [each.x0 for each in shapes] == [10]
    opened = Opened(browser, write(session.journal, tmp_path / "r.html"))
    assert [row.split("\t")[-2] for row in opened.rows()] == [
        "lr 0.002 → 0.5, written by the loop, not asked"
    ]
    text = opened.page.inner_text("body")
    assert "0 requests, 1 written by something else" in text
    assert "0.5, written by the loop" in text
    title = opened.page.locator(".plot path.mark title").first.text_content()
    assert title is not None and "lr 0.002 → 0.5, written by the loop, not asked" in title


@pytest.mark.parametrize("whose", ["loop", "torch"])
def test_under_a_schedule_the_report_ends_with_the_value_in_force_at_the_end(whose: str) -> None:
    session = TrainingSession("loss", directory=None)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.5)
    session.bind(optimizers=[optimizer])
    by_torch = whose == "torch"
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5) if by_torch else None
    with session.run():
        session.pump()
        for step in range(1, 9):
            if scheduler is None:
                optimizer.param_groups[0]["lr"] = 0.5**step
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            session.step({"loss": 1 / step})
    end = optimizer.param_groups[0]["lr"]
    knobs = {each["name"]: each for each in run_data(session.journal)["knobs"]}
    lr = [each[1:] for each in knobs["lr"]["values"]]
    assert lr[0] == [0.5]
    assert lr[-1] == ([end] if by_torch else [end, "the loop"])
    assert len(lr) == (2 if by_torch else 3)
    assert len(knobs["momentum"]["values"]) == 1
    (row,) = session.journal.tail(99, ("knobs_ended",))
    assert row.payload["values"]["lr"] == end and "momentum" not in row.payload["values"]
