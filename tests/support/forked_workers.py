"""Workers of tests are forked from a process that has imported torch, which each would otherwise do for itself.

Only where that is the same: the product's own worker, and an environment that differs from the fork server's in nothing
that is read when Python, torch or a library of theirs is loaded. A lab that a test runs in a process of its own has a
fork server of its own (sitecustomize.py). Workers that measure nothing are forked from a process without torch. With
BAKEOFF_TEST_FORK=0 each worker starts as a user's does.
"""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fork_server import FIRST_FREE

from bakeoff.process import supervisor
from bakeoff.process.environment import worker_environment

SWITCH = "BAKEOFF_TEST_FORK"
_SERVER = Path(__file__).with_name("fork_server.py")
TORCHLESS = (sys.executable, "-I", "-S", str(Path(__file__).with_name("torchless_worker.py")))
"""A worker's command, for sweeps that measure nothing."""
_READ_LATE = re.compile(
    r"BAKEOFF_.*|TMPDIR|HOME|XDG_.*_HOME|HF_HOME|TORCH_HOME|PYTHONUSERBASE|PYTEST_CURRENT_TEST"
    r"|TORCHINDUCTOR_CACHE_DIR|TRITON_CACHE_DIR|CUDA_CACHE_PATH|CCACHE_DIR|TORCH_CANARY|CANARY_.*"
    r"|OMP_NUM_THREADS|MKL_NUM_THREADS|_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"
)
"""Variables that may differ: nothing reads them while it is loaded, or, of threads, the worker sets what they say.

Inductor leaves the last one, an address of its own process, in any process that compiles, and sets it anew before each
use: with it, each later worker of the tests would be started."""
_OF_EVERY_WORKER = ("bakeoff.worker.measure", "bakeoff.worker.reference.make", "worker_imports")
_OF_TORCHLESS = ("bakeoff.process.guard", "torchless_worker")
_OF_COMPILERS = ("torch._dynamo", "torch._inductor.compile_fx", "torch.export._trace", "torch.export._unlift")
_OF_ONNX = ("torch.onnx._internal.exporter._core", "onnxscript.function_libs.torch_lib.ops")
"""Half of what the export of a small model takes."""
_REAL_WORKER = supervisor.WORKER
_real_popen = subprocess.Popen


class _Guard:
    """A guard that the fork server started: of `subprocess.Popen` what a supervisor uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended = os.pidfd_open(pid)
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("guard", timeout or 0.0)
            os.close(self._ended)
            try:
                self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            except ChildProcessError:  # killed and waited for with all that this process had started
                self.returncode = -signal.SIGKILL
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


class ForkServer:
    """Starts its process when the first worker is wanted, and again when that was killed."""

    def __init__(self, worker: tuple[str, ...]) -> None:
        """`worker` is the command of those that it forks."""
        self._worker = worker
        self._environment: dict[str, str] = {}
        self._imported: tuple[str, ...] = _OF_EVERY_WORKER
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def begin(self, of_all_tests: bool = False) -> None:
        """Take this process's environment for the usual one.

        /proc shows a forked process with it, and tests find their processes by their environments. In a process
        `of_all_tests`, what marks those of one test is left out, and what compilers need is imported as well: most
        other processes run few workers, none of which compiles.
        """
        onnx = _OF_ONNX if find_spec("onnxscript") is not None else ()
        self._imported = (*_OF_EVERY_WORKER, *((*_OF_COMPILERS, *onnx) if of_all_tests else ()))
        self._imported = self._imported if self._worker == _REAL_WORKER else _OF_TORCHLESS
        usual = worker_environment(1)
        marks = {name for name in usual if of_all_tests and name.startswith("BAKEOFF_")}
        self._environment = {name: value for name, value in usual.items() if name not in marks}

    def start_guard(self, command: Sequence[str], env: Mapping[str, str], pass_fds: Sequence[int], **how: Any) -> Any:
        """As `subprocess.Popen`, which it calls where a forked worker might not be what a started one is."""
        if not self._environment and self._worker == _REAL_WORKER:
            self.begin()
        if not self._is_same(command, env) or max(pass_fds) >= FIRST_FREE:
            return _real_popen(command, env=env, pass_fds=pass_fds, **how)
        request = {
            "arguments": list(command)[command.index("-S") + 2 :],
            "environment": dict(env),
            "folder": str(how["cwd"]),
            "descriptors": list(pass_fds),
        }
        try:
            return _Guard(self._ask(json.dumps(request).encode(), pass_fds))
        except (BrokenPipeError, ConnectionResetError, ValueError):  # it was killed
            self.stop()
            return _Guard(self._ask(json.dumps(request).encode(), pass_fds))

    def _ask(self, request: bytes, descriptors: Sequence[int]) -> int:
        """The process id of a guard. Raises ValueError or an OSError if the fork server has ended."""
        if self._socket is None:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            command, fds = [sys.executable, "-P", str(_SERVER), str(theirs.fileno())], [theirs.fileno()]
            command += self._imported
            self._process = _real_popen(
                command,
                env=self._environment,
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C ends the process that asks, and with it this one
            )
            theirs.close()
            assert self._socket.recv(16) == b"ready"
        socket.send_fds(self._socket, [request], descriptors)
        return int(self._socket.recv(32))

    def _is_same(self, command: Sequence[str], env: Mapping[str, str]) -> bool:
        """Whether Python, torch and their libraries would be loaded with the same settings as in the fork server."""
        own = self._environment
        if tuple(command[-len(self._worker) - 2 : -2]) != self._worker or not own:
            return False
        if self._worker == TORCHLESS:
            return all(own.get(name) == env.get(name) for name in {*own, *env} if name.startswith("LD_"))
        differing = {name for name in {*own, *env} if own.get(name) != env.get(name) and not _READ_LATE.fullmatch(name)}
        if differing != {"PYTHONPATH"}:
            return not differing
        # A forked worker searches added places too, and runs the sitecustomize of the first that has one.
        return env.get("PYTHONPATH", "").endswith(own["PYTHONPATH"])

    def stop(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.kill()
            self._process.wait()
        self._socket = self._process = None


SERVER, TORCHLESS_SERVER = ForkServer(_REAL_WORKER), ForkServer(TORCHLESS)
SERVERS = (SERVER, TORCHLESS_SERVER)


def _start_guard(command: Sequence[str], **how: Any) -> Any:
    return (TORCHLESS_SERVER if TORCHLESS[-1] in command else SERVER).start_guard(command, **how)


class Subprocess:
    """Of the module subprocess what a supervisor uses."""

    DEVNULL, TimeoutExpired = subprocess.DEVNULL, subprocess.TimeoutExpired
    Popen = staticmethod(_start_guard)
