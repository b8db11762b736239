from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.conftest import ROOT

from .conftest import OpenWith, kernel_overlay
from .harness import TIMEOUT_MS, App
from .server import JupyterServer
from .steering import RUN, SHOW, Steered

expect.set_options(timeout=TIMEOUT_MS)

BUSY = """() =>
  window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === "busy" """
APPLIED = "asked 2.5e-6, applied 2.5e-6, from step "


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_a_typed_value_is_applied_exactly_and_said_so(open_notebook: OpenWith, app: App) -> None:
    # C19, C31
    book = open_notebook([SHOW, "run.lr"], app=app)
    book.run(0)
    panel = Steered.under(book, 0)
    expect(panel.field("lr")).to_have_value("0.001")
    panel.enter("lr", "2.5e-6")
    expect(panel.said("lr")).to_contain_text(APPLIED)
    book.run(1)
    assert book.text(1) == "2.5e-06\n"
    for bad in ("0,001", "1e-"):
        panel.enter("lr", bad)
        expect(panel.said("lr")).to_contain_text(f'asked "{bad}", rejected: not a number')
        expect(panel.field("lr")).to_have_value("2.5e-6")
        expect(panel.field("lr")).to_have_attribute("aria-invalid", "true")
    book.run(1)
    assert book.text(1) == "2.5e-06\n"
    panel.enter("dropout", "7")
    expect(panel.said("dropout")).to_contain_text("asked 7, applied 0.9 (max)")
    assert book.foreign_requests == []
    assert book.script_errors == []


def test_buttons_keep_their_place_whatever_the_status_says(open_notebook: OpenWith) -> None:
    book = open_notebook([SHOW])
    book.run(0)
    panel = Steered.under(book, 0)
    # In one turn of the page: the panel's own word on the time comes between turns.
    look = """(panel, [width, text]) => {
      panel.style.width = `${width}px`;
      const facts = panel.querySelector(".it2-facts");
      facts.lastChild.textContent = text;
      facts.lastChild.previousSibling.textContent = text && "1,212 steps/s";
      const at = panel.getBoundingClientRect();
      const pause = panel.querySelector(".it2-do-pause").getBoundingClientRect();
      const time = facts.lastChild.getBoundingClientRect();
      const covers = time.right > pause.left && time.bottom > pause.top && time.top < pause.bottom;
      return [...[pause.left - at.left, pause.top - at.top].map(Math.round), covers];
    }"""
    texts = ("", "0:01", "1:23:45:56 · 1:23:45:56 left, and more")
    for width in (460, 640, 760, 860, 890, 960, 1_000, 1_100, 1_300):
        places = [panel.root.evaluate(look, [width, text]) for text in texts]
        assert places == places[:1] * len(texts), width
        assert not any(covers for *_, covers in places), width


def test_a_drag_is_one_request_and_nothing_pulls_it_back(open_notebook: OpenWith) -> None:
    # C07
    book = open_notebook([SHOW, "run.lr"])
    book.run(0)
    panel = Steered.under(book, 0)
    slider = panel.slider("lr")
    box = slider.bounding_box()
    assert box is not None
    seen = []
    y = box["y"] + box["height"] / 2
    panel.page.mouse.move(box["x"] + 0.1 * box["width"], y)
    panel.page.mouse.down()
    for share in range(10, 91, 2):
        panel.page.mouse.move(box["x"] + share / 100 * box["width"], y)
        seen.append(int(slider.input_value()))
    assert seen == sorted(seen) and seen[-1] > seen[0]
    assert panel.results() == []
    panel.page.mouse.up()
    expect(panel.said("lr")).to_contain_text("applied")
    (row,) = panel.results()
    book.run(1)
    assert float(book.text(1)) == row["requested"] == row["after"]
    assert float(panel.field("lr").input_value()) == row["after"]
    # A click on the track, then an arrow key.
    slider.click(position={"x": 0.3 * box["width"], "y": box["height"] / 2})
    expect(panel.root.locator("tbody tr")).to_have_count(2)
    slider.press("ArrowRight")
    expect(panel.root.locator("tbody tr")).to_have_count(3)
    for end, bound in (("End", 1e-1), ("Home", 1e-7)):
        slider.press(end)
        expect(panel.said("lr")).to_contain_text(f"applied {'0.1' if end == 'End' else '1e-7'}")
        book.run(1)
        assert float(book.text(1)) == bound


def test_a_thousand_moves_are_few_requests_and_the_last_one_counts(open_notebook: OpenWith) -> None:
    book = open_notebook([SHOW, "run.lr, len(run.session.journal.requests())"])
    book.run(0)
    panel = Steered.under(book, 0)
    panel.slider("lr").evaluate(
        """(slider) => new Promise((resolve) => {
          let moves = 0;
          const move = () => {
            for (let i = 0; i < 20; i++, moves++) {
              slider.value = String((moves * 37) % 200);
              slider.dispatchEvent(new Event("input", { bubbles: true }));
              slider.dispatchEvent(new Event("change", { bubbles: true }));
            }
            if (moves < 1000) setTimeout(move, 5); else resolve();
          };
          move();
        })"""
    )
    value = float(panel.field("lr").input_value())
    expect(panel.said("lr")).to_contain_text("applied")
    book.run(1)
    lr, requests = json.loads(book.text(1).replace("(", "[").replace(")", "]"))
    assert lr == value
    assert requests <= 20


def test_a_click_arrives_while_a_cell_spins(open_notebook: OpenWith) -> None:
    # C22: the cell ends because of the click, or very late.
    spin = "end = time.monotonic() + 60\nwhile run.lr > 1e-5 and time.monotonic() < end: pass"
    book = open_notebook([SHOW, f"{spin}\nprint(run.lr)"])
    book.run(0)
    panel = Steered.under(book, 0)
    book.run(1, wait=False)
    panel.page.wait_for_function(BUSY)
    panel.enter("lr", "2.5e-6")
    expect(panel.said("lr")).to_contain_text(APPLIED)
    book.wait(1)
    assert book.text(1) == "2.5e-06\n"
    panel.page.wait_for_function(
        "(root) => root.it2nb.channel.store.subshell", arg=panel.root.element_handle()
    )


def test_without_subshells_the_panel_says_that_it_waits_and_what_works(
    open_notebook: OpenWith, jupyter: JupyterServer
) -> None:
    kernel = jupyter.add_kernel("py6.31.0", kernel_overlay("ipykernel==6.31.0"))
    # The run itself lets the cell go, when the test has seen what it wanted.
    book = open_notebook([SHOW, "import os\nwhile not os.path.exists('go'): pass"], kernel=kernel)
    book.run(0)
    panel = Steered.under(book, 0)
    book.run(1, wait=False)
    panel.page.wait_for_function(BUSY)
    panel.enter("lr", "2.5e-6")
    expect(panel.said("lr")).to_contain_text("queued until the cell ends")
    notice = panel.root.locator(".it2-notice", has_text="queued until the cell ends")
    expect(notice).to_contain_text('run.session.set("lr", 2.5e-6)')
    expect(notice).to_contain_text("%it2 set lr 2.5e-6")
    (jupyter.work / "go").touch()
    book.wait(1)
    expect(panel.said("lr")).to_contain_text(APPLIED)
    expect(notice).to_have_count(0)
    (jupyter.work / "go").unlink()


def test_every_view_shows_the_whole_run(open_notebook: OpenWith) -> None:
    # Two cells, a second tab, a reload: one click is one row, each curve is whole.
    book = open_notebook([SHOW, "panel", "len(run.session.journal.requests())"])
    book.run(0)
    book.run(1)
    first, second = Steered.under(book, 0), Steered.under(book, 1)
    first.enter("lr", "2.5e-6")
    expect(second.said("lr")).to_contain_text(APPLIED)
    book.command("docmanager:save")
    other = Steered.under(book, 0, book.new_page())
    expect(other.said("lr")).to_contain_text(APPLIED)
    other.enter("dropout", "0.5")
    expect(first.said("dropout")).to_contain_text("applied 0.5")
    book.page.reload()
    again = Steered.under(book, 0)
    expect(again.said("dropout")).to_contain_text("applied 0.5")
    book.page.wait_for_function("() => window.jupyterapp !== undefined")
    again.root.locator("[data-action=stop]").click()
    again.root.locator(".it2-drawer .it2-danger").click()
    for view in (again, other):
        expect(view.root.locator(".it2-pill")).to_have_text("stopped")
        expect(view.slider("lr")).to_be_disabled()
        steps = view.line("loss")["steps"]
        assert steps == sorted(set(steps))
        assert steps[0] == 1 and steps[-1] == view.store()["head"]["step"]
    names = [row["name"] or row["action"] for row in other.results()]
    assert names == ["lr", "dropout", "stop"]


def test_the_picture_is_renewed_in_a_page_that_was_reloaded_in_mid_run(
    open_notebook: OpenWith, jupyter: JupyterServer
) -> None:
    book = open_notebook([SHOW])
    book.run(0)
    Steered.under(book, 0)
    book.command("docmanager:save")
    book.page.reload()
    book.page.wait_for_function("() => window.jupyterapp !== undefined")
    panel = Steered.under(book, 0)
    panel.root.locator("[data-action=stop]").click()
    panel.root.locator(".it2-drawer .it2-danger").click()
    expect(panel.root.locator(".it2-pill")).to_have_text("stopped")
    book.page.wait_for_function(
        """() => window.jupyterapp.shell.currentWidget.content.widgets[0].model.outputs.toJSON()
             .some((each) => String(each.data?.["text/plain"]).includes("digits: stopped"))"""
    )
    book.command("docmanager:save")
    saved = json.loads((jupyter.work / f"{book.name}.ipynb").read_text(encoding="utf-8"))
    texts = [str(each.get("data", {}).get("text/plain")) for each in saved["cells"][0]["outputs"]]
    assert sum("digits: stopped" in text for text in texts) == 1
    assert not any("digits: running" in text for text in texts)


def test_a_restarted_kernel_is_told_and_no_control_pretends(open_notebook: OpenWith) -> None:
    book = open_notebook([SHOW])
    book.run(0)
    panel = Steered.under(book, 0)
    book.restart_kernel()
    expect(panel.root.locator(".it2-pill")).to_have_text("disconnected")
    expect(panel.slider("lr")).to_be_disabled()


def test_where_the_server_has_no_scripts_they_come_from_the_kernel_once(
    open_notebook: OpenWith,
) -> None:
    book = open_notebook([SHOW, "panel", "Panel(run.session)"])
    book.page.context.route("**/lab/extensions/it2nb/**", lambda route: route.abort())
    book.run(0)
    Steered.under(book, 0)
    book.run(1)
    Steered.under(book, 1)
    book.run(2)
    panel = Steered.under(book, 2)
    loaded = book.page.evaluate("() => [...window.__it2nb.modules.keys()]")
    assert sorted(each.partition("@")[0] for each in loaded) == ["chart.mjs", "panel.mjs"]
    panel.enter("lr", "2.5e-6")
    expect(panel.said("lr")).to_contain_text(APPLIED)
    assert book.foreign_requests == []


def test_nan_is_a_hole_with_a_cross(open_notebook: OpenWith) -> None:
    # C62
    book = open_notebook([SHOW])
    book.run(0)
    panel = Steered.under(book, 0)
    panel.page.wait_for_function(
        "(root) => root.it2nb.series.lines('loss').at(-1).steps.length > 40",
        arg=panel.root.element_handle(),
    )
    line = panel.line("loss")
    assert line["values"][line["steps"].index(31)] is None
    plot = panel.root.locator('[data-metric="loss"] .it2-plot-area')
    plot.hover()
    panel.page.wait_for_function(
        """(plot) => plot.data.some((trace) => trace.mode === 'markers'
             && trace.text?.[0] === 'nan from step 31')""",
        arg=plot.element_handle(),
    )
    drawn: list[Any] = plot.evaluate("(plot) => plot.data[0].y.slice(28, 33)")
    assert drawn[2] is None and all(map(math.isfinite, drawn[:2] + drawn[3:]))


def test_a_mark_and_its_row_point_at_each_other(open_notebook: OpenWith) -> None:
    book = open_notebook([SHOW])
    book.run(0)
    panel = Steered.under(book, 0)
    panel.enter("lr", "2.5e-6")
    expect(panel.said("lr")).to_contain_text(APPLIED)
    label = panel.root.locator('[data-metric="loss"] .annotation-text', has_text="lr 2.5e-6")
    expect(label).to_be_visible()
    row = panel.root.locator("tbody tr", has_text="2.5e-6")
    row.locator("button").click()
    expect(row).to_have_attribute("aria-current", "true")
    row.locator("button").click()
    expect(row).not_to_have_attribute("aria-current", "true")
    label.click()
    expect(row).to_have_attribute("aria-current", "true")


def test_keys_work_inside_the_panel_and_not_on_the_notebook(open_notebook: OpenWith) -> None:
    book = open_notebook(
        [SHOW, "[e.payload['text'] for e in run.session.journal.tail(9, types=['note'])]"]
    )
    book.run(0)
    panel = Steered.under(book, 0)
    panel.root.focus()
    panel.page.keyboard.press("p")
    expect(panel.root.locator(".it2-pill")).to_have_text("paused")
    # In command mode these would cut cells and add some, wherever in the panel the focus is.
    for focused in (panel.root, panel.slider("lr"), panel.root.locator("[data-action=stop]")):
        focused.focus()
        for key in ("x", "d", "d", "a", "b"):
            panel.page.keyboard.press(key)
    panel.page.keyboard.press("p")
    expect(panel.root.locator(".it2-pill")).to_have_text("running")
    cells = "() => window.jupyterapp.shell.currentWidget.content.widgets.length"
    assert panel.page.evaluate(cells) == 2
    panel.field("lr").fill("p")
    panel.field("lr").press("Escape")
    expect(panel.root.locator(".it2-pill")).to_have_text("running")
    # The one key of the notebook's that has to work from in here.
    dirty = "() => window.jupyterapp.shell.currentWidget.context.model.dirty"
    assert panel.page.evaluate(dirty)
    panel.root.focus()
    panel.page.keyboard.press("Control+s")
    panel.page.wait_for_function(f"() => !({dirty})()")
    panel.root.locator(".it2-more").click()
    panel.root.get_by_role("menuitem", name="Note").click()
    panel.root.locator(".it2-drawer input[type=text]").fill("looks odd")
    panel.page.keyboard.press("Enter")
    expect(panel.root.locator(".it2-drawer")).to_be_hidden()
    book.run(1)
    assert "looks odd" in book.text(1)


def test_names_are_text_wherever_they_stand(open_notebook: OpenWith) -> None:
    evil = "<img src=x onerror=window.hacked=1>"
    code = f"""{RUN}
evil = {evil!r}
run.session.register_knob(evil, lambda: 1.0, lambda v: None, min=0.0, max=2.0, group=evil,
                          description=evil, unit=evil)
session = run.session
session.emit("note", {{"text": evil, "level": "info"}})
session.warn(evil)
other = begin(steps=0)
other.thread.join()
evil_run = Session(directory=None, title=evil, watch=(evil,))
value = [1.0]
evil_run.register_knob(evil, lambda: value[0], lambda v: value.__setitem__(0, v), min=0.0, max=9.0)
evil_run.start()
for i in range(5):
    evil_run.step({{evil: float(i)}})
evil_run.submit({{"type": "set_knob", "payload": {{"name": evil, "value": 2.0}}}})
evil_run.step({{evil: 6.0}})
display(Panel(evil_run)); display(panel)"""
    book = open_notebook([code])
    book.run(0)
    panels = book.cell(0).locator("section.it2[data-live]")
    expect(panels).to_have_count(2)
    for index in range(2):
        root = panels.nth(index)
        expect(root).to_contain_text(evil)
        root.get_by_text("all", exact=True).click()
        root.locator(".it2-plot-area").first.hover()
    expect(panels.first.locator(".annotation-text").first).to_contain_text("<img")
    assert book.page.evaluate("() => window.hacked") is None
    assert book.cell(0).locator("section.it2 img").count() == 0


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_axe_finds_nothing(open_notebook: OpenWith, theme: str) -> None:
    printed = (
        "\nfrom it2nb.panel.terminal import Terminal\nrun.session.output = Terminal()\n"
        "for n in (1, *range(31, 38), 90): run.session.output.write(f'\\x1b[{n}mcolour {n} ')"
    )
    book = open_notebook([SHOW + "\nrun.session.warn('something to know')" + printed])
    book.command("apputils:change-theme", theme=theme)
    book.page.wait_for_function("(theme) => document.body.dataset.jpThemeName === theme", arg=theme)
    book.run(0)
    panel = Steered.under(book, 0)
    panel.enter("lr", "2.5e-6")
    expect(panel.said("lr")).to_contain_text(APPLIED)
    panel.enter("dropout", "x")
    panel.root.locator(".it2-output summary").click()
    expect(panel.root.locator(".it2-output .it2-line")).to_contain_text("colour 90")
    panel.root.locator(".it2-more").click()
    book.page.evaluate((ROOT / "js/node_modules/axe-core/axe.min.js").read_text(encoding="utf-8"))
    found = panel.root.evaluate("(root) => axe.run(root)")
    wrong = [
        f"{rule['id']}: {node['html'][:160]} {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
    assert wrong == []


def test_the_picture_is_there_without_a_kernel_and_hidden_beside_a_live_panel(
    open_notebook: OpenWith, jupyter: JupyterServer, tmp_path: Path
) -> None:
    # C25
    book = open_notebook([SHOW, "run.session.stop(); run.thread.join()"])
    book.run(0)
    panel = Steered.under(book, 0)
    picture = book.cell(0).locator(".jp-RenderedImage img")
    expect(picture).to_have_count(1)
    expect(picture).to_be_hidden()
    book.run(1)
    expect(panel.root.locator(".it2-pill")).to_have_text("stopped")
    book.page.wait_for_function(
        """() => window.jupyterapp.shell.currentWidget.content.widgets[0].model.outputs.toJSON()
             .some((each) => String(each.data?.["text/plain"]).includes("digits: stopped"))"""
    )
    book.command("docmanager:save")
    saved = json.loads((jupyter.work / f"{book.name}.ipynb").read_text(encoding="utf-8"))
    outputs = saved["cells"][0]["outputs"]
    assert len(json.dumps(outputs)) < 50_000
    jupyter.end_kernels()
    page = book.context.new_page()
    page.goto(f"{jupyter.url}lab/tree/{book.name}.ipynb?reset&token={jupyter.token}")
    reopened = page.locator(".jp-Cell .jp-RenderedImage img")
    expect(reopened).to_be_visible()
    assert page.evaluate("(img) => img.naturalWidth", reopened.element_handle()) > 1000
    # The widget has no state in the file: where it stood nothing is said.
    lost = page.get_by_text("model not found")
    expect(lost).to_have_count(1)
    expect(lost).to_be_hidden()
