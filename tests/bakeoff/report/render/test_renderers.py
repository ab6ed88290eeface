"""Documents as markdown and HTML: what records hold is text, and links lead where they should."""

import re

from bakeoff.report.document import Cell, Details, Document, Heading, Lines, Link, Section, Text, blocks, table
from bakeoff.report.render import html, markdown, terminal

HOSTILE = "<script>alert(1)</script> [x](javascript:y) a|b"
PAGE = Document(
    "page",
    (
        Section(
            "rows",
            blocks(
                Text(HOSTILE, tone="open", links=(Link("final", "records/final.json"),)),
                table(
                    [Heading("variant"), Heading("ms", numeric=True)],
                    [
                        [Cell("eager", strong=True, link=Link("abc", "records/a.json")), Cell("10.0", 10.0)],
                        [Cell(HOSTILE, tone="bad", link=Link("abc", "records/b.json")), Cell("9.0", 9.0)],
                    ],
                ),
                Details("more", (Text("inner"),)),
            ),
        ),
        Section("others", (Text("none"),)),
    ),
)


def test_markdown_has_no_html_and_no_link_of_a_record() -> None:
    page = markdown.render(PAGE)
    assert "<script" not in page
    assert "](javascript" not in page
    assert "a\\|b" in page


def test_markdown_cites_by_reference_and_labels_are_of_one_address() -> None:
    page = markdown.render(PAGE)
    assert "**eager** [abc]" in page
    assert "[abc]: records/a.json\n[abc 2]: records/b.json" in page
    assert markdown.citations(page) == ["final", "a", "b"]


def test_html_escapes_and_allows_its_own_scripts_only() -> None:
    page = html.render(PAGE, interactive=False)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert re.search(r"script-src &#39;sha256-[^&]+&#39;;", page)


def test_html_lists_its_sections_with_what_was_decided() -> None:
    page = html.render(PAGE, interactive=False)
    contents = page.partition("<nav")[2].partition("</nav>")[0]
    assert 'href="#part-1">rows' in contents
    assert "alert(1)" not in contents, "it is open"
    assert 'href="#part-2">others' in contents
    decided = Document("page", tuple(Section(str(part), (Text("Deploy this.", tone="good"),)) for part in range(2)))
    contents = html.render(decided, interactive=False).partition("<nav")[2].partition("</nav>")[0]
    assert contents.count("Deploy this.") == 2
    assert 'class="verdict open"' in page
    assert 'id="part-2"' in page


def test_lines_of_a_program_keep_their_spaces_and_are_text() -> None:
    page = Document("", (Lines(("Traceback", "  <b>\x1b[2J")),))
    assert terminal.render(page) == "Traceback\n  <b> [2J"
    assert markdown.render(page) == "    Traceback\n      <b> [2J\n"
    assert "<pre>Traceback\n  &lt;b&gt; [2J</pre>" in html.render(page, interactive=False)
