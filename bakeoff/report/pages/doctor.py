"""Pages about this machine and the lab itself: `doctor`, `selftest` and `ceilings`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bakeoff.machine import host, paths
from bakeoff.machine.floors import Ceiling
from bakeoff.machine.gpus import gpu_limits, with_settings
from bakeoff.machine.host import Host
from bakeoff.machine.known_issues import known_issues
from bakeoff.models.types import DEVICES, DTYPES, Scalar
from bakeoff.models.words import counted
from bakeoff.report.document import Cell, Document, Heading, Text, blocks, listed, number, table
from bakeoff.report.format import INSTALL, MIB
from bakeoff.report.pages.listing import BackendLine, backends, read_backends
from bakeoff.selftest.run import Check, Selftest


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Facts about this host; `--json` prints them under these names."""

    host: Host
    versions: dict[str, str]
    load: float
    available_bytes: int
    native_bf16: bool
    known_bad: tuple[str, ...]
    gpus: tuple[dict[str, Scalar], ...]
    """Those of the host, and how they are set."""
    gpu_limits: tuple[str, ...]
    backends: tuple[BackendLine, ...]
    runs: str
    cache: str


def read() -> Diagnosis:
    """Collect facts about this host, its libraries and backends."""
    versions = host.read_versions()
    devices = [device for device in DEVICES if not host.missing_device(device)]
    gpus = tuple(map(with_settings, host.read_host().gpus))
    return Diagnosis(
        host=host.read_host(),
        versions=versions,
        load=host.load_average(),
        available_bytes=host.available_bytes("cpu"),
        native_bf16=host.has_native_bf16(),
        known_bad=tuple(text for device in devices for text in known_issues(versions, device, DTYPES)),
        gpus=gpus,
        gpu_limits=gpu_limits(gpus, host.cuda_runtime()),
        backends=read_backends(),
        runs=str(paths.runs_folder()),
        cache=str(paths.cache_folder()),
    )


def page(found: Diagnosis) -> Document:
    """Return the page of `doctor`: first what makes numbers wrong or slow, then facts and backends."""
    first, facts = listed([_verdict(found), *_problems(found)]), listed(_facts(found))
    return Document("This host", blocks(first, facts, *backends(found.backends, with_sets=False)))


def _verdict(found: Diagnosis) -> Text:
    ready = Counter(line.device for line in found.backends if not line.why_not)
    words = " and ".join(f"{number} on {device}" for device, number in ready.items())
    every = len(found.backends) // len(DEVICES)
    return Text(f"{words or 'none'}, of {every}", "backends that run here", "good" if ready else "bad")


def _problems(found: Diagnosis) -> Iterator[Text]:
    if "torch" not in found.versions:
        yield Text(f"torch is not installed. {INSTALL}", "problem", "bad")
    for text in (*found.known_bad, *found.gpu_limits):
        yield Text(text, "warning", "open")
    if found.load > host.usable_cores() / 2:
        yield Text("this host is busy by its load, so records will have a finding busy-host", "warning", "open")
    if not found.native_bf16:
        yield Text("bf16 is emulated on this CPU, so default sweeps leave it out", "warning", "open")


def _facts(found: Diagnosis) -> Iterator[Text]:
    machine = found.host
    cores = f"{counted(machine.cores, 'core')}, {host.usable_cores()} usable"
    yield Text(f"{machine.cpu}, {cores}; {' '.join(machine.cpu_flags)}", "CPU")
    yield from (Text(", ".join(f"{name} {value}" for name, value in gpu.items()), "GPU") for gpu in found.gpus)
    yield Text(f"{found.available_bytes // MIB} of {machine.memory_bytes // MIB} MiB free", "memory")
    yield Text(f"{found.load:.2f}", "load")
    yield Text(f"{machine.system}, Python {machine.python}", "system")
    yield Text(", ".join(f"{name} {version}" for name, version in found.versions.items()), "versions")
    yield Text(found.runs, "records")
    yield Text(found.cache, "caches")


def page_of_selftest(found: Selftest) -> Document:
    """Return a selftest's page: the verdict, then each check with what it expected and found, failed ones first."""
    failed = sum(not check.passed for check in found.checks)
    run = sum(not check.not_run for check in found.checks)
    verdict = f"all {counted(run, 'check')} passed"
    if failed:
        verdict = f"{failed} of {counted(len(found.checks), 'check')} FAILED"
    if run < len(found.checks):
        verdict += f", {len(found.checks) - run} NOT RUN because this machine lacks what they need,"
    which = "quick selftest" if found.stamp.quick else "selftest"
    said = f"{which} of code {found.stamp.code}: {verdict} in {found.seconds:.0f} s"
    checks = table(
        ("check", "result", "found", Heading("expected", leaves=1), Heading("why", leaves=2)),
        [
            (
                check.name,
                _result(check),
                check.found if check.passed else f"{check.found} instead of {check.expected}",
                check.expected,
                check.not_run or check.detail,
            )
            for check in sorted(found.checks, key=lambda check: check.passed)
        ],
    )
    noisy = Text(found.noisy, tone="open") if found.noisy else None
    return Document("Selftest", blocks(Text(said, tone="bad" if failed else "good"), noisy, checks))


def _result(check: Check) -> Cell:
    if not check.passed:
        return Cell("FAIL", "FAIL", tone="bad")
    return Cell("not run", "not run", tone="open") if check.not_run else Cell("pass", "pass", tone="good")


def page_of_ceilings(ceilings: Sequence[Ceiling]) -> Document:
    """Return the page of best and median rates; a median far below the best means that the host was busy."""
    rows = []
    for entry in ceilings:
        moves = entry.kind in ("copy", "read")
        size = f"{entry.size / MIB:g} MiB" if moves else f"{entry.size / 1e9:.2f} GFLOP"
        best = f"{entry.best / 1e9:.1f} {'GB/s' if moves else 'GFLOP/s'}"
        rows.append((entry.kind, entry.dtype, size, best, f"{entry.median / entry.best:.0%}"))
    numbers = map(number, ("size", "best", "median of best"))
    return Document("Ceilings", blocks(table(("what", "dtype", *numbers), rows)))
