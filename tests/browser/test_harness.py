"""The harness itself: it sees what a person would see."""

from __future__ import annotations

from .conftest import OpenWith


def test_cells_run_and_their_outputs_are_read(open_notebook: OpenWith) -> None:
    book = open_notebook(["print('hi')\n6 * 7", "1 / 0", "import it2nb; it2nb.__file__"])
    for index in range(3):
        book.run(index)
    assert book.text(0) == "hi\n42\n"
    assert book.text(1) == "ZeroDivisionError: division by zero\n"
    assert "site" in book.text(2)
    assert book.cell(0).inner_text().count("42") == 1
    assert book.foreign_requests == []
    assert book.script_errors == []

    # A request to another host is seen and fails.
    gone = book.page.evaluate("() => fetch('http://example.org/x').then(() => 'ok', () => 'no')")
    assert gone == "no"
    assert book.foreign_requests == ["http://example.org/x"]

    # So is an error in a script.
    book.page.evaluate("""() => import(URL.createObjectURL(new Blob(
        ["setTimeout(() => { throw new Error('broken') })"], { type: "text/javascript" })))""")
    book.page.wait_for_timeout(0)
    book.page.wait_for_function("() => true")
    assert ["broken" in line for line in book.script_errors] == [True]
