"""Documents on a terminal: they fit its width, and nothing is lost without a sign."""

import pytest

from bakeoff.report.document import Cell, Command, Document, Heading, Section, Text, blocks, listed, table
from bakeoff.report.render import terminal

LONG = "because " * 30
MADE = table(
    [
        Heading("variant"),
        Heading("median ms [95 %]", numeric=True),
        Heading("p99 ms", numeric=True, leaves=2),
        Heading("build s", numeric=True, leaves=5),
        Heading("empty", leaves=1),
        Heading("why"),
    ],
    [
        [Cell("inductor[max-autotune,freezing] bf16", strong=True), "2.00 [1.90, 2.10]", "3.00", "61.0/7.3", "", LONG],
        [Cell("eager fp32", tone="bad"), "12.0 [11.9, 12.1]", "13.0", "", "", "\x1b[31mred\nline"],
    ],
    title="Rows",
)
PAGE = Document("page", (Section("wm:200m.step, " * 10, blocks(Text(LONG, tone="open"), MADE, listed(["a", "a"]))),))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, terminal.render(PAGE, width).splitlines())) <= width


def test_columns_leave_in_their_order_and_empty_ones_never_show() -> None:
    heads = {width: terminal.render(PAGE, width).partition("Rows\n")[2].splitlines()[0] for width in (80, 100, 120)}
    assert "empty" not in terminal.render(PAGE)
    assert "p99 ms" in heads[120]
    assert "build s" in heads[120]
    assert "p99 ms" in heads[100]
    assert "build s" not in heads[100]
    assert "p99 ms" not in heads[80]
    assert "median ms [95 %]" in heads[80]


def test_names_are_shortened_after_all_other_words() -> None:
    assert "* inductor[max-autotune,freezing] bf16" in terminal.render(PAGE, 100)


def test_without_a_width_every_line_is_whole() -> None:
    assert LONG.strip() in terminal.render(PAGE)


def test_a_terminal_obeys_no_text_of_a_record() -> None:
    assert "\x1b" not in terminal.render(PAGE)
    assert "red line" in terminal.render(PAGE)


def test_colours_are_of_tones_and_only_where_asked_for() -> None:
    assert "\x1b[33m" in terminal.render(PAGE, 80, colour=True)
    assert "\x1b" not in terminal.render(PAGE, 80)


def test_a_command_is_on_one_line_at_any_width() -> None:
    command = "bakeoff compare " + "'wm:200m.step/inductor[freezing]/bf16@cpu' " * 3
    assert command.strip() in terminal.render(Document("", (Command(command),)), 40).splitlines()


def test_columns_that_left_are_named() -> None:
    assert "columns left out for width: p99 ms, build s" in terminal.render(PAGE, 80)
    assert "left out" not in terminal.render(PAGE)


@pytest.mark.parametrize("width", [60, 80, None])
def test_a_table_that_wraps_keeps_all_columns_and_texts_whole(width: int | None) -> None:
    name = "fused_" * 30
    wrapped = table(
        (Heading("where", leaves=1), "why", Heading("ms", numeric=True)), [(name, LONG, "1.25")], wraps=True
    )
    lines = terminal.render(Document("page", blocks(wrapped)), width).splitlines()
    assert width is None or max(map(len, lines)) <= width
    assert lines[0].split() == ["where", "why", "ms"]
    assert set(lines[1]) == {"-", " "}
    wide = lines[1].index(" ")
    assert "".join(line[:wide] for line in lines[2:]).replace(" ", "") == name
    assert sum(line[wide:].count("because") for line in lines[2:]) == 30
