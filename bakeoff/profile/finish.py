"""Makes the record of a session that has ended."""

import contextlib
import os
import platform
import sys
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import bakeoff
from bakeoff.models.types import Scalar
from bakeoff.models.words import counted
from bakeoff.profile.recording import Recording
from bakeoff.profile.settings import Settings
from bakeoff.profile.stages import MOST_DEPTH, MOST_STAGES
from bakeoff.record.monitor import Monitored
from bakeoff.record.session import GPU_MEMORY, MACHINE_CORES, SESSION_SCHEMA, RangeTotal, RecordingCost, SessionRecord

if TYPE_CHECKING:
    from bakeoff.profile.session import Session


def make_record(session: "Session", status: str, ended_ns: int, monitored: Monitored | None) -> SessionRecord:
    """Return the record of a session that ended at `ended_ns` of its clock, after waiting for its device's times."""
    started_ns = session.root.started_ns
    _read_device(session)
    with session.lock:
        ranges = session.tree.totals(ended_ns)
        _note(session, ranges)
    return SessionRecord(
        schema=SESSION_SCHEMA,
        name=session.name,
        status=status,
        started_at=datetime.fromtimestamp(session.started_wall_ns / 1e9, UTC).isoformat(timespec="milliseconds"),
        started_wall_ns=session.started_wall_ns,
        ns=ended_ns - started_ns,
        tags=session.tags,
        settings=_scalars(session.settings),
        environment=environment(session.device),
        ranges=ranges,
        before=session.before,
        units=session.units.totals(),
        spans=session.units.spans(started_ns),
        steps=session.units.steps(),
        events=tuple(replace(event, t_ns=event.t_ns - started_ns) for event in session.events),
        events_dropped=session.events_dropped,
        parameters=tuple(session.models.values()),
        series=session.series(),
        monitored=monitored,
        cost=RecordingCost(session.range_ns, session.count, tuple(session.dropped)),
        rank=session.rank,
        findings=session.notes.findings(),
    )


def _read_device(session: "Session") -> None:
    """Wait for the device's last events, and note ranges without a device time.

    The session is over by then, so that the pipeline's times do not include the wait.
    """
    clock = session.device_clock
    if clock is None:
        return
    clock.read(wait=True)
    if clock.unread:
        why = clock.error or "a CUDA graph was being captured, or the device was too far behind"
        ranges = counted(clock.unread, "range has", "ranges have")
        session.notes.add("no-device-times", f"{ranges} no time of {session.device}: {why}")


def _note(recording: Recording, ranges: tuple[RangeTotal, ...]) -> None:
    """Note ranges that are still open, names that were left out, and ranges that overlapped."""
    still = [each for _, each in recording.tree.root.walk() if each.open]
    if still:
        names = ", ".join(dict.fromkeys(f"'{each.name}'" for each in still[:5]))
        open_ranges = counted(sum(each.open for each in still), "range")
        text = f"{open_ranges} had not ended: {names}; their times are those until the end"
        recording.notes.add("misused", text)
    if recording.tree.is_full:
        text = f"ranges of more than {MOST_STAGES} names or {MOST_DEPTH} levels are not told apart; name fewer of them"
        recording.notes.add("left-out", text)
    over = sum(-each.own_ns for each in ranges if each.own_ns < 0)
    if over:
        text = (
            f"ranges ran at the same time, in threads or coroutines, for {over / 1e6:.1f} ms more than what they are in"
        )
        recording.notes.add("overlap", f"{text}; its own time is negative by that")


def _scalars(settings: Settings) -> dict[str, Scalar]:
    return {each.name: getattr(settings, each.name) for each in fields(settings) if each.name != "session_tags"}


LIBRARIES = ("torch", "triton", "numpy", "diffusers", "transformers", "tensorrt", "torch_tensorrt", "onnxruntime")
"""Libraries whose versions are recorded if they are loaded; those that are only installed are not."""


def environment(device: str) -> dict[str, str]:
    """Return CPU, cores, system, versions, and name and memory of the GPU if torch has used it already."""
    found = {
        "cpu": _cpu(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1),
        MACHINE_CORES: str(os.cpu_count() or 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "bakeoff": bakeoff.__version__,
        "device": device or "cpu",
    }
    for name in LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)[:100]
    return found | _gpu(device)


def _cpu() -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _gpu(device: str) -> dict[str, str]:
    """Return the CUDA device's name and its memory in MiB; empty if none was asked for or CUDA was not used."""
    cuda = sys.modules.get("torch.cuda")
    if not device.startswith("cuda") or cuda is None:
        return {}
    with contextlib.suppress(Exception):  # a name is not worth an error of CUDA
        if cuda.is_initialized():
            facts = cuda.get_device_properties(device)
            return {"gpu": str(facts.name), GPU_MEMORY: str(facts.total_memory >> 20)}
    return {}
