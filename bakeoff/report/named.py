"""Finds the records that a text names: a name typed by a user or printed by `bakeoff list`, or a title on a page."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bakeoff.machine import paths
from bakeoff.models import component_names
from bakeoff.models.errors import BakeoffError, meant
from bakeoff.models.pipelines import name_in_file, pipeline_names
from bakeoff.models.words import some_of
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import CeilingsRecord, Comparison, Record
from bakeoff.record.store import Records, StoredEntry
from bakeoff.report import groups

_SHOWN = 12
"""Largest number of names in a message."""
Fits = Callable[[Record | PipelineRecord], bool]


def of_name(records: Records, text: str) -> Records:
    """Return the records that `text` names, all for "", none if it names nothing.

    The first of these meanings with records is used:

    - a component, a pipeline, or the id of a sweep or run;
    - the path of a model's file, or a pipeline in it, as typed in the working folder; a function of such a file whose
      modules `bakeoff inspect` recorded; or, if the typed file does not exist, the end of the path of a file in the
      records;
    - a title, a variant or a mix, or the beginning of one up to a punctuation mark or space.

    Raises BakeoffError if the paths of several files end so.
    """
    if not text:
        return records
    for fits in (_exactly(text), _typed(text, records), _beginning(text)):
        found = _those(records, fits)
        if found.current or found.ran or found.superseded:
            return found
    return _those(records, lambda _record: False)


def source_of(records: Records, text: str) -> str:
    """Return the source of the brought model that `text` names, as it can be typed in any folder; "" if it names none.

    Raises BakeoffError if `text` names several, if the file is gone or the model was a Python object, or if the working
    folder has another file of that name.
    """
    found = _sources(of_name(records, text))
    if not found:
        return ""
    typed = os.path.expanduser(found[0])
    path = Path(typed.rpartition(":")[0] if ".py:" in typed else typed)
    if len(found) > 1:
        raise BakeoffError(f"'{text}' is {' and '.join(found)}; type one of these", "unknown-name")
    if path.suffix not in (".py", ".pt2"):
        raise BakeoffError(f"'{text}' is {found[0]}; sweep it there, in Python", "bad-user-code")
    if not path.is_file():
        raise BakeoffError(f"'{text}' was swept from {found[0]}, which is gone; give its new path", "bad-user-code")
    if os.path.isfile(path.name) and not path.samefile(path.name):
        known = f"'{text}' is {found[0]}, and {path.name} of this folder was not swept"
        raise BakeoffError(f"{known}; type one of these, or work in its folder", "unknown-name")
    return typed


def unknown(records: Records, text: str) -> BakeoffError:
    """Return the error for a text that names nothing, with the nearest known name and the names that have records."""
    held = list(dict.fromkeys(_name(record) for record in _every(records)))
    others = [name for name in (*component_names(), *pipeline_names()) if name not in held]
    near = meant(text, [*held, *others, *_sources(records)])
    listed, without = some_of(held, _SHOWN) or "nothing", ", ".join(dict.fromkeys(others))
    known = f"the records hold {listed}{f'; without records: {without}' if without else ''}"
    return BakeoffError(f"nothing is called '{text}'{near}; {known}", "unknown-name")


def _those(records: Records, fits: Fits) -> Records:
    """Return the records that fit, comparisons of which a side fits, and all ceilings."""

    def keep(entry: StoredEntry[Any]) -> bool:
        record = entry.record
        if isinstance(record, Comparison):
            return any(map(fits, record.sides))
        return isinstance(record, CeilingsRecord) or fits(record)

    return records.where(keep)


def _every(records: Records) -> Iterator[Record | PipelineRecord]:
    for entries in (records.current, records.ran):
        yield from (entry.record for entry in entries)


def _name(record: Record | PipelineRecord) -> str:
    return record.variant.component if isinstance(record, Record) else record.mix.pipeline


def _exactly(text: str) -> Fits:
    """Return a filter for records whose component, pipeline, sweep or run is exactly `text`."""

    def fits(record: Record | PipelineRecord) -> bool:
        if isinstance(record, Record):
            return text == record.sweep or text == record.variant.component
        return text in (record.run, record.mix.pipeline)

    return fits


def _typed(text: str, records: Records) -> Fits:
    """Return a filter for the records of a model's file, of a pipeline in it and its modules, or of modules that an
    inspection of its function recorded.

    Raises BakeoffError if several files of the records fit.
    """
    path, typed = text.partition(":")[0], Path(text).expanduser()
    place = typed.parent.resolve() / typed.name  # as sources are recorded
    known = _sources(records)
    home = f"{Path.home()}/"
    here = f"~/{str(place).removeprefix(home)}" if str(place).startswith(home) else str(place)
    found = [source for source in known if here in (source, source.rpartition(":")[0])]
    if not found and ".py:" in text:
        file, _, function = text.rpartition(":")
        recorded = paths.recorded_folder(Path(file).expanduser().absolute(), function).name
        found = [source for source in known if f"/{recorded}/" in source]
    if not found and path.endswith((".py", ".pt2")) and not os.path.exists(path):
        ending = f"/{Path(text)}"
        found = [source for source in known if source.endswith(ending) or source.rpartition(":")[0].endswith(ending)]
        places = {source.partition(".py:")[0] for source in found}
        if len(places) > 1:
            raise BakeoffError(f"'{text}' is {' and '.join(found)}; type one of these", "unknown-name")
    pipeline = name_in_file(text) if ".py:" in text and (found or os.path.exists(path)) else ""

    def fits(record: Record | PipelineRecord) -> bool:
        if isinstance(record, Record):
            return record.config.get("source") in found
        return record.mix.pipeline == pipeline

    return fits


def _sources(records: Records) -> list[str]:
    """Return the sources of brought models: their files or, for Python objects, where they were passed in."""
    found = (record.config.get("source") for record in _every(records) if isinstance(record, Record))
    return list(dict.fromkeys(str(source) for source in found if source))


def _beginning(text: str) -> Fits:
    """Return a filter for records of which a title begins with `text`, up to a punctuation mark, a space or its end."""

    def begins(title: str) -> bool:
        after = title[len(text) : len(text) + 1]
        return title.startswith(text) and not (after.isalnum() or after in ("-", "_"))

    return lambda record: any(map(begins, _titles(record)))


def _titles(record: Record | PipelineRecord) -> Iterable[str]:
    """Yield all titles and names under which pages show a record."""
    machine, title = record.machine, groups.title(record)
    yield groups.title(record, machine=False)
    if isinstance(record, Record):
        yield from (str(record.variant), f"{record.variant.component}.{record.variant.workload}")
    else:
        yield str(record.mix)
    titles = (title, title.replace(machine.name, f"{machine.name} ({machine.tag})", 1))  # of two with one name
    for one in titles:
        yield f"{one}, {groups.seeded(record)}" if isinstance(record, Record) else one
