"""The environment of the pages' templates: everything is escaped, and text is one line that no terminal obeys."""

from typing import TYPE_CHECKING, Any

from bakeoff.machine.terminal import one_line
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.report.format import INSTALL, shorten
from bakeoff.report.html.embed import read

if TYPE_CHECKING:
    import jinja2


def template(name: str, what: str, letters: int = 0) -> "jinja2.Template":
    """The template in the file `name` beside this one; templates may import macros from one another.

    With `letters`, longer texts lose their middle. Raises BakeoffError where jinja2, which `what` needs, is missing.
    """
    try:
        import jinja2
    except ModuleNotFoundError as error:
        text = f"{what} needs {error.name}, which is not installed. {INSTALL}"
        raise BakeoffError(text, code="missing-library") from error

    def plain(value: Any) -> Any:
        if type(value) is not str:  # leaves Markup, a subclass, alone
            return value
        return shorten(value, letters) if letters else one_line(value)

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["counted"] = counted
    return environment.get_template(name)
