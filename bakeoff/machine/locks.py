"""Locks this machine's CPUs and GPUs, so that two measurements never share one, whoever started them.

Each CPU of a process's affinity mask and each GPU has a lock file in one folder for all users. A measurement on a CPU
holds its CPUs alone. A measurement on a GPU holds the GPU alone and shares its CPUs, on which it compiles, with other
measurements on GPUs. A cache folder has a lock of its own, against being cleared while it is used. Locks are flock(2):
the kernel releases them when the process ends, however that happens.
"""

import fcntl
import math
import os
import shlex
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from bakeoff.machine import host
from bakeoff.models.errors import BakeoffError

VARIABLE = "BAKEOFF_LOCKS"
"""Environment variable with another folder for the locks of this machine; for tests."""
_LOCK_PARENTS = ("/run/lock", "/tmp")
"""Folders for all users: the first one that everybody may write to (FHS 3.0, section 3.15)."""
_IN_USE = "in-use"
_READ = 1 << 16
"""Bytes at the end of a lock file that are read; a shared one gets a line from each process that takes it."""
_LONGEST_TEXT = 300
"""Most characters of a command or a folder that are written into a lock file."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Holder of a lock, as written into its file."""

    pid: int
    command: str
    """Command line as typed."""
    since_s: float
    """Seconds since 1970."""
    folder: str = ""
    """Folder in which the command was typed."""

    def told(self, user: str) -> str:
        where = f" in {self.folder}" if self.folder else ""
        since = time.strftime("%H:%M", time.localtime(self.since_s))
        return f"pid {self.pid} of {user}: {self.command}{where}, since {since}"


@contextmanager
def device_lock(
    device: str, say: Callable[[str], None], cache: Path | None = None, measures: bool = True
) -> Iterator[float]:
    """Hold the locks of `device` and of this process's CPUs, after waiting for other processes that hold one.

    Yields the seconds since another process released one of them: zero after a wait, infinity if none is known to have
    held one.

    `say` is called with a text about the processes that are waited for. All processes take the locks in one order, so
    no two wait for each other. With `cache`, that cache folder cannot be cleared while the locks are held or waited
    for; if nothing `measures`, only this lock is taken. Do checks that need no measuring before this call.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(_opened(lock_folder(), VARIABLE in os.environ, for_all=True))
        names = [(f"cpu{number}.lock", device == "cuda") for number in sorted(os.sched_getaffinity(0))]
        if device == "cuda":
            names += [(f"{gpu['uuid']}.lock", False) for gpu in host.read_host().gpus[:1]]
        say = _without_repetition(say)
        held = []
        if cache is not None:
            held.append(stack.enter_context(_cache_lock(cache, _IN_USE, True, say)))
        for name, shared in names if measures else ():
            held.append(stack.enter_context(_held(folder, name, shared, say)))
        yield min(held, default=math.inf)


@contextmanager
def entry_lock(cache: Path, entry: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold one entry of a cache folder alone: two sweeps on different CPUs must not build into one folder at once.

    A caller that holds several must take them in the order of their names.
    """
    with _cache_lock(cache, entry.name, False, say):
        yield


@contextmanager
def clearing_lock(cache: Path) -> Iterator[None]:
    """Hold a cache folder alone. Raises BakeoffError when another process uses it, or waits to do so."""
    with _cache_lock(cache, _IN_USE, False, None):
        yield


def lock_folder() -> Path:
    """Return $BAKEOFF_LOCKS, else bakeoff/ in the first of /run/lock and /tmp that every user may write to."""
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    for parent in _LOCK_PARENTS:
        with suppress(OSError):
            if os.stat(parent).st_mode & 0o1777 == 0o1777:
                return Path(parent) / "bakeoff"
    return Path(_LOCK_PARENTS[-1]) / "bakeoff"


@contextmanager
def _opened(folder: Path, parents: bool, for_all: bool = False) -> Iterator[int]:
    """Create a folder of locks, `for_all` users or for this one, and yield its descriptor. Raises BakeoffError if it
    cannot be used."""
    try:
        with suppress(FileExistsError):
            folder.mkdir(parents=parents)
            if for_all:
                folder.chmod(0o1777)  # mkdir(2) applies the umask
        # A link could lead the files of one user into the folder of another.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _cache_lock(cache: Path, name: str, shared: bool, say: Callable[[str], None] | None) -> Iterator[float]:
    with _opened(cache / "locks", True) as folder, _held(folder, f"{name}.lock", shared, say) as idle_s:
        yield idle_s


@contextmanager
def _held(folder: int, name: str, shared: bool, say: Callable[[str], None] | None) -> Iterator[float]:
    """Hold one lock file, and yield the seconds since its last release. If another process holds it, report that by
    `say` and wait; without `say`, raise BakeoffError."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        descriptor = _open_file(folder, name)
    except OSError as error:
        raise _unusable(lock_folder() / name, error) from error
    try:
        found = os.fstat(descriptor)  # touched on its release; an empty one names no holder
        idle_s = max(0.0, time.time() - found.st_mtime) if found.st_size else math.inf
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            holders = "; ".join(_read_holders(descriptor)) or "another process"
            if say is None:
                text = f"the cache folder is in use by {holders}; try again after it has ended"
                raise BakeoffError(text, "busy") from None
            say(f"waiting for {holders}")
            fcntl.flock(descriptor, kind)
            idle_s = 0.0
        with suppress(OSError):  # a full disk costs the name, not the lock
            if not shared:
                os.ftruncate(descriptor, 0)
            # The file is open for appending: of two that share it and write at once, none overwrites the other's line.
            os.write(descriptor, msgspec.json.encode(_own_holder()) + b"\n")
        yield idle_s
    finally:
        with suppress(OSError):  # a full disk costs the time, not the lock
            os.utime(descriptor)
        os.close(descriptor)  # which releases the lock


def _open_file(folder: int, name: str) -> int:
    """Open or create a lock file that all users may lock.

    A file is opened before it is created: in a folder with the sticky bit Linux refuses O_CREAT for an existing file of
    another user (fs.protected_regular, proc(5)).
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    for _ in range(3):  # another process may create or delete it meanwhile
        with suppress(FileNotFoundError):
            descriptor = os.open(name, flags, dir_fd=folder)
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return descriptor
            os.close(descriptor)
            break
        with suppress(FileExistsError):
            descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
            os.fchmod(descriptor, 0o666)
            return descriptor
    raise OSError(0, "not a plain file", name)


def _own_holder() -> Holder:
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name
    folder = ""
    with suppress(FileNotFoundError):  # the working folder may have been deleted
        folder = os.getcwd()
    return Holder(os.getpid(), _kept(shlex.join([name, *sys.argv[1:]])), time.time(), _kept(folder))


def _kept(text: str) -> str:
    """Make text safe for others' terminals: replace control characters, and cut the middle of long text."""
    half = _LONGEST_TEXT // 2
    text = text if len(text) <= _LONGEST_TEXT else f"{text[:half]} ... {text[-half:]}"
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _read_holders(descriptor: int) -> list[str]:
    """Return a description of each holder named in a lock file whose process still runs."""
    found: dict[int, str] = {}
    start = max(0, os.fstat(descriptor).st_size - _READ)
    for line in os.pread(descriptor, _READ, start).splitlines():
        with suppress(msgspec.MsgspecError, psutil.Error):
            holder = msgspec.json.decode(line, type=Holder)
            process = psutil.Process(holder.pid)
            told = holder.told(process.username())
            if process.create_time() <= holder.since_s + 1 and told.isprintable():
                found[holder.pid] = told
    return list(found.values())


def _unusable(path: Path, error: OSError) -> BakeoffError:
    text = f"{path} cannot be used as a lock: {error.strerror}; remove it, or name another folder in {VARIABLE}"
    return BakeoffError(text, "not-writable")


def _without_repetition(say: Callable[[str], None]) -> Callable[[str], None]:
    """Return a `say` that drops a text equal to the one before: one process usually holds several locks."""
    said = [""]

    def say_new(text: str) -> None:
        if text != said[0]:
            said[0] = text
            say(text)

    return say_new
