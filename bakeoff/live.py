"""`bakeoff.sweep(module, inputs)`: sweep a live torch module from a script or a notebook.

The module is written to the cache, and `bakeoff sweep` runs in a child process as if typed in a shell, so that nothing
is measured in the process that has loaded the user's libraries and data.
"""

import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bakeoff.machine import paths
from bakeoff.models.brought.model import Model
from bakeoff.models.errors import BakeoffError, ErrorCode, a_type
from bakeoff.models.words import counted
from bakeoff.process.environment import IN_WORKER
from bakeoff.process.guard import CALLER
from bakeoff.record.schema import Record
from bakeoff.record.source import content_hash
from bakeoff.record.store import Records, Stored, StoredComparison, load_all
from bakeoff.report.document import Document
from bakeoff.report.groups import groups, newest
from bakeoff.report.pages.sweep import newest_tables
from bakeoff.report.recommendation import decision
from bakeoff.report.render import terminal

Names = str | Sequence[str]
COMMAND = (sys.executable, "-P", "-m", "bakeoff")
_ERROR = re.compile(r"bakeoff: (?P<text>.*?)(?: \[(?P<code>[a-z-]+)\])?")
_WITH_RESULT = (0, 1, 3)
"""Exit codes with which the command has printed its result as JSON."""


@dataclass(frozen=True, slots=True)
class Swept:
    """Records of one sweep. `print` and notebooks show them as the sweep's table."""

    sweep: str
    """Id of the sweep."""
    folder: Path
    """Folder of the records."""
    stored: tuple[Stored, ...]
    """Records with their ids."""
    finals: tuple[StoredComparison, ...] = ()
    """Comparisons of the two best rows of each input set."""
    held: Records | None = None
    """All records of the folder after the sweep; the table takes ceilings from them."""

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(entry.record for entry in self.stored)

    @property
    def best(self) -> Record | None:
        """Record of the final's winner, or without one the best row by the objective; None if no row can be ranked.

        With several input sets, it is the best of the first set that has a ranked row.
        """
        for group in groups(newest(self.stored)):
            found = decision(group, self.finals)
            if found.best:
                return (found.winner or found.best[0]).record
        return None

    def table(self) -> str:
        """Return the text that `bakeoff sweep` prints."""
        every, ceilings = (self.held.current, self.held.ceilings) if self.held else (self.stored, ())
        return terminal.render(Document("", newest_tables(newest(self.stored), every, self.finals, ceilings)))

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<Swept {self.sweep}: {counted(len(self.stored), 'record')} in {self.folder}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.table())}</pre>"


def read_swept(summary: Mapping[str, Any], runs: Path) -> Swept:
    """Return the records that a sweep's summary lists, in its order, from the store."""
    records = load_all(runs)
    rows = {entry.id: entry for entry in (*records.current, *(entry for entry, _ in records.superseded))}
    finals = {entry.id: entry for entry in records.comparisons}
    return Swept(
        str(summary["sweep"]),
        runs,
        tuple(rows[one] for one in summary["records"] if one in rows),
        tuple(finals[one] for one in summary["finals"] if one in finals),
        records,
    )


def sweep(
    module: Any,
    inputs: Any = None,
    *,
    name: str | None = None,
    backends: Names = (),
    dtype: Names = (),
    device: str | None = None,
    options: Sequence[str] = (),
    final: bool = True,
    runs: str | Path | None = None,
    resume: bool = False,
) -> Swept:
    """Build, check, time and record every variant of a module; return the records and their table.

    `module` is a torch.nn.Module as it is to be measured (weights loaded, `eval()` called) with its `inputs` (a dict of
    keyword arguments, a tuple or list of positional ones, or one tensor); or a `bakeoff.Model`, which contains both and
    states more; or a reference as `bakeoff sweep` takes it, such as "mine.py:model" or "model.pt2". `name` is the
    component's name in variants, by default the class's in lower case. `options` are any others of `bakeoff sweep`, as
    they are typed: `["--suite", "quick", "--sizes", "x.0=1,4"]`.

    Progress is written to stderr. Ctrl-C stops the sweep, keeps what it has measured and raises KeyboardInterrupt. A
    sweep that measured nothing returns too: `best` is None and the table gives the reasons. Raises BakeoffError with
    the code of the command's error; with code `cannot-travel`, the message names what cannot be sent to another
    process.
    """
    refuse_in_workers()
    arguments = [
        *_option("--backends", backends),
        *_option("--dtype", dtype),
        *_option("--device", device),
        *([] if final else ["--no-final"]),
        *(["--resume"] if resume else []),
        *options,
    ]
    command = [*_option("--runs", runs), "sweep", _reference(module, inputs, name), "--json"]
    summary = run_command([*command, *arguments])
    return read_swept(summary, paths.runs_folder(Path(runs) if runs else None))


def _option(option: str, value: object) -> list[str]:
    """Return the command-line arguments that give `option` once for each value; empty for None."""
    if value is None:
        return []
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return [text for one in values for text in (option, str(one))]


def _reference(given: Any, inputs: Any, name: str | None) -> str:
    """Return the reference that `bakeoff sweep` takes; a live module is written to a folder of the cache first."""
    if isinstance(given, str | Path | Model) and (inputs is not None or (name and not isinstance(given, Model))):
        what = "the Model" if isinstance(given, Model) else given
        text = f"{what} has inputs and a name of its own; leave them out, or give a module"
        raise BakeoffError(text, code="bad-option")
    if isinstance(given, str | Path):
        return str(given)
    model = given if isinstance(given, Model) else Model(given, inputs)
    torch = sys.modules.get("torch")  # a module can exist only where torch was imported
    if torch is None or not isinstance(model.module, torch.nn.Module):
        raise BakeoffError(
            f"sweep was given {a_type(type(model.module))}; give a torch.nn.Module with its inputs, a bakeoff.Model or "
            "a reference such as 'mine.py:model'",
            code="bad-user-code",
        )
    return str(_write_model(model, name))


def _write_model(model: Model, name: str | None) -> Path:
    """Write a live module to the cache and return its folder.

    Equal content gets the same folder, which `resume` needs.
    """
    from bakeoff.models.brought.live_write import write_live  # imports torch

    calls = model.calls("bakeoff.sweep")
    own_name = re.sub(r"[^a-z0-9_-]+", "-", type(model.module).__name__.lower()).strip("-_")
    cache = paths.ensure_writable(paths.cache_folder(), "caches") / "live"
    cache.mkdir(exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=cache, prefix=".writing-"))
    try:
        folder = temporary / (name or own_name or "module")
        if folder.parent != temporary:
            raise BakeoffError(f"'{name}' cannot be part of a variant's name; use ASCII letters", code="bad-option")
        write_live(model, calls, folder)
        place = cache / content_hash(folder) / folder.name
        place.parent.mkdir(exist_ok=True)
        if not place.exists():  # the same module may have been written before
            folder.rename(place)
        return place
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def refuse_in_workers() -> None:
    """Raise BakeoffError in a worker of a sweep, where a script that sweeps on import would start another sweep."""
    if os.environ.get(IN_WORKER):
        raise BakeoffError(
            "bakeoff.sweep was called while a worker of a sweep imported this file; put the call below "
            'if __name__ == "__main__":',
            code="bad-user-code",
        )


def run_command(arguments: Sequence[str]) -> Any:
    """Run `bakeoff ARGUMENTS` and return the JSON that it prints.

    Raises BakeoffError with the text and code of the command's error, and KeyboardInterrupt after Ctrl-C, once the
    child and its workers have ended.
    """
    with tempfile.TemporaryFile() as output:
        command = [*COMMAND, *arguments]
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.PIPE,
                env={**os.environ, CALLER: str(os.getpid())},
            )
        except OSError as error:
            text = f"{command[0]} cannot be started: {error.strerror}; run bakeoff sweep in a shell instead"
            raise BakeoffError(text, code="os-error") from error
        with child:
            last, interrupted = _wait(child)
        output.seek(0)
        content = output.read()
    if interrupted:
        raise KeyboardInterrupt("the sweep was stopped and its workers have ended; resume=True runs what is left")
    if child.returncode in _WITH_RESULT:
        with suppress(ValueError):
            return json.loads(content)
    raise _error(last, child.returncode)


def _wait(child: "subprocess.Popen[bytes]") -> tuple[str, bool]:
    """Copy the child's stderr to this process's until the child ends. Ctrl-C is passed on to the child.

    Returns the last line that begins with `bakeoff: `, and whether Ctrl-C was pressed.
    """
    last, interrupted = "", False
    assert child.stderr is not None
    while True:
        try:
            for line in child.stderr:
                text = line.decode(errors="replace")
                last = text if text.startswith("bakeoff: ") else last
                _say(text)
            child.wait()
            return last, interrupted
        except KeyboardInterrupt:
            interrupted = True
            child.send_signal(signal.SIGINT)  # one that it has from the terminal too is of no effect


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _error(line: str, code: int) -> BakeoffError:
    found = _ERROR.fullmatch(line.rstrip("\n"))
    if found is None:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return BakeoffError(f"the sweep {how}; its output above says why", code="worker-failed")
    return BakeoffError(found["text"], code=cast(ErrorCode, found["code"] or ""))
