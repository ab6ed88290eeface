"""Main program of a monitor process, `python -m bakeoff.monitor REQUEST PARENT`; its standard input is a socket.

It sends the last values after the first samples, and again for each `latest` that it receives. At any other message,
and at the end of its input, it prints the report as its last line of output. It ends when its parent ends; a thread
polls for that, because PR_SET_PDEATHSIG would end it with the thread that started it, its input ends only when no
forked process has the socket open any more, and a driver may block the main thread.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time

import msgspec

from bakeoff.monitor.cpu import CpuProbe, RaplProbe
from bakeoff.monitor.request import LATEST, MonitorRequest
from bakeoff.monitor.sampler import Group, RawFile, Sampler

_PARENT_EVERY_S = 0.5


def main() -> None:
    """Sample until a command other than `latest` arrives or the input ends, then print the report."""
    for number in (signal.SIGINT, signal.SIGHUP):  # of the terminal: the one that is watched decides when it is over
        signal.signal(number, signal.SIG_IGN)
    request = msgspec.json.decode(sys.argv[1], type=MonitorRequest)
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    with contextlib.ExitStack() as stack, socket.socket(fileno=sys.stdin.fileno()) as commands:
        sampler = make_sampler(request, stack)
        command: bytes | None = LATEST
        while command in (LATEST, None):
            wait_ns = sampler.sample_due()
            if command is not None:
                commands.send(msgspec.json.encode(sampler.latest()))
            ready, _, _ = select.select([commands], [], [], None if wait_ns is None else wait_ns / 1e9)
            command = commands.recv(len(LATEST)) if ready else None
        sys.stdout.buffer.write(b"\n" + msgspec.json.encode(sampler.finish()) + b"\n")
        sys.stdout.flush()


def make_sampler(request: MonitorRequest, stack: contextlib.ExitStack) -> Sampler:
    """Return the sampler for a request; only the libraries that it needs are loaded.

    NVML stays open until `stack` ends.
    """
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


def _end_with(parent: int) -> None:
    """End this process as soon as `parent` is no longer the id of its parent."""
    while os.getppid() == parent:
        time.sleep(_PARENT_EVERY_S)
    os._exit(0)


if __name__ == "__main__":
    main()
