"""One server and one Chromium serve all browser tests; each test has a window of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.conftest import ROOT
from tests.overlay import overlay, pip_install

from .harness import App, OpenNotebook, chromium
from .server import JupyterServer

HERE = Path(__file__).parent
# How long a person would wait is not what these tests are about.
expect.set_options(timeout=60_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these last and mark them.

    Last because they are slow, and because Playwright's loop counts as running in this thread
    from the first of them on, so that ``asyncio.run`` would fail in a test that came after.
    """
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(600))
    items.sort(key=lambda item: HERE in item.path.parents)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel, built from this checkout, into an empty folder."""
    folder = tmp_path_factory.mktemp("site")
    wheel = os.environ.get("IT2NB_WHEEL")
    if not wheel:
        built = tmp_path_factory.mktemp("wheel")
        build = ["-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
        subprocess.run([sys.executable, *build], cwd=ROOT, check=True)
        (path,) = built.glob("*.whl")
        wheel = str(path)
    pip_install(folder, str(Path(ROOT, wheel)))
    return folder


def kernel_overlay(requirement: str) -> Path:
    """Return a folder that holds one release of ipykernel, kept between runs."""
    return overlay("kernels", requirement)


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory, site: Path) -> Iterator[JupyterServer]:
    """Start a server that serves the wheel, with the kernels that the tests ask for."""
    with JupyterServer(tmp_path_factory.mktemp("jupyter") / "home", site=site) as server:
        server.add_kernel("python3")
        yield server


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start Chromium."""
    with sync_playwright() as playwright, chromium(playwright) as running:
        yield running


class OpenWith:
    """Opens notebooks for one test: of some cells' code, or a copy of a file."""

    def __init__(self, jupyter: JupyterServer, browser: Browser, test: str) -> None:
        self.books: list[OpenNotebook] = []
        self.jupyter = jupyter
        self._browser = browser
        self._test = "".join(c if c.isalnum() else "-" for c in test)

    def __call__(
        self,
        cells: Sequence[str] | Path,
        *,
        kernel: str = "python3",
        app: App = "lab",
        size: tuple[int, int] = (1400, 1000),
    ) -> OpenNotebook:
        name = f"{self._test}-{len(self.books)}"
        if isinstance(cells, Path):
            self.jupyter.put_notebook(name, cells, kernel=kernel)
        else:
            self.jupyter.write_notebook(name, cells, kernel=kernel)
        self.books.append(OpenNotebook(self.jupyter, self._browser, name, app=app, size=size))
        return self.books[-1]


@pytest.fixture
def open_notebook(
    jupyter: JupyterServer, browser: Browser, request: pytest.FixtureRequest
) -> Iterator[OpenWith]:
    """Open notebooks; their windows and kernels end with the test."""
    opener = OpenWith(jupyter, browser, request.node.name)
    with ExitStack() as stack:
        stack.callback(jupyter.end_kernels)
        yield opener
        for book in opener.books:
            stack.callback(book.close)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure what a person would have seen."""
    report = yield
    opener = getattr(item, "funcargs", {}).get("open_notebook")
    if report.when == "call" and report.failed and isinstance(opener, OpenWith):
        pictures = ROOT / ".cache" / "browser"
        pictures.mkdir(parents=True, exist_ok=True)
        for book in opener.books:
            picture = book.screenshot(pictures / f"{book.name}.png")
            report.sections.append((f"{book.name}, {picture}", book.told()))
        report.sections.append(("Jupyter's log", "\n".join(opener.jupyter.log[-30:])))
    return report
