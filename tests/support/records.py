"""Records for tests, with samples whose statistics can be computed by hand."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

from bakeoff.machine.files import digest
from bakeoff.machine.host import Host
from bakeoff.machine.identity import Machine
from bakeoff.record.finding import Finding
from bakeoff.record.policy import Policy
from bakeoff.record.schema import (
    SCHEMA,
    BuildCost,
    Clock,
    Measurement,
    Memory,
    OutputParity,
    Parity,
    ProofRecord,
    Record,
    Samples,
    Source,
)
from bakeoff.variant import BackendUse, Variant

HOST = Host("Test CPU", 4, 8, ("avx2",), 8 << 30, "Linux 6.1 x86_64", "3.11.7")
GPU_HOST = replace(HOST, gpus=({"name": "Test GPU", "uuid": "GPU-1", "memory_bytes": 80 << 30},))
UNSUPPORTED = ("sweep", "toy", "--backends", "inductor[mode=reduce-overhead]", "--device", "cpu", "--dtype", "fp32")
"""A command that writes a record without starting a worker: CUDA graphs are unsupported on a CPU."""


def clock(samples_ms: Sequence[float]) -> Clock:
    return Clock(Samples(round(sample * 1e6) for sample in samples_ms), Samples([9_000_000]), stopped="narrow")


def measurement(samples_ms: Sequence[float] = (), status: Any = "ok", reason: str = "", **changes: Any) -> Measurement:
    """A worker's report; without samples only a status and a reason."""
    if not samples_ms:
        return Measurement(status, reason, **changes)
    limit, error, sqnr_db = (2e-6, 1e-6, 120.0) if status != "parity_failed" else (2e-6, 0.5, 6.0)
    made = Measurement(
        status=status,
        reason=reason,
        build=BuildCost("cold", 12.25, 3.5, 300 << 20, 200 << 20),
        proof=ProofRecord(graphs=1, graph_breaks=0, operators_inside={"captured calls": 12}),
        parity=Parity("reference-1", "fp64", 4, (OutputParity("y", error, limit, error <= limit, 1e-5, 1.0, sqnr_db),)),
        latency=clock(samples_ms),
        throughput=clock(samples_ms),
        memory=Memory(50 << 20, 1 << 20, host_peak_bytes=500 << 20, host_call_bytes=10 << 20),
        settings={"threads": 4},
        device_state={"other_cpu_share": 0.01},
        weights="f00d",
    )
    return replace(made, **changes)


def machine_of_host(facts: Host, device: str = "cpu") -> Machine:
    """The same for equal facts."""
    return Machine(digest([facts, device])[:12], "", facts.name(device))


def record(
    backend: str = "eager",
    samples_ms: Sequence[float] = (),
    status: Any = "ok",
    reason: str = "",
    dtype: str = "fp32",
    findings: tuple[Finding, ...] = (),
    made: Measurement | None = None,
    **changes: Any,
) -> Record:
    """A record of toy:tiny.world on HOST; `changes` are fields of the record. Each other host is another machine."""
    name, _, options = backend.partition("[")
    uses = (BackendUse(name, tuple((option, True) for option in filter(None, options.rstrip("]").split(",")))),)
    variant = changes.get("variant") or Variant("toy", "tiny", "world", uses, dtype, "cpu")
    host = changes.get("host", HOST)
    base = Record(
        schema=SCHEMA,
        created="2026-01-02T03:04:05.000000Z",
        sweep="20260102T030400-abcdef",
        variant=variant,
        config_id="c0ffee",
        label="toy",
        config={"width": 32, "length": 16},
        batch=1,
        weight_seed=0,
        input_seed=0,
        checkpoint="",
        threads=4,
        frames_per_call=1,
        calls_per_frame=2,
        parameters=24451,
        flops=1_500_000_000,
        policy=Policy(),
        measurement=made or measurement(samples_ms, status, reason, findings=findings),
        host=host,
        load_before=0.25,
        environment={"OMP_NUM_THREADS": "4"},
        versions={"bakeoff": "0.1.0", "torch": "2.13.0"},
        commit="0123456789abcdef0123456789abcdef01234567",
        dirty=False,
        wall_s=41.5,
        log="logs/20260102T030400-abcdef/toy.log",
        note="",
        baseline=backend == "eager",
        source=Source("component", (), "instrument"),
        machine=machine_of_host(host, variant.device),
    )
    return replace(base, **changes)


@dataclass(frozen=True)
class Ran:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> list[str]:
        """The lines of stderr, which include the progress of a sweep."""
        return [line for line in self.err.splitlines() if line.startswith("bakeoff: ")]


def bakeoff(*arguments: str | bytes, cwd: Path, **environment: str | None) -> Ran:
    """Run the command line in this process; a variable that is None is removed from the environment.

    Modules that it imports from `cwd` are forgotten afterwards.
    """
    from bakeoff import cli

    known = set(sys.modules)
    with (
        pytest.MonkeyPatch.context() as patch,
        TemporaryFile("w+", encoding="utf-8") as out,
        TemporaryFile("w+", encoding="utf-8", errors="backslashreplace") as err,
    ):
        for name, value in environment.items():
            patch.delenv(name, raising=False) if value is None else patch.setenv(name, value)
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["bakeoff", *map(os.fsdecode, arguments)])
        patch.setattr(sys, "path", [*sys.path, str(cwd)])
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        with pytest.raises(SystemExit) as end:
            cli.main()
        texts = [file.seek(0) or file.read() for file in (out, err)]
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(cwd)):
            del sys.modules[name]
    return Ran(end.value.code or 0, *texts)


def started_bakeoff(
    *arguments: str, cwd: Path, prefix: Sequence[str] = (), timeout: float = 120, **environment: str | None
) -> Ran:
    """As `bakeoff`, in a process of its own, started by the command `prefix`."""
    variables = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
    command = [*prefix, sys.executable, "-m", "bakeoff", *arguments]
    done = subprocess.run(
        command, cwd=cwd, env=variables, capture_output=True, text=True, errors="replace", timeout=timeout, check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr)
