"""The harness itself: it sees what a person would see."""

from __future__ import annotations

import pytest

from .conftest import OpenWith, kernel_overlay
from .harness import App
from .server import JupyterServer


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_cells_run_and_their_outputs_are_read(open_notebook: OpenWith, app: App) -> None:
    book = open_notebook(["print('hi')\n6 * 7", "1 / 0", "import it2nb; it2nb.__file__"], app=app)
    for index in range(3):
        book.run(index)
    assert book.text(0) == "hi\n42\n"
    assert book.text(1) == "ZeroDivisionError: division by zero\n"
    assert "site" in book.text(2)
    assert book.cell(0).inner_text().count("42") == 1
    assert book.foreign_requests == []


def test_a_request_to_another_host_is_seen_and_fails(open_notebook: OpenWith) -> None:
    book = open_notebook(["1"])
    gone = book.page.evaluate("() => fetch('http://example.org/x').then(() => 'ok', () => 'no')")
    assert gone == "no"
    assert book.foreign_requests == ["http://example.org/x"]


@pytest.mark.parametrize("release", ["6.31.0", "7.3.0"])
def test_an_older_kernel_is_the_one_asked_for(
    open_notebook: OpenWith, jupyter: JupyterServer, release: str
) -> None:
    kernel = jupyter.add_kernel(f"py{release}", kernel_overlay(f"ipykernel=={release}"))
    book = open_notebook(["import ipykernel; print(ipykernel.__version__)"], kernel=kernel)
    book.run(0)
    assert book.text(0) == f"{release}\n"


def test_an_error_of_a_script_is_told(open_notebook: OpenWith) -> None:
    book = open_notebook(["1"])
    book.page.evaluate("""() => import(URL.createObjectURL(new Blob(
        ["setTimeout(() => { throw new Error('broken') })"], { type: "text/javascript" })))""")
    book.page.wait_for_timeout(0)
    book.page.wait_for_function("() => true")
    assert ["broken" in line for line in book.script_errors] == [True]
