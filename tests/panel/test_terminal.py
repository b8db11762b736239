from __future__ import annotations

import io
import random
import threading

import pytest
from tqdm import tqdm  # type: ignore[import-untyped]

from it2nb.panel.output import FRESH, OutputFeed
from it2nb.panel.terminal import CHARACTERS, COLUMNS, LINES, Terminal


def shown(*writes: str) -> list[str]:
    """The lines on a terminal after these writes."""
    terminal = Terminal()
    for text in writes:
        terminal.write(text)
    return [line.text for line in terminal.lines()[1]]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one\ntwo\n", ["one", "two", ""]),
        ("12 %\r100 %\r", ["100 %"]),
        ("longer\rab", ["abnger"]),
        ("longer\r\x1b[Kab", ["ab"]),
        ("abc\b\bX", ["aXc"]),
        ("a\tb", ["a       b"]),
        ("one\r\ntwo", ["one", "two"]),
        ("first\nsecond\x1b[A\rFIRST", ["FIRST", "second"]),
        ("first\nsecond\x1b[1F\x1b[2Knew", ["new", "second"]),
        ("a\nb\nc\x1b[2A\x1b[Jz", ["az", "", ""]),
        ("gone\n\x1b[H\x1b[2Jhere", ["here"]),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x07\x07", ["link"]),
        ("\x1b[?25lhidden cursor\x1b[?25h", ["hidden cursor"]),
        ("\x1b[38;2;1;2;3mrgb\x1b[48;5;12mpalette", ["rgbpalette"]),
        ("x\x1b[3Cy\x1b[2Dz\x1b[1G.", [".  zy"]),
        ("<b>text</b> \x00\x9f&amp;", ["<b>text</b> &amp;"]),
        ("\x1b[1Kabc\x1b[1K", [""]),
    ],
)
def test_control_characters_do_what_a_terminal_does(text: str, lines: list[str]) -> None:
    assert shown(text) == lines
    # However it is torn apart on the way.
    assert shown(*text) == lines


def test_a_bar_stays_one_line_and_bars_below_each_other_two() -> None:
    terminal = Terminal()

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            terminal.write(text)
            return len(text)

    stream = Stream()
    terminal.write("before\n")
    seen = set()
    more = {"file": stream, "mininterval": 0, "ncols": 60}
    with tqdm(total=2000, desc="outer", **more) as outer:
        for _ in range(4):
            for _ in tqdm(range(500), desc="inner", position=1, leave=False, **more):
                outer.update()
                seen.add(tuple(line.text[:5] for line in terminal.lines()[1] if line.text))
    terminal.write("after\n")
    lines = [line.text for line in terminal.lines()[1] if line.text]
    assert seen == {("befor", "outer", "inner")}
    assert lines[0] == "before" and lines[-1] == "after" and len(lines) == 3
    assert "2000/2000" in lines[1] and lines[1].startswith("outer: 100%")


def test_a_bar_on_one_stream_stays_one_line_whatever_the_other_prints() -> None:
    terminal = Terminal()
    for percent in range(0, 101, 20):
        terminal.write(f"\r{percent} %", "stderr")
        terminal.write(f"epoch {percent}\n")
    terminal.write("\n", "stderr")
    terminal.write("a warning\n", "stderr")
    terminal.write("the end")
    texts = [line.text for line in terminal.lines()[1]]
    assert texts == [
        "100 %",
        *(f"epoch {each}" for each in range(0, 101, 20)),
        "a warning",
        "the end",
    ]


def test_colours_are_kept_beside_the_text() -> None:
    terminal = Terminal()
    terminal.write("ok \x1b[32mgreen\x1b[0m \x1b[1;91mbad\x1b[22m!\x1b[39m\x1b[90m.\r\x1b[mO")
    (line,) = terminal.lines()[1]
    assert line.text == "Ok green bad!."
    assert line.look == "aaacccccaBBBbi"
    terminal.write("\nplain")
    assert terminal.lines()[1][1].look == ""


def test_what_is_kept_is_bounded_whatever_is_printed() -> None:
    terminal = Terminal()
    for number in range(3 * LINES):
        terminal.write(f"line {number}\n")
    first, lines = terminal.lines()
    assert len(lines) == LINES and lines[-2].text == f"line {3 * LINES - 1}"
    assert [line.number for line in lines] == list(range(first, first + LINES))
    terminal.write("x" * 10_000_000)
    assert len(terminal.lines()[1][-1].text) == COLUMNS
    for _ in range(LINES):
        terminal.write("y" * 5_000 + "\n")
    assert sum(len(line.text) for line in terminal.lines()[1]) <= CHARACTERS
    for _ in range(1_000):
        terminal.write("\x1b[9999B\x1b[9999A\x1b[9999C\x1b]0;never closed")
    assert len(terminal.lines()[1]) <= LINES and len(terminal._cursors["stdout"].torn) < 1_000


def test_any_text_from_any_thread_is_survived() -> None:
    terminal = Terminal()
    alphabet = [
        "\x1b",
        "[",
        "]",
        "1",
        ";",
        "m",
        "A",
        "J",
        "K",
        "\n",
        "\r",
        "\b",
        "\t",
        "x",
        "é",
        "\x07",
    ]

    def babble(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(300):
            terminal.write("".join(chance.choices(alphabet, k=20)))

    threads = [threading.Thread(target=babble, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _, lines = terminal.lines()
    assert all(len(line.text) <= COLUMNS for line in lines)
    assert all(
        len(line.look) in (0, len(line.text)) or not line.look[len(line.text) :] for line in lines
    )
    assert terminal._size == sum(len(line.text) for line in terminal._lines)


class Screen:
    """What a page makes of a feed, as js/src/store.ts does."""

    def __init__(self) -> None:
        self.feed = OutputFeed()
        self.lines: dict[int, str] = {}

    def hear(self, terminal: Terminal) -> int | None:
        """Take one batch; returns its size in characters, None when there was nothing new."""
        output = self.feed.fresh(terminal)
        if output is None:
            return None
        self.lines = {n: text for n, text in self.lines.items() if n >= output.first}
        self.lines.update((line.line, line.text) for line in output.lines)
        return sum(len(line.text) for line in output.lines)


def test_a_page_that_hears_every_batch_shows_the_terminal() -> None:
    terminal, screen = Terminal(), Screen()
    chance = random.Random(1)
    assert screen.hear(terminal) is None
    for _ in range(200):
        for _ in range(chance.randrange(12)):
            terminal.write(
                chance.choice(["a\n", "bar\r", "long " * 30 + "\n", "\x1b[A", "\x1b[2J"])
            )
        size = screen.hear(terminal)
        assert size is None or size <= FRESH
    while screen.hear(terminal) is not None:
        pass
    assert screen.lines == {line.number: line.text for line in terminal.lines()[1]}
    assert screen.feed._told.keys() == screen.lines.keys()


def test_in_a_flood_the_newest_lines_come_first_and_the_others_follow() -> None:
    terminal, screen = Terminal(), Screen()
    for number in range(5_000):
        terminal.write(f"{number} {'x' * 80}\n")
    screen.hear(terminal)
    newest = max(screen.lines)
    assert newest == 5_000 and len(screen.lines) < LINES
    batches = 1
    while screen.hear(terminal) is not None:
        batches += 1
    assert sorted(screen.lines) == list(range(5_000 - LINES + 1, 5_001))
    assert 2 < batches < 10
