from __future__ import annotations

from playwright.sync_api import expect

from .conftest import OpenWith
from .steering import RUN, SHOW, Steered

MODELS = "len(get_ipython().kernel.comm_manager.comms)"


def test_a_panel_in_the_sidecar_is_a_view_like_any_other(open_notebook: OpenWith) -> None:
    side = "from sidecar import Sidecar\nwith Sidecar(title='run'): display(panel)"
    book = open_notebook([SHOW, side, MODELS])
    book.run(0)
    below = Steered.under(book, 0)
    book.run(1)
    views = book.page.locator("section.it2[data-live]")
    expect(views).to_have_count(2)
    root = book.page.locator("section.it2[data-live]:not(.jp-Notebook *)")
    aside = Steered(root)
    root.locator(".plot-container").first.wait_for()
    book.run(2)
    models = book.text(2)
    aside.enter("lr", "2.5e-6")
    for view in (aside, below):
        expect(view.said("lr")).to_contain_text("asked 2.5e-6, applied 2.5e-6")
    (row,) = [row for row in aside.results() if row["name"] == "lr"]
    assert row["source"] == "panel"
    # The picture for those without a kernel is hidden beside this one, too.
    expect(book.page.locator(".jp-RenderedImage img").locator("visible=true")).to_have_count(0)
    book.run(2)
    assert book.text(2) == models
    assert book.script_errors == []


def test_fifty_views_that_come_and_go_leave_nothing_behind(open_notebook: OpenWith) -> None:
    # C76, C29: neither listeners nor heap nor models grow.
    show = "from IPython.display import clear_output\nclear_output(); display(panel)"
    book = open_notebook([RUN, show, MODELS])
    book.run(0)
    session = book.context.new_cdp_session(book.page)
    session.send("Performance.enable")

    def counted() -> dict[str, float]:
        for _ in range(3):
            session.send("HeapProfiler.collectGarbage")
        metrics = session.send("Performance.getMetrics")["metrics"]
        return {each["name"]: each["value"] for each in metrics}

    def cycle(times: int) -> None:
        for _ in range(times):
            book.run(1)
            Steered.under(book, 1)

    cycle(1)
    book.run(2)
    models = book.text(2)
    # A change of the active cell costs JupyterLab more listeners than all of these views.
    cycle(5)
    before = counted()
    cycle(45)
    after = counted()
    book.run(2)
    assert book.text(2) == models
    # JupyterLab's own listeners come and go by some hundred; one view alone has dozens.
    assert after["JSEventListeners"] <= before["JSEventListeners"] + 500
    assert after["JSHeapUsedSize"] < before["JSHeapUsedSize"] + 30e6
    assert book.page.locator("section.it2").count() == 1
