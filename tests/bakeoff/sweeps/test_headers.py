"""torch's C++ headers are precompiled once, before any row: no cold build compiles them, and damage heals."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from lab import FAST, TORCHLESS, marked_folder, sweep
from shared_headers import compiled_for_all, counted_compiler, share_headers

from bakeoff.backends.compilers import missing_cpp_compiler
from bakeoff.machine import build_cache, paths
from bakeoff.machine.build_cache import header_folder, read_stamp
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.plan.rows import Row
from bakeoff.process import supervisor
from bakeoff.process.supervisor import Event
from bakeoff.sweeps.headers import HeaderBuilds


def rows_of(*backends: str, builds: int = 1) -> tuple[Row, ...]:
    request = Request("toy", backends=backends, dtypes=("fp32",), device="cpu", threads=1, policy=FAST, builds=builds)
    return make_plan(request).rows


class Sweeps:
    """Has headers made for rows as a sweep does, and keeps what was said and started."""

    def __init__(self, windows: Path) -> None:
        self.said: list[str] = []
        self.events: list[Event] = []
        self._windows = windows

    def make(self, *rows: Row) -> None:
        with HeaderBuilds(paths.cache_folder(), self.said.append, self.events.append) as builds:
            builds.start(rows)
            builds.finish()

    @property
    def folder(self) -> Path:
        return header_folder(paths.cache_folder())

    @property
    def started(self) -> int:
        """Workers that finished."""
        return len(self._windows.read_text().splitlines()) if self._windows.exists() else 0

    def sets(self) -> tuple[str, ...]:
        return read_stamp(self.folder).sets

    def names(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()} if self.folder.exists() else set()


INDUCTOR = {"inductor.h", "inductor.h.gch", "stamp.json"}
BOTH = {*INDUCTOR, "aoti.h", "aoti.h.gch"}


class TestOnce:
    """By a worker that compiles nothing."""

    @pytest.fixture
    def sweeps(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweeps:
        monkeypatch.setattr(supervisor, "WORKER", TORCHLESS)
        monkeypatch.setenv("BAKEOFF_TEST_WINDOWS", str(tmp_path / "windows"))
        monkeypatch.setenv("BAKEOFF_TEST_WHO", "headers")
        return Sweeps(tmp_path / "windows")

    def test_for_all_rows_and_all_later_sweeps(self, sweeps: Sweeps) -> None:
        rows = rows_of("eager", "inductor[freezing]", "int8+inductor", "inductor[]", "aoti[]")
        sweeps.make(*rows)
        assert (sweeps.started, sweeps.sets(), sweeps.names()) == (2, ("aoti", "inductor"), BOTH), "a worker for each"
        assert sorted(event.phase for event in sweeps.events) == ["headers", "headers", "import", "import"]
        assert len(sweeps.said) == 1
        sweeps.make(*rows)
        sweeps.make(rows[1])
        assert (sweeps.started, len(sweeps.said)) == (2, 1), "a second sweep starts nothing and says nothing"

    def test_a_set_that_is_needed_later_is_added(self, sweeps: Sweeps) -> None:
        sweeps.make(*rows_of("inductor[]"))
        first = (sweeps.folder / "inductor.h.gch").read_bytes()
        assert (sweeps.sets(), sweeps.names()) == (("inductor",), INDUCTOR)
        sweeps.make(*rows_of("inductor[]", "aoti[freezing]"))
        assert (sweeps.started, sweeps.sets(), sweeps.names()) == (2, ("aoti", "inductor"), BOTH)
        assert (sweeps.folder / "inductor.h.gch").read_bytes() == first
        assert len(build_cache.usable_headers(sweeps.folder)) == 4

    def test_nothing_for_rows_that_compile_no_cpp(self, sweeps: Sweeps) -> None:
        (inductor,) = rows_of("inductor[]")
        sweeps.make(*rows_of("eager"))
        sweeps.make(replace(inductor, subject=replace(inductor.subject, device="cuda")))
        sweeps.make(*rows_of("inductor[mode=reduce-overhead]"))
        assert (sweeps.started, sweeps.said, sweeps.names()) == (0, [], set())

    def test_nothing_where_all_caches_are_warm(self, sweeps: Sweeps) -> None:
        (row,) = rows_of("inductor[]")
        row.cache_folder.mkdir(parents=True)
        build_cache.mark_finished(row.cache_folder)
        sweeps.make(row)
        assert sweeps.started == 0
        sweeps.make(replace(row, builds=2))
        assert sweeps.started == 1, "the first process of several builds begins anew"

    @pytest.mark.parametrize("damage", ["changed", "cut off", "gone", "stamp"])
    def test_damaged_headers_are_made_again(self, sweeps: Sweeps, damage: str) -> None:
        sweeps.make(*rows_of("inductor[]"))
        made = sweeps.folder / "inductor.h.gch"
        content = bytearray(made.read_bytes())
        if damage == "changed":
            content[500] ^= 1
            made.write_bytes(content)
        elif damage == "cut off":
            made.write_bytes(content[:500])
        elif damage == "gone":
            made.unlink()
        else:
            (sweeps.folder / "stamp.json").write_bytes(b"{")
        sweeps.make(*rows_of("inductor[]"))
        assert (sweeps.started, sweeps.names()) == (2, INDUCTOR)
        assert len(build_cache.usable_headers(sweeps.folder)) == 2
        sweeps.make(*rows_of("inductor[]"))
        assert sweeps.started == 2

    def test_a_worker_that_dies_costs_a_sentence(self, sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BAKEOFF_TEST_NO_HEADERS", "1")
        sweeps.make(*rows_of("inductor[]"))
        assert "SIGSEGV" in sweeps.said[-1]
        assert build_cache.usable_headers(sweeps.folder) == ()
        monkeypatch.delenv("BAKEOFF_TEST_NO_HEADERS")
        sweeps.make(*rows_of("inductor[]"))
        assert (sweeps.started, sweeps.names()) == (1, INDUCTOR), "the next sweep tries again"

    @pytest.mark.parametrize("full", ["folder", "stamp"])
    def test_a_full_disk_costs_a_sentence(self, sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch, full: str) -> None:
        def refuse(*_: object) -> None:
            raise BakeoffError("stamp.json cannot be written", code="not-writable")

        if full == "folder":
            paths.cache_folder().mkdir()
            (paths.cache_folder() / "headers").write_text("in the way")
        else:
            monkeypatch.setattr("bakeoff.sweeps.headers.write_stamp", refuse)
        sweeps.make(*rows_of("inductor[]"))
        assert sweeps.said[-1].endswith("Each cold build compiles them itself.")
        assert build_cache.usable_headers(sweeps.folder) == ()


@pytest.mark.timeout(900)
@pytest.mark.skipif(missing_cpp_compiler() is not None, reason="inductor needs a C++ compiler")
class TestRealBuilds:
    """With AOTInductor, which has most headers, and a compiler that counts those that it precompiles."""

    def test_a_cold_build_in_a_fresh_process_compiles_no_header(self, tmp_path: Path) -> None:
        pytest.importorskip("torch", reason="the headers are torch's")
        request = Request("toy", backends=("aoti[]",), dtypes=("fp32",), device="cpu", policy=FAST)
        with marked_folder(tmp_path):
            share_headers(request.backends)
            folder = header_folder(paths.cache_folder())
        made = compiled_for_all().read_text()
        assert made.count("header") == 3, "a wrapper's and a kernel's of AOTInductor, and a kernel's of inductor"
        assert made.count("check") >= 1, "one for each set of vector instructions that was tried"
        kinds = Counter("library" if path.suffix == ".so" else "header" for path in build_cache.usable_headers(folder))
        assert kinds == {"header": 6, "library": made.count("check")}, "each header with its source"
        assert not [path for path in folder.iterdir() if path.is_dir()], "nothing else is left there"
        with counted_compiler(tmp_path / "compiled"):
            (record,) = sweep(request, tmp_path).records().values()
        assert (record.status, record.measurement.reason) == ("ok", "")
        assert record.measurement.build is not None
        assert record.measurement.build.cache == "cold"
        assert (tmp_path / "compiled").read_text() == ""
