"""Every test has its own cache, records and locks, and what lies in support/ can be imported here and in workers."""

import ctypes
import itertools
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "support"
sys.path.insert(0, str(SUPPORT))

from compile_once import SHARED, put_on_path  # noqa: E402
from forked_workers import SERVERS, SWITCH, Subprocess  # noqa: E402
from lab import FAST, SHORT_LOOK_S, TORCHLESS, Recorder  # noqa: E402

from bakeoff.machine import host, paths  # noqa: E402
from bakeoff.process import supervisor  # noqa: E402
from bakeoff.record.policy import Policy  # noqa: E402

LONGEST = (
    "export/test_packages.py",
    "bring/test_bring.py",
    "export/test_formats.py",
    "sweeps/test_references.py",
    "sweeps/test_run.py",
    "cluster/test_cluster.py",
    "cluster/test_devices.py",
    "sweeps/test_endurance.py",
    "sweeps/test_sizes.py",
    "artifact/test_export.py",
    "models/test_every_component.py",
    "backends/test_several_engines.py",
    "artifact/test_conditions.py",
    "tests/test_gpu_evidence_fast.py",
    "worker/test_regimes.py",
    "selftest/test_real_compilers.py",
    "cli/test_inspect_sweep.py",
    "tests/test_pipeline_examples.py",
    "sweeps/test_time_limit.py",
    "backends/test_frozen_cache.py",
    "sweeps/test_compare.py",
    "backends/test_kept_engines.py",
    "tests/test_gpu_evidence.py",
)
"""Files of half a minute and more, as the slowest ones are printed at the end of a run."""

_NUMBERS = itertools.count()
TRIES = 3
"""How often a test is tried that needs a quiet host."""

for number in (signal.SIGHUP, signal.SIGINT):  # ignored under nohup and in the background, and then by each child too
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL if number == signal.SIGHUP else signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give pages no terminal's width, which some runners set, but what pytest prints; spare torch work."""
    if config.pluginmanager.has_plugin("terminalreporter"):
        writer = config.get_terminal_writer()
        writer.fullwidth = writer.fullwidth
    os.environ.pop("COLUMNS", None)
    os.environ["OMP_NUM_THREADS"] = "1"  # tests run beside each other, and threads that wait for each other spin
    os.environ["AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL"] = "O0"  # g++ takes twice as long with the usual O1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that at the end no process waits for one of them."""
    items.sort(key=lambda item: not item.path.as_posix().endswith(LONGEST))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Try a test again that looks at this machine's speed: other machines of its host may have taken the CPUs."""
    if pyfuncitem.get_closest_marker("alone") is None:
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    for _ in range(TRIES - 1):
        with suppress(AssertionError):
            pyfuncitem.obj(**given)
            return True
    pyfuncitem.obj(**given)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the slowest files: all seconds of their tests, with what is made for them."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in (one for one in reports if isinstance(one, pytest.TestReport)):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    terminalreporter.section(f"slowest files of {sum(seconds.values()):.0f} s")
    for file, spent in seconds.most_common(20):
        terminalreporter.line(f"{spent:7.1f} s  {file}")


@pytest.fixture(scope="session", autouse=True)
def _shared_by_all_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder, in it a g++ that compiles each text once, and a short look at how busy the host is."""
    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SHARED, str(shared))
        if "CXX" not in os.environ and (compiler := shutil.which("g++")) is not None:
            patch.setenv("PATH", str(put_on_path(shared, compiler)), prepend=os.pathsep)
        patch.setattr(host.busy_cpus, "__defaults__", (SHORT_LOOK_S,))
        yield


@pytest.fixture(scope="session", autouse=True)
def _forked_workers(_shared_by_all_tests: None) -> Iterator[None]:
    """Have what lies in support/ imported by workers too, and workers forked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SUPPORT), prepend=os.pathsep if os.environ.get("PYTHONPATH") else None)
        if host.read_host().gpus:  # what torch and its libraries import there starts threads
            patch.setenv(SWITCH, "0")
        if os.environ.get(SWITCH) != "0":
            for server in SERVERS:
                server.begin(of_all_tests=True)
            patch.setattr(supervisor, "subprocess", Subprocess)
        yield
    for server in SERVERS:
        server.stop()


class _Stack(ctypes.Structure):
    """stack_t of sigaltstack(2)."""

    _fields_ = (("place", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


def _use_the_usual_stack() -> None:
    """Have handlers of this thread run on its own stack: libraries and faulthandler give it a small one for them, on
    which the registers may not fit, and then a signal ends the process."""
    disabled = 2  # SS_DISABLE
    ctypes.CDLL(None).sigaltstack(ctypes.byref(_Stack(None, disabled, 0)), None)


@pytest.fixture(autouse=True)
def _no_changed_handler() -> Iterator[None]:
    """A test that leaves another handler of Ctrl-C would end the process of the tests at the next one's Ctrl-C."""
    before = signal.getsignal(signal.SIGINT)
    _use_the_usual_stack()
    yield
    after = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    assert after is before, f"this test left {after} as the handler of Ctrl-C"


@pytest.fixture(autouse=True)
def _no_changed_environment() -> Iterator[None]:
    """What libraries leave in the environment would have each later worker started that could be forked."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(autouse=True)
def _no_changed_path() -> Iterator[None]:
    """A folder left to be searched hides the modules of later tests, as one's mine.py does another's package `mine`."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture(autouse=True)
def _own_folders(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the test's own folder, if it has one: making that takes as long as most tests."""
    place = tmp_path_factory.getbasetemp() / "own" / str(next(_NUMBERS))
    if "tmp_path" in request.fixturenames:
        place = request.getfixturevalue("tmp_path")
    place.mkdir(parents=True, exist_ok=True)
    for name in ("cache", "runs", "locks"):
        monkeypatch.setenv(f"BAKEOFF_{name.upper()}", str(place / name))
    monkeypatch.setattr(paths, "published_runs", lambda: None)


@pytest.fixture
def fast() -> Policy:
    return FAST


@pytest.fixture
def progress() -> Recorder:
    return Recorder()


@pytest.fixture
def torchless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers that measure nothing and are sure of their times; the code that records name stays the same."""
    monkeypatch.setattr(supervisor, "WORKER", TORCHLESS)
    monkeypatch.setattr(paths, "commit", lambda: ("", False))  # somebody may edit meanwhile
    monkeypatch.setenv("BAKEOFF_TEST_SURE", "1")
