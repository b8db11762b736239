from __future__ import annotations

from playwright.sync_api import expect

from .conftest import OpenWith

LOOP = """%%it2
bar = tqdm(total=4, desc="bar", mininterval=0)
print("<b>one</b>")
for i in range(4):
    if i == 2:
        go.wait(60)
    bar.update()
bar.close()
print("two")
"""


def test_the_panel_shows_what_the_run_prints_and_a_bar_is_one_line(
    open_notebook: OpenWith,
) -> None:
    setup = "%load_ext it2nb\nimport threading\nfrom tqdm import tqdm\ngo = threading.Event()"
    book = open_notebook([setup, LOOP, "go.set()\n%it2 wait"])
    book.run(0)
    book.run(1)
    output = book.panel(1).locator(".it2-output")
    lines = output.locator(".it2-line")
    # Closed, the section is one quiet line with the newest one.
    expect(output.locator("summary")).to_contain_text("<b>one</b>")
    expect(lines).to_have_count(0)
    output.locator("summary").click()
    expect(lines.first).to_contain_text("bar:  50%")
    expect(lines.nth(1)).to_have_text("<b>one</b>")
    # C23: it stands under the cell as well.
    assert "bar:  50%" in book.text(1) and "<b>one</b>" in book.text(1)
    # After a reload JupyterLab brings the cell nothing more of its run, the panel all of it.
    book.command("docmanager:save")
    book.page.reload()
    output = book.panel(1).locator(".it2-output")
    lines = output.locator(".it2-line")
    output.locator("summary").click()
    expect(lines.first).to_contain_text("bar:  50%")
    book.page.wait_for_function("() => window.jupyterapp !== undefined")
    book.run(2)
    expect(lines.nth(2)).to_have_text("two")
    expect(lines.first).to_contain_text("bar: 100%")
    assert sum("bar" in text for text in lines.all_text_contents()) == 1
    assert book.script_errors == []
