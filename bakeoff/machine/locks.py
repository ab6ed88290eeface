"""One lock for each device, so that two sweeps never measure on the same device at the same time."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from bakeoff.machine import host
from bakeoff.models.errors import BakeoffError


@contextmanager
def device_lock(cache: Path, device: str, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the device's lock. If another process holds it, tell the user by `say` and wait."""
    (cache / "locks").mkdir(exist_ok=True)
    lock = FileLock(cache / "locks" / f"{host.lock_name(device)}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"Another sweep measures on this {device}; waiting for it to end.")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def all_devices_lock(cache: Path) -> Iterator[None]:
    """Hold every device's lock. Raises BakeoffError when one of them is held by another process."""
    with ExitStack() as stack:
        for path in sorted((cache / "locks").glob("*.lock")):
            lock = FileLock(path)
            try:
                lock.acquire(timeout=0)
            except Timeout as error:
                text = f"another process measures on {path.stem}; try again after it has ended"
                raise BakeoffError(text, "busy") from error
            stack.callback(lock.release)
        yield
