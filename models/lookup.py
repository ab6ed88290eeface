"""Find an object by its name in a table, or by a user's own `package.module:ATTRIBUTE`."""

import re
from collections.abc import Mapping
from importlib import import_module
from typing import TypeVar

from bakeoff.models.errors import BakeoffError, meant

T = TypeVar("T")
_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def look_up(reference: str, table: Mapping[str, str], kind: type[T], own: str) -> T:
    """Import the object that `reference` names and check that it is a `kind`.

    `table` maps names to `module:ATTRIBUTE`; `own` is what error messages show as an example of a user's own.
    Raises BakeoffError when the name is unknown, the import fails, or the object is not a `kind`.
    """
    what = kind.__name__.lower()
    target = table.get(reference, reference)
    if not _PATH.fullmatch(target):
        raise BakeoffError(
            f"no {what} '{reference}'{meant(reference, table)}; known: {', '.join(table)}; for your own give {own}",
            code="unknown-name",
        )
    module_name, _, name = target.partition(":")
    try:
        found = getattr(import_module(module_name), name)
    except (ImportError, AttributeError, BakeoffError) as error:
        raise BakeoffError(f"{what} '{reference}' cannot be loaded: {error}", code="bad-user-code") from error
    except (Exception, SystemExit) as error:  # importing a user's module may raise anything
        raise BakeoffError(
            f"{what} '{reference}' cannot be loaded: {type(error).__name__}: {error}", code="bad-user-code"
        ) from error
    if not isinstance(found, kind):
        raise BakeoffError(
            f"'{reference}' is of type {type(found).__name__}, not {kind.__module__}.{kind.__name__}",
            code="bad-user-code",
        )
    return found
