"""Entries of the cache folder are listed by kind, and clearing removes nothing else, even with links and races."""

import json
import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from lab import FAST, TORCHLESS, Recorder
from records import Ran, bakeoff

from bakeoff.machine import build_cache, cache_inventory, host, paths
from bakeoff.machine.cache_inventory import Item, Selection
from bakeoff.machine.locks import device_lock
from bakeoff.models.errors import BakeoffError, ErrorCode
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.process import supervisor
from bakeoff.report.format import MIB
from bakeoff.report.text import cache
from bakeoff.sweeps.run import run_sweep

DAY_S = 86_400
NOW_S = 1_700_000_000.0
EAGER = build_cache.About(
    "toy:tiny.world/eager/fp32@cpu", 1, 1, 4, "", {"torch": "2.13.0"}, "2026-01-02T03:04:05.000000Z"
)
INDUCTOR = build_cache.About("toy:tiny.world/inductor/bf16@cpu", 2, 1, 4, "w.pt, 9 bytes", {"torch": "1.0"}, "")


@pytest.fixture
def folder() -> Path:
    """A cache with something of every kind, each last used some days before NOW_S."""
    root = paths.cache_folder()
    put(root / "compiled/aaaa/inductor/x.so", MIB, days=1)
    build_cache.open_folder(root / "compiled/aaaa", EAGER)
    put(root / "compiled/bbbb-build2/inductor/deep/y.so", 3 * MIB, days=40)
    build_cache.open_folder(root / "compiled/bbbb-build2", INDUCTOR)
    put(root / "compiled/cccc/old.so", MIB // 2, days=60)
    put(root / "headers/1234/a.h.gch", MIB, days=5)
    put(root / "references/toy-tiny-world-1234/set0.safetensors", 2 * MIB, days=5)
    put(root / "logs/20260102T030400-abcdef/toy.log", 1000, days=5)
    put(root / "logs/ceilings.log", 10, days=50)
    put(root / "traces/20260102T030400-abcdef/toy.json.gz", 500, days=5)
    put(root / "ceilings/cpu-1234.json", 100, days=50)
    put(root / "instrument/core_distance-1234.so", 100, days=5)
    put(root / "sweeps/20260102T030400-abcdef.json", 100, days=5)
    put(root / "selftest.json", 91, days=5)
    put(root / "checkpoints.json", 30, days=5)
    put(root / "work/bakeoff-1234/model.pt2", 100, days=5)
    put(root / "locks/cpu.lock", 0, days=1)
    put(root / "somebody's/thesis.txt", 7, days=400)
    for path in root.glob("compiled/*"):
        days = {"aaaa": 1, "bbbb-build2": 40, "cccc": 60}[path.name]
        for inner in (path, *path.rglob("*")):
            os.utime(inner, (NOW_S - days * DAY_S,) * 2)
    return root


def put(path: Path, size: int, days: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    for each in (path, path.parent):
        os.utime(each, (NOW_S - days * DAY_S,) * 2)


def places_of(items: tuple[Item, ...]) -> set[str]:
    return {item.place for item in items}


def all_files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def clear(root: Path, **choice: Any) -> set[str]:
    cleared = cache_inventory.remove(
        root, cache_inventory.select(cache_inventory.read(root), Selection(**choice), NOW_S)
    )
    assert cleared.kept == ()
    return places_of(cleared.removed)


LARGE = {
    "compiled/aaaa",
    "compiled/bbbb-build2",
    "compiled/cccc",
    "headers/1234",
    "references/toy-tiny-world-1234",
    "logs/20260102T030400-abcdef",
    "logs/ceilings.log",
    "traces/20260102T030400-abcdef",
    "work/bakeoff-1234",
}


class TestShowing:
    def test_every_kind_with_its_entries_bytes_and_last_use(self, folder: Path) -> None:
        found = {line.kind: line for line in cache.survey(folder, cache_inventory.read(folder)).kinds}
        about_bytes = sum(
            (folder / "compiled" / name / build_cache.ABOUT).stat().st_size for name in ("aaaa", "bbbb-build2")
        )
        assert {kind: line.entries for kind, line in found.items()} == {
            "compiled": 3, "headers": 1, "references": 1, "logs": 2, "ceilings": 1, "instrument": 1,
            "traces": 1, "work": 1, "sweeps": 1, "checkpoints": 1, "selftest": 1, "locks": 1, "other": 1,
        }  # fmt: skip
        assert found["compiled"].bytes == 4 * MIB + MIB // 2 + about_bytes
        assert found["references"].bytes == 2 * MIB
        assert found["compiled"].used_s == NOW_S - DAY_S
        assert found["logs"].used_s == NOW_S - 5 * DAY_S
        text = cache.render(cache.survey(folder, cache_inventory.read(folder)), verbose=False)
        assert re.search("^compiled .* 3 +4.5 +2023-11-13 22:13$", text, re.MULTILINE)
        assert text.splitlines()[0] == str(folder)
        assert text.splitlines()[-1].split() == ["total", "16", "7.5"]

    def test_compiled_entries_are_listed_by_variant_or_by_hash_if_it_is_unknown(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(host, "read_versions", lambda: {"torch": "2.13.0"})
        text = cache.render(cache.survey(folder, cache_inventory.read(folder)), verbose=True)
        rows = [line.split("  ") for line in text.partition("compiled variant")[2].splitlines()[2:5]]
        found = [[cell.strip() for cell in row if cell.strip()] for row in rows]
        assert [row[:3] for row in found] == [
            ["toy:tiny.world/inductor/bf16@cpu, build 2", "1, 4, w.pt, 9 bytes", "torch 1.0"],
            ["toy:tiny.world/eager/fp32@cpu", "1, 4", "as now"],
            ["cccc", "not stated", "not stated"],
        ]
        assert text.endswith("not made by bakeoff: somebody's")

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"variant": 3}', "\x00" * 100])
    def test_a_damaged_description_is_ignored(self, folder: Path, text: str) -> None:
        (folder / "compiled/aaaa" / build_cache.ABOUT).write_text(text)
        assert {item.name for item in cache_inventory.read(folder) if item.kind == "compiled"} >= {"aaaa", "cccc"}

    def test_a_description_that_is_a_fifo_or_a_link_is_not_read(self, folder: Path, tmp_path: Path) -> None:
        for name in ("aaaa", "bbbb-build2"):
            (folder / "compiled" / name / build_cache.ABOUT).unlink()
        os.mkfifo(folder / "compiled/aaaa" / build_cache.ABOUT)
        (tmp_path / "mine.json").write_text('{"variant": "mine"}')
        (folder / "compiled/bbbb-build2" / build_cache.ABOUT).symlink_to(tmp_path / "mine.json")
        names = {item.name for item in cache_inventory.read(folder) if item.kind == "compiled"}
        assert names == {"aaaa", "bbbb-build2", "cccc"}

    def test_entries_deleted_while_listing_are_left_out(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        listed = os.listdir
        monkeypatch.setattr(os, "listdir", lambda path: [*listed(path), "gone"])
        monkeypatch.setattr(os, "walk", lambda path: [(str(path), ["gone"], ["gone too"])])
        assert not any("gone" in item.place for item in cache_inventory.read(folder))

    def test_entries_with_unprintable_names_are_of_kind_other(self, folder: Path) -> None:
        odd = os.fsencode(folder / "compiled") + b"/a\xff\n"
        os.mkdir(odd)
        text = cache.render(cache.survey(folder, cache_inventory.read(folder)), verbose=True)
        assert text.isascii()
        assert "a\\udcff\\n" in text
        clear(folder, kinds=("compiled",))
        assert os.path.isdir(odd)

    def test_empty(self, tmp_path: Path) -> None:
        assert (
            cache.render(cache.survey(tmp_path, cache_inventory.read(tmp_path)), verbose=True) == f"{tmp_path} is empty"
        )


class TestClearing:
    def test_the_large_kinds_if_none_is_named(self, folder: Path) -> None:
        before = all_files(folder)
        assert clear(folder) == LARGE
        assert all_files(folder) == {
            name
            for name in before
            if name.split("/")[0] not in ("compiled", "headers", "references", "logs", "traces", "work")
        }

    @pytest.mark.parametrize("kind", [kind.name for kind in cache_inventory.KINDS])
    def test_one_kind(self, folder: Path, kind: str) -> None:
        put(folder / "brought/net-live-1234/about.json", 10, days=5)
        put(folder / "live/1234/net/live.json", 10, days=5)
        before = cache_inventory.read(folder)
        gone = {item.place for item in before if item.kind == kind}
        assert gone
        assert clear(folder, kinds=(kind,)) == gone
        assert places_of(cache_inventory.read(folder)) == places_of(before) - gone

    def test_by_age(self, folder: Path) -> None:
        assert clear(folder, older_than_days=39.5) == {"compiled/bbbb-build2", "compiled/cccc", "logs/ceilings.log"}
        assert clear(folder, older_than_days=6) == set()

    def test_a_folder_is_as_recent_as_its_newest_file(self, folder: Path) -> None:
        os.utime(folder / "compiled/bbbb-build2/inductor/deep/y.so", (NOW_S, NOW_S))
        assert "compiled/bbbb-build2" not in clear(folder, older_than_days=10)

    def test_by_variant(self, folder: Path) -> None:
        assert clear(folder, variant="inductor") == {"compiled/bbbb-build2"}
        assert clear(folder, variant="cccc") == {"compiled/cccc"}
        assert clear(folder, variant="fp32@cpu", older_than_days=2) == set()
        assert clear(folder, variant="toy:", kinds=("compiled",)) == {"compiled/aaaa"}

    @pytest.mark.parametrize(
        ("choice", "code", "named"),
        [
            (
                {"kinds": ("everything",)},
                "unknown-name",
                "compiled, headers, references, brought, live, logs, traces, work, ceilings",
            ),
            ({"kinds": ("other",)}, "unknown-name", "'other'"),
            ({"kinds": ("compiled", "locks")}, "bad-option", "locks"),
            ({"kinds": ("../..",)}, "unknown-name", "'../..'"),
            ({"kinds": ("references",), "variant": "toy"}, "bad-option", "references"),
            ({"older_than_days": -1}, "bad-option", "-1"),
            ({"older_than_days": float("nan")}, "bad-option", "nan"),
        ],
    )
    def test_an_invalid_selection_is_refused(self, folder: Path, choice: dict[str, Any], code: str, named: str) -> None:
        with pytest.raises(BakeoffError) as error:
            cache_inventory.select(cache_inventory.read(folder), Selection(**choice), NOW_S)
        assert error.value.code == code
        assert named in str(error.value)


class TestLinks:
    @pytest.fixture
    def outside(self, tmp_path: Path) -> Path:
        (tmp_path / "precious").mkdir()
        (tmp_path / "precious/thesis.txt").write_text("years of work")
        os.utime(tmp_path / "precious/thesis.txt", (1, 1))
        return tmp_path / "precious"

    def test_inside_an_entry(self, folder: Path, outside: Path) -> None:
        (folder / "compiled/aaaa/deep").symlink_to(outside)
        (folder / "compiled/aaaa/file").symlink_to(outside / "thesis.txt")
        assert "compiled/aaaa" in clear(folder)
        assert (outside / "thesis.txt").exists()

    def test_an_entry_itself(self, folder: Path, outside: Path) -> None:
        (folder / "references/elsewhere").symlink_to(outside)
        (item,) = (item for item in cache_inventory.read(folder) if item.place == "references/elsewhere")
        assert item.bytes < 1000
        assert "references/elsewhere" in clear(folder)
        assert not (folder / "references/elsewhere").is_symlink()
        assert (outside / "thesis.txt").exists()

    def test_a_kind_itself(self, folder: Path, outside: Path) -> None:
        shutil.rmtree(folder / "references")
        (folder / "references").symlink_to(outside)
        (item,) = (item for item in cache_inventory.read(folder) if item.place == "references")
        assert item.kind == "other"
        clear(folder)
        assert (folder / "references").is_symlink()
        assert (outside / "thesis.txt").exists()

    def test_a_kind_that_becomes_one_meanwhile(self, folder: Path, outside: Path) -> None:
        (outside / "toy-tiny-world-1234").mkdir()
        items = cache_inventory.read(folder)
        shutil.rmtree(folder / "references")
        (folder / "references").symlink_to(outside)
        cleared = cache_inventory.remove(folder, cache_inventory.select(items, Selection(kinds=("references",)), NOW_S))
        assert (places_of(cleared.removed), places_of(cleared.kept)) == (set(), {"references/toy-tiny-world-1234"})
        assert (outside / "toy-tiny-world-1234").is_dir()

    def test_an_entry_that_becomes_one_meanwhile(self, folder: Path, outside: Path) -> None:
        items = cache_inventory.read(folder)
        shutil.rmtree(folder / "compiled/aaaa")
        (folder / "compiled/aaaa").symlink_to(outside)
        cache_inventory.remove(folder, cache_inventory.select(items, Selection(kinds=("compiled",)), NOW_S))
        assert (outside / "thesis.txt").exists()

    def test_the_cache_folder_may_be_one(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(folder)
        assert clear(tmp_path / "link") == LARGE


def test_the_former_folder_of_a_kind_is_listed_and_cleared_with_it(folder: Path) -> None:
    put(folder / "judges/toy-tiny-world-9999/set0.safetensors", MIB, days=5)
    found = {line.kind: line for line in cache.survey(folder, cache_inventory.read(folder)).kinds}
    assert (found["references"].entries, found["references"].bytes) == (2, 3 * MIB)
    both = {"references/toy-tiny-world-1234", "judges/toy-tiny-world-9999"}
    assert places_of(cache_inventory.select(cache_inventory.read(folder), Selection(("references",)), NOW_S)) == both
    assert clear(folder, kinds=("judges",)) == both


def test_entries_deleted_before_clearing_count_as_removed(folder: Path) -> None:
    items = cache_inventory.read(folder)
    shutil.rmtree(folder / "compiled")
    shutil.rmtree(folder / "references/toy-tiny-world-1234")
    (folder / "logs/ceilings.log").unlink()
    assert cache_inventory.remove(folder, cache_inventory.select(items, Selection(), NOW_S)).kept == ()


def test_files_deleted_while_their_folder_is_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink = os.unlink

    def racing(path: Any, **more: Any) -> None:
        with suppress(OSError):
            unlink(path, **more)
        unlink(path, **more)  # gone by now

    monkeypatch.setattr(os, "unlink", racing)
    (item,) = (item for item in cache_inventory.read(folder) if item.place == "references/toy-tiny-world-1234")
    assert cache_inventory.remove(folder, [item]).removed == (item,)


class TestUse:
    """What a sweep writes, and which times of last use it sets."""

    def test_a_sweep_names_its_folders_and_marks_what_it_uses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(supervisor, "WORKER", TORCHLESS)
        monkeypatch.setenv("BAKEOFF_TEST_SURE", "1")
        plan = make_plan(
            Request(
                "toy", backends=("inductor[]",), dtypes=("fp32",), device="cpu", threads=1, policy=FAST, ceilings=False
            )
        )  # fmt: skip
        root = paths.cache_folder()
        for _ in range(2):
            run_sweep(plan, paths.runs_folder(), "", resume=False, progress=Recorder())
            items = {item.kind: item for item in cache_inventory.read(root)}
            assert set(items) == {"compiled", "headers", "references", "logs", "sweeps", "locks"}
            assert items["compiled"].name == "toy:tiny.world/inductor/fp32@cpu"
            assert items["compiled"].about is not None
            assert items["compiled"].about.versions == host.read_versions()
            assert items["compiled"].about.threads == 1
            for kind in ("compiled", "references"):
                assert time.time() - items[kind].used_s < 60
            for path in root.rglob("*"):  # so that the second sweep finds old times
                os.utime(path, (NOW_S - 900 * DAY_S,) * 2)
            assert {item.used_s for item in cache_inventory.read(root)} == {NOW_S - 900 * DAY_S}

    def test_a_folder_is_warm_once_a_build_in_it_succeeded(self, tmp_path: Path) -> None:
        assert not build_cache.is_warm(tmp_path / "x")
        build_cache.open_folder(tmp_path / "x", EAGER)
        assert not build_cache.is_warm(tmp_path / "x")
        (tmp_path / "x/kernel.so").touch()  # of a build that was killed
        assert not build_cache.is_warm(tmp_path / "x")
        build_cache.mark_finished(tmp_path / "x")
        assert build_cache.is_warm(tmp_path / "x")

    def test_a_folder_that_cannot_be_created_is_no_error(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        build_cache.open_folder(tmp_path / "file" / "x", EAGER)


class TestCommand:
    """Through the real command line."""

    def run(self, *arguments: str, **environment: str | None) -> Ran:
        ran = bakeoff("cache", *arguments, cwd=paths.cache_folder().parent, **environment)
        assert "Traceback" not in ran.err
        return ran

    def refuses(self, *arguments: str, code: ErrorCode, says: str, **environment: str | None) -> None:
        """One error line that ends with `[code]` and names `says`, exit code 2 and nothing on stdout."""
        ran = self.run(*arguments, **environment)
        assert (ran.code, ran.out) == (2, "")
        assert len(ran.said) == 1, ran.err
        assert ran.said[0].endswith(f" [{code}]"), ran.said[0]
        assert says in ran.said[0]

    def test_shows_and_clears(self, folder: Path) -> None:
        assert "somebody's" in self.run("--verbose").out
        found = json.loads(self.run("--json").out)
        assert list(found) == ["folder", "kinds", "items"]
        assert list(found["kinds"][0]) == ["kind", "holds", "entries", "bytes", "used_s"]
        ran = self.run("clear", "compiled", "--variant", "inductor", "--older-than", "36500")
        assert (ran.code, ran.out, ran.err) == (0, "nothing to remove\n", "")
        ran = self.run("clear", "compiled", "logs")
        assert ran.code == 0
        assert "toy:tiny.world/eager/fp32@cpu" in ran.out
        assert ran.out.splitlines()[-1] == "removed 5 entries, 4.5 MiB"
        assert self.run("clear", "compiled").out == "nothing to remove\n"
        assert {item.kind for item in cache_inventory.read(folder)} == {
            "headers", "references", "traces", "work", "ceilings", "instrument", "sweeps", "checkpoints", "selftest",
            "locks", "other",
        }  # fmt: skip
        found = json.loads(self.run("clear", "references", "--json").out)
        assert ([item["place"] for item in found["removed"]], found["kept"], found["bytes"]) == (
            ["references/toy-tiny-world-1234"], [], 2 * MIB,
        )  # fmt: skip

    def test_clear_is_refused_while_the_cache_is_used(self, folder: Path) -> None:
        with device_lock("cpu", print, folder):
            before = all_files(folder)
            self.refuses("clear", code="busy", says=f"pid {os.getpid()} of")
            assert self.run().code == 0
            assert all_files(folder) == before
        assert self.run("clear").code == 0

    def test_absent_or_wrong_folders(self, tmp_path: Path) -> None:
        for arguments in ((), ("clear",), ("--verbose",), ("clear", "compiled")):
            self.refuses(*arguments, code="not-readable", says=str(tmp_path / "cache"))
        assert not (tmp_path / "cache").exists()
        (tmp_path / "file").touch()
        for arguments in ((), ("clear",)):
            file = str(tmp_path / "file")
            self.refuses(*arguments, code="not-readable", says=file, BAKEOFF_CACHE=file)

    def test_unwritable(self) -> None:
        folder = "/proc/self/fdinfo"
        self.refuses("clear", code="not-writable", says=folder, BAKEOFF_CACHE=folder)

    def test_wrong_arguments(self, folder: Path) -> None:
        before = all_files(folder)
        self.refuses("clear", "all", code="unknown-name", says="'all'")
        self.refuses("clear", "locks", code="bad-option", says="locks")
        self.refuses("clear", "--variant", "", code="bad-option", says="--variant")
        self.refuses("clear", "--older-than", "-3", code="bad-option", says="--older-than")
        self.refuses("--json", "clear", code="bad-option", says="clear")
        assert all_files(folder) == before
