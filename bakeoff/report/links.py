"""Addresses of records' files, and of the pages of machines and profiles, for links from one page to another."""

import posixpath
from collections.abc import Callable, Iterable
from urllib.parse import quote

from bakeoff.machine.identity import Machine
from bakeoff.record.store import RECORDS, Records, Stored, StoredComparison, StoredPipeline
from bakeoff.report import document

PROFILES = "profiles"
"""Name of a machine's folder of profile pages, beside its folder of records; a page has the name of its record."""
AGAIN = "Run: make history; for published pages: make publish"
_ANCHOR = 7
"""Number of characters."""
Cited = Callable[[Stored | StoredComparison | StoredPipeline], document.Link]
"""Function from an entry to a link to its file, labelled with the entry's hash."""
Link = Callable[[Stored | StoredComparison | StoredPipeline], str]
"""Function from an entry to the address of its file, relative to the page with the link."""


def file_of(entry: Stored | StoredComparison | StoredPipeline) -> str:
    """Return the path of the file that has the entry, relative to the folder of all runs."""
    return f"{entry.folder or f'{entry.machine.folder}/{RECORDS}'}/{entry.summary or entry.id}.json"


def home_of(entry: Stored | StoredComparison | StoredPipeline) -> str:
    """Return the folder that has the entry's folder of records, and pages of this entry beside that."""
    return posixpath.dirname(entry.folder) or entry.machine.folder


def links_from(folder: str) -> Link:
    """Return the `Link` function of a page in `folder`, relative to the folder of all runs, which "" stands for."""
    return lambda entry: _quoted(posixpath.relpath(f"/{file_of(entry)}", f"/{folder}"))


def links_with(prefix: str) -> Link:
    """Return the `Link` function of a page elsewhere; `prefix` is the path from there to the folder of all runs."""
    return lambda entry: _quoted(posixpath.join(prefix, file_of(entry)))


def cited_by(link: Link, anchored: bool = False) -> Cited:
    """Return a function that makes links with the same addresses, each labelled with the entry's hash.

    If they are `anchored`, other pages can link to the line of each.
    """
    return lambda entry: document.Link(entry.id.rpartition("_")[2], link(entry), anchor(entry) if anchored else "")


def anchor(entry: Stored | StoredComparison | StoredPipeline) -> str:
    """Return the name of an entry's line on a page: the first characters of its hash."""
    return entry.id.rpartition("_")[2][:_ANCHOR]


def profile_page(link: Link, entry: StoredPipeline) -> str:
    """Return the address of the page of a record's profile."""
    return posixpath.normpath(posixpath.join(link(entry), "..", "..", PROFILES, f"{_quoted(entry.id)}.html"))


def _quoted(path: str) -> str:
    return quote(path, safe="/=+,@~")


def folders_of(records: Records) -> dict[str, str]:
    """Return the folder of each machine by the machine's key, relative to the folder of all runs.

    It is the folder that contains the machine's records or, if there is none of its own, the one for its next record.
    """
    entries: Iterable[Stored | StoredComparison | StoredPipeline] = (
        *records.current,
        *(entry for entry, _ in records.superseded),
        *records.comparisons,
        *records.ran,
    )
    found: dict[str, str] = {}
    for entry in entries:
        machine: Machine = entry.machine
        folder = posixpath.dirname(entry.folder)
        if folder.endswith(f"-{machine.tag}"):
            found[machine.key] = folder
        else:
            found.setdefault(machine.key, machine.folder)
    return found
