"""Renders documents as one offline HTML page: sortable tables, and figures with a pointer or, without scripts, drawn.

Everything is inside the file; its content security policy forbids loading anything and allows only the scripts whose
hashes it names.
"""

import base64
import hashlib
from contextlib import suppress
from importlib import resources
from typing import TYPE_CHECKING, Any

from bakeoff.machine import paths
from bakeoff.machine.files import write_atomically
from bakeoff.machine.terminal import one_line, printable
from bakeoff.models.errors import BakeoffError
from bakeoff.record.codec import encode_json
from bakeoff.report.document import Document, Section, headings_of, legend
from bakeoff.report.figures.vega import Figure, drawn, library
from bakeoff.report.format import INSTALL

if TYPE_CHECKING:
    import jinja2


def render(document: Document, interactive: bool = True) -> str:
    """Return the document as an HTML page. Equal documents give equal text.

    With `interactive`, scripts of 0.9 MB draw each figure when the reader scrolls to it. Without, figures are drawn
    here, and the page's only script is the one that sorts. Raises BakeoffError if jinja2 or the library that draws
    figures is missing.
    """
    drawing = _drawing() if interactive else ""
    scripts = [text for text in (drawing, _read("page.js")) if text]
    assert not any("</script" in text.lower() for text in scripts)
    explained = legend(headings_of(document.blocks))
    first = next((place for place, block in enumerate(document.blocks) if isinstance(block, Section)), None)
    return _template().render(
        title=document.title,
        lead=document.blocks[:first],
        sections=document.blocks[first:] if first is not None else (),
        legend=explained,
        policy=_policy(*scripts),
        style=_read("page.css"),
        scripts=scripts,
        interactive=interactive,
    )


def _drawing() -> str:
    """Return the script that draws figures; it is cached, since the library takes a second to put it together."""
    made = library()
    kept = paths.cache_folder() / f"figures-{made.__version__}.js"
    with suppress(OSError):
        return kept.read_text(encoding="utf-8")
    text: str = made.javascript_bundle()
    with suppress(BakeoffError):  # a page can be made without a cache
        write_atomically(kept, text.encode())
    return text


def _template() -> "jinja2.Template":
    """Return the page's template, which escapes all values and puts each text on one line of printable characters."""
    try:
        import jinja2
    except ModuleNotFoundError as error:
        text = f"HTML pages need {error.name}, which is not installed. {INSTALL}"
        raise BakeoffError(text, code="missing-library") from error

    def plain(value: Any) -> Any:
        return one_line(value) if type(value) is str else value  # leaves Markup, a subclass, alone

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kind"] = lambda block: type(block).__name__
    environment.filters["data"] = _as_script_data
    environment.filters["lines"] = lambda texts: "\n".join(map(printable, texts))
    environment.filters["drawn"] = _drawn
    environment.filters["order"] = lambda value: str(value).replace("inf", "Infinity")
    return environment.get_template("page.html.j2")


def _drawn(figure: Figure) -> str:
    """Return a figure as the data URL of a picture: several inline drawings on one page would share names."""
    return f"data:image/svg+xml;base64,{base64.b64encode(drawn(figure)).decode()}"


def _read(name: str) -> str:
    """Return the text of a file beside this module, which is part of the installed package."""
    return resources.files("bakeoff.report.render").joinpath(name).read_text(encoding="utf-8")


def _policy(*scripts: str) -> str:
    """Return a content security policy under which only these scripts run and nothing is loaded."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    sources = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _as_script_data(figures: tuple[Figure, ...]) -> str:
    """Return the specifications as JSON, with characters escaped that matter to HTML or end a line of a script."""
    text = encode_json({figure.name: figure.spec for figure in figures}).decode()
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text
