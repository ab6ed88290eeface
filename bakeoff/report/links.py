"""Links from one page to another: to the files of records and the pages of machines."""

import posixpath
from collections.abc import Callable, Iterable
from urllib.parse import quote

from bakeoff.machine.identity import Machine
from bakeoff.record.store import RECORDS, Records, Stored, StoredComparison, StoredPipeline
from bakeoff.report import document

PROFILES = "profiles"
"""Folder of a machine, beside that of its records, with the pages of profiles; they are named as their records."""
AGAIN = "Run: make history; for published pages: make publish"
Cited = Callable[[Stored | StoredComparison | StoredPipeline], document.Link]
"""From an entry to a link to its file, below the entry's hash."""
Link = Callable[[Stored | StoredComparison | StoredPipeline], str]
"""From an entry to the address of its file, relative to the page that links to it."""


def file_of(entry: Stored | StoredComparison | StoredPipeline) -> str:
    """Return the entry's file, relative to the folder of all runs."""
    return f"{entry.folder or f'{entry.machine.folder}/{RECORDS}'}/{entry.id}.json"


def links_from(folder: str) -> Link:
    """Links of a page in `folder`, which is relative to the folder of all runs: "" is that folder itself."""
    return lambda entry: _quoted(posixpath.relpath(f"/{file_of(entry)}", f"/{folder}"))


def links_with(prefix: str) -> Link:
    """Links of a page elsewhere: `prefix` is the folder of all runs relative to that page."""
    return lambda entry: _quoted(posixpath.join(prefix, file_of(entry)))


def cited_by(link: Link) -> Cited:
    """The same addresses, each below the hash of its entry."""
    return lambda entry: document.Link(entry.id.rpartition("_")[2], link(entry))


def profile_page(link: Link, entry: StoredPipeline) -> str:
    """Return the address of the page of a record's profile."""
    return posixpath.normpath(posixpath.join(link(entry), "..", "..", PROFILES, f"{_quoted(entry.id)}.html"))


def _quoted(path: str) -> str:
    return quote(path, safe="/=+,@~")


def folders_of(records: Records) -> dict[str, str]:
    """Return the folder of each machine by its id, relative to the folder of all runs.

    It is the one that its records lie in, else the one that its next record will lie in.
    """
    entries: Iterable[Stored | StoredComparison | StoredPipeline] = (
        *records.current,
        *(entry for entry, _ in records.superseded),
        *records.comparisons,
        *records.pipelines,
    )
    found: dict[str, str] = {}
    for entry in entries:
        machine: Machine = entry.machine
        folder = posixpath.dirname(entry.folder)
        if folder.endswith(f"-{machine.id[:6]}"):
            found[machine.id] = folder
        else:
            found.setdefault(machine.id, machine.folder)
    return found
