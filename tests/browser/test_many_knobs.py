"""A column of knobs that scrolls, and a form whose choices come while it is open."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.conftest import ROOT

from .conftest import OpenWith
from .harness import TIMEOUT_MS
from .steering import RUN, SHOW, Steered

expect.set_options(timeout=TIMEOUT_MS)

MANY = """
p = dict.fromkeys(range(30), 0.1)
for at in p:
    run.session.register_knob(f"layers.{at}.dropout.p", lambda at=at: p[at],
                              lambda v, at=at: p.update({at: v}), min=0.0, max=0.9, group="layers")
display(panel)
"""


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_a_column_that_scrolls_says_what_is_below(open_notebook: OpenWith, theme: str) -> None:
    book = open_notebook([RUN + MANY])
    book.command("apputils:change-theme", theme=theme)
    book.page.wait_for_function("(theme) => document.body.dataset.jpThemeName === theme", arg=theme)
    book.run(0)
    panel = Steered.under(book, 0)
    fold, more = panel.root.locator(".it2-fold"), panel.root.locator(".it2-fold-more")
    expect(more).to_have_text(re.compile(r"^\d+ more ↓$"))
    expect(fold).not_to_have_attribute("data-above", "")
    first = int(more.inner_text().split()[0])
    assert 10 < first < 32
    book.page.evaluate((ROOT / "js/node_modules/axe-core/axe.min.js").read_text(encoding="utf-8"))
    found = panel.root.evaluate("(root) => axe.run(root)")
    assert [rule["id"] for rule in found["violations"]] == []
    more.click()
    expect(fold).to_have_attribute("data-above", "")
    expect(more).not_to_have_text(f"{first} more ↓")
    # By keyboard: what has the focus is in sight, and the button is no stop on the way.
    panel.field("layers.20.dropout.p").focus()
    panel.page.keyboard.press("Tab")
    expect(panel.slider("layers.21.dropout.p")).to_be_focused()
    panel.field("layers.29.dropout.p").focus()
    expect(more).to_be_hidden()
    # The search leaves out the others, and with them the hint.
    panel.root.locator(".it2-search").fill("layers.3.")
    expect(more).to_be_hidden()
    expect(fold).not_to_have_attribute("data-above", "")
    assert book.script_errors == []


def test_checkpoints_are_offered_as_they_are_saved(open_notebook: OpenWith) -> None:
    saved = "run.session.checkpoint_saved('out/{0}.pt', step={1}, tag='{0}')"
    book = open_notebook([SHOW, saved.format("first", 1000), saved.format("best", 2000)])
    book.run(0)
    panel = Steered.under(book, 0)
    book.run(1)
    panel.root.get_by_role("button", name="More actions").click()
    panel.root.get_by_role("menuitem", name=re.compile("Load checkpoint")).click()
    select = panel.root.locator(".it2-drawer select")
    expect(select).to_be_focused()
    options = select.locator("option")
    expect(options).to_have_text(["–", "step 1,000, first, first.pt", "another…"])
    select.select_option(label="step 1,000, first, first.pt")
    book.run(2)
    best = "step 2,000, best, best.pt"
    expect(options).to_have_text(["–", best, "step 1,000, first, first.pt", "another…"])
    expect(select.locator("option:checked")).to_have_text("step 1,000, first, first.pt")
    select.press("Enter")
    expect(panel.root.locator(".it2-drawer")).to_be_visible()
    panel.root.locator(".it2-drawer").get_by_role("button", name="Load checkpoint").click()
    expect(panel.root.locator(".it2-say").first).to_contain_text("load_checkpoint out/first.pt")
    assert book.script_errors == []
