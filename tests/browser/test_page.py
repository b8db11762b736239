"""The server's page in a real browser: the same panel, nothing from elsewhere, behind a prefix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.core.driving import until
from tests.server.conftest import Served
from tests.server.proxy import PrefixProxy

from .conftest import OpenWith
from .harness import TIMEOUT_MS
from .steering import Steered

expect.set_options(timeout=TIMEOUT_MS)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "runs")
    made.loop.advance(30)
    yield made
    made.close()


class Watched:
    """A page, what it fetched, and what it complained about."""

    def __init__(self, browser: Browser) -> None:
        self.page: Page = browser.new_page(viewport={"width": 1200, "height": 800})
        self.fetched: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.fetched.append(request.url))
        self.page.on("websocket", lambda socket: self.fetched.append(socket.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "console",
            lambda message: (
                self.complaints.append(message.text) if message.type == "error" else None
            ),
        )

    def open(self, url: str) -> None:
        self.page.goto(url)
        expect(self.page.locator(".it2[data-live]")).to_be_visible()
        expect(self.page.locator(".main-svg").first).to_be_visible()


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    made = Watched(browser)
    yield made
    made.page.close()


def steer(served: Served, watched: Watched) -> None:
    """Pause with the page's button."""
    watched.page.locator(".it2 button", has_text="Pause").first.click()
    until(lambda: len(served.session.queue) > 0)
    served.loop.advance(wait=False)
    expect(watched.page.locator(".it2")).to_have_attribute("data-status", "paused")
    requests = served.session.journal.requests()
    assert requests["type"].tolist() == ["pause"]
    assert requests["source"].tolist() == ["http"]
    watched.page.locator(".it2 button", has_text="Resume").first.click()
    served.loop.came_back()
    expect(watched.page.locator(".it2")).to_have_attribute("data-status", "running")


def test_a_one_time_link_opens_the_panel_which_steers_and_can_be_reloaded(
    served: Served, watched: Watched
) -> None:
    # C58, C31
    watched.open(served.server.page)
    assert "ticket" not in watched.page.url
    steer(served, watched)
    watched.page.reload()
    expect(watched.page.locator(".it2[data-live]")).to_be_visible()
    own = (served.server.url, served.server.url.replace("http", "ws"), "data:", "blob:")
    assert [url for url in watched.fetched if not url.startswith(own)] == []
    assert watched.complaints == []


def test_behind_a_prefix_the_page_works_by_relative_addresses(
    served: Served, watched: Watched
) -> None:
    # C60
    prefix = f"/user/x/proxy/{served.server.port}"
    proxy = PrefixProxy(served.server.port, prefix)
    try:
        watched.open(f"{proxy.url}/?token={served.server.token}")
        steer(served, watched)
        own = (proxy.url, proxy.url.replace("http", "ws"), "data:", "blob:")
        assert [url for url in watched.fetched if not url.startswith(own)] == []
        assert watched.complaints == []
    finally:
        watched.page.goto("about:blank")
        proxy.close()


def test_a_page_whose_server_went_and_came_back_goes_on(served: Served, watched: Watched) -> None:
    from it2nb.server.server import serve

    watched.open(served.server.link)
    port, token = served.server.port, served.server.token
    served.server.close()
    expect(watched.page.locator(".it2")).to_contain_text("disconnected")
    served.server = serve(served.session, port=port, token=token)
    expect(watched.page.locator(".it2")).not_to_contain_text("disconnected")
    steer(served, watched)


def test_without_a_token_there_is_no_page(served: Served, watched: Watched) -> None:
    answer = watched.page.goto(served.server.url)
    assert answer is not None
    assert answer.status == 401
    assert served.session.run_id not in answer.text()


def test_a_run_of_another_process_has_its_panel_in_a_notebook(
    served: Served, open_notebook: OpenWith, tmp_path: Path
) -> None:
    # The token comes from a file: a cell's text is part of the notebook.
    secret = tmp_path / "token"
    secret.write_text(served.server.token)
    book = open_notebook(
        [
            f"import it2nb, os\nos.environ['IT2NB_TOKEN'] = open({str(secret)!r}).read()\n"
            f"run = it2nb.attach({served.server.url!r})\nrun",
        ]
    )
    book.run(0)
    panel = Steered.under(book, 0)
    panel.enter("lr", "0.25")
    until(lambda: len(served.session.queue) > 0)
    served.loop.advance()
    expect(panel.said("lr")).to_contain_text("asked 0.25, applied 0.25")
    assert served.values["lr"] == 0.25
    (actor,) = served.session.journal.requests()["actor"]
    assert actor == "panel"
