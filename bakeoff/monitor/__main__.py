"""The process of a monitor, `python -m bakeoff.monitor`; protocol.py says how it is spoken to.

It ends with its parent by that one's pidfd (pidfd_open(2)), which a thread waits for. PR_SET_PDEATHSIG would end it
with the thread that started it; the end of its input comes only when no forked process holds the socket any more; and a
driver may keep the main thread waiting.
"""

import contextlib
import os
import select
import signal
import sys
import threading
import time

from bakeoff.monitor.cpu import CpuProbe, RaplProbe
from bakeoff.monitor.protocol import LATEST, STOP, Lines, Order, RawFile, Reply, read_line, to_line
from bakeoff.monitor.request import MonitorRequest
from bakeoff.monitor.sampler import Group, Sampler

INPUT, OUTPUT = 0, 1
_CHUNK = 1 << 16
_PARENT_POLL_S = 0.5
"""Where the kernel has no pidfd."""


def main() -> None:
    """Watch until told to stop, and report."""
    for number in (signal.SIGINT, signal.SIGHUP):  # of the terminal: the one that is watched decides when it is over
        signal.signal(number, signal.SIG_IGN)
    commands = _Commands()
    first = commands.wait(None)
    order = read_line(first[0], Order) if first else None
    if order is None:
        sys.exit("what to watch was not understood" if first else 0)
    end_with(order.parent)
    with contextlib.ExitStack() as stack, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        sampler = make_sampler(order.request, stack)
        sampler.sample_due()
        _say(Reply(ready=True))
        _serve(sampler, commands)


def make_sampler(request: MonitorRequest, stack: contextlib.ExitStack) -> Sampler:
    """What is asked; a library that is not needed is not loaded. NVML stays initialised until `stack` ends."""
    groups = []
    if request.gpu and request.devices:
        from bakeoff.machine.gpus import nvml
        from bakeoff.monitor.nvml import GpuProbe

        probe = GpuProbe(stack.enter_context(nvml()), request.devices, request.gpu)
        groups.append(Group("gpu", [probe], request.gpu_interval_s))
    if request.cpu:
        probes = [CpuProbe(request.pid, request.cpu, without=[os.getpid()])]
        rapl = [RaplProbe()] if "energy" in request.cpu else []
        # Waiting for a CPU costs nobody anything, and a pipeline on CPUs keeps all busy. NVML waits for its driver.
        groups.append(Group("cpu", [*probes, *rapl], request.cpu_interval_s, time.thread_time_ns))
    return Sampler(groups, request.points, RawFile(request.raw) if request.raw else None)


def end_with(parent: int) -> None:
    """End this process at once when `parent` ends, or has ended."""
    try:
        descriptor = os.pidfd_open(parent)
    except OSError:
        descriptor = -1

    def wait() -> None:
        while os.getppid() == parent:
            if descriptor >= 0:
                select.select([descriptor], [], [])
                break
            time.sleep(_PARENT_POLL_S)
        os._exit(0)

    if os.getppid() != parent:
        os._exit(0)
    threading.Thread(target=wait, daemon=True).start()


class _Commands:
    """Lines from the input."""

    def __init__(self) -> None:
        self._lines = Lines()

    def wait(self, timeout_s: float | None) -> list[bytes] | None:
        """Lines that came within `timeout_s`, or a part of them; None at the end of the input."""
        if not select.select([INPUT], [], [], timeout_s)[0]:
            return []
        with contextlib.suppress(ConnectionResetError):
            data = os.read(INPUT, _CHUNK)
            if data:
                return self._lines.take(data)
        return None


def _serve(sampler: Sampler, commands: _Commands) -> None:
    while True:
        wait_ns = sampler.sample_due()
        lines = commands.wait(None if wait_ns is None else wait_ns / 1e9)
        if lines is None:
            return
        for line in lines:
            if line == LATEST:
                _say(Reply(latest=dict(sampler.latest())))
            elif line == STOP:
                _say(Reply(report=sampler.finish()))
                return


def _say(reply: Reply) -> None:
    data = to_line(reply)
    while data:
        data = data[os.write(OUTPUT, data) :]


if __name__ == "__main__":
    main()
