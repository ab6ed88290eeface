"""What is printed of a sweep that has ended, wherever it ran, and its exit code."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.cli.common import print_document, print_text, say
from bakeoff.models.words import counted

if TYPE_CHECKING:
    from bakeoff.sweeps.run import SweepResult


def print_done(done: "SweepResult", rows: int, folder: Path, resume: str) -> None:
    """Print the tables of a sweep of `rows` rows, whose records are in `folder`; `resume` is the command that goes on
    with it."""
    from bakeoff.record.store import folder_of, load_all
    from bakeoff.report import notes
    from bakeoff.report.document import Document, blocks, listed
    from bakeoff.report.format import duration
    from bakeoff.report.groups import newest
    from bakeoff.report.pages import batch_curve, sweep

    shown, held = newest(done.stored), load_all(folder)
    parts = sweep.newest_tables(shown, held.current, done.finals, held.ceilings)
    where = folder_of(folder, done.stored[0].record) if done.stored else folder
    took = f"; took {duration(done.used_s * 1000)}" if done.used_s else ""
    kept = f"sweep {done.sweep}: {len(done.stored)} of {counted(rows, 'row')} recorded in {where}{took}"
    missing = done.out_of_time if _measured(done) else None
    left_out = notes.out_of_time(missing, done.stored, resume) if missing else ()
    print_text("")
    ended = blocks(listed([kept]), *left_out)
    print_document(Document(done.sweep, (*parts, *batch_curve.sections(shown), *ended)))


def summary(done: "SweepResult") -> dict[str, object]:
    """Return a sweep as `--json` prints it."""
    return {
        "sweep": done.sweep,
        "objective": str(done.objective),
        "records": [stored.id for stored in done.stored],
        "finals": [stored.id for stored in done.finals],
        "interrupted": done.interrupted,
        "used_s": round(done.used_s, 1),
        "out_of_time": done.out_of_time,
    }


def resume_command(arguments: Sequence[str], option: str = "--time-limit") -> str:
    """Return the command, as a user types it, that runs what this one left out.

    Without `option`, which has a value: the time limit, or "" after an interruption, to keep that too.
    """
    if os.environ.get("MAKELEVEL"):
        return "make sweep RESUME=1, with your other settings as before (TIME_LIMIT as you like)"
    words: list[str] = []
    skip = False
    for word in arguments:
        if not skip and word.partition("=")[0] not in (option, "--resume"):
            words.append(word)
        skip = word == option
    return shlex.join(["bakeoff", *words, "--resume"])


def exit_code(done: "SweepResult", strict: bool) -> int:
    """Return the exit code: 3 if nothing was measured or built, 1 with `strict` if a row is not ok, else 0.

    A row that was left out for lack of time is not known to be ok.
    """
    from bakeoff.report import notes

    if not _measured(done):
        if done.out_of_time is not None:
            say(notes.nothing_measured(done.out_of_time))
        return 3
    left_out = done.out_of_time is not None and bool(done.out_of_time.left_out)
    return int(strict and (left_out or any(stored.record.status not in ("ok", "built") for stored in done.stored)))


def _measured(done: "SweepResult") -> bool:
    from bakeoff.record.schema import MEASURED

    return any(stored.record.status in (*MEASURED, "built") for stored in done.stored)
