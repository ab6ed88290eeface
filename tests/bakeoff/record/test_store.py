"""Records are written completely or not at all, found by name, part of a name, hash or path, and never deleted."""

import hashlib
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest
from disk import files, largest_file
from pipeline_records import pipeline_record
from records import record

from bakeoff.models.errors import BakeoffError
from bakeoff.record.codec import encode
from bakeoff.record.schema import SCHEMA, Record, Supersede
from bakeoff.record.store import find, folder_of, load_all, now, save, supersede


def at(second: int, backend: str = "eager", **changes: Any) -> Record:
    return record(backend, [1.0, 2.0], created=f"2026-01-02T03:04:{second:02}.000000Z", **changes)


def folder(runs: Path) -> Path:
    """The folder of the records that `at` makes."""
    return folder_of(runs, at(0))


class TestSave:
    def test_name_tells_time_variant_and_content(self, tmp_path: Path) -> None:
        made = at(5, "inductor[freezing]")
        name = save(tmp_path, made)
        assert name.startswith("20260102T030405Z_toy_tiny.world_inductor_freezing_fp32_cpu_")
        assert (folder(tmp_path) / f"{name}.json").read_bytes() == encode(made)

    def test_records_of_the_same_time_have_different_names(self, tmp_path: Path) -> None:
        names = {save(tmp_path, at(5, note=str(index))) for index in range(20)}
        assert len(names) == len(load_all(tmp_path).current) == 20

    def test_full_disk_loses_that_record_only(self, tmp_path: Path) -> None:
        save(tmp_path, at(1))
        before = files(tmp_path)
        with largest_file(1000), pytest.raises(BakeoffError) as error:
            save(tmp_path, at(2))
        assert error.value.code == "not-writable"
        assert files(tmp_path) == before
        assert len(load_all(tmp_path).current) == 1


class TestLoadAll:
    def test_order_is_by_time_of_creation(self, tmp_path: Path) -> None:
        made = [at(second, backend) for second in range(30) for backend in ("inductor", "eager")]
        shuffled = random.Random(0).sample(made, len(made))
        for entry in shuffled:
            save(tmp_path, entry)
        found = [entry.record.created for entry in load_all(tmp_path).current]
        assert found == sorted(found)
        assert {encode(entry.record) for entry in load_all(tmp_path).current} == {encode(entry) for entry in made}
        assert [entry.id for entry in load_all(tmp_path).current] == [entry.id for entry in load_all(tmp_path).current]

    def test_other_files_are_left_alone(self, tmp_path: Path) -> None:
        save(tmp_path, at(1))
        for name in ("notes.txt", ".hidden.json", "half.json.tmp", ".abc.tmp"):
            (folder(tmp_path) / name).write_text("{")
        found = load_all(tmp_path)
        assert len(found.current) == 1
        assert found.problems == ()

    def test_unreadable_files_are_problems(self, tmp_path: Path) -> None:
        whole = save(tmp_path, at(1))
        (folder(tmp_path) / "folder.json").mkdir()
        (folder(tmp_path) / "torn.json").write_bytes(encode(at(2))[:200])
        (folder(tmp_path) / "link.json").symlink_to(tmp_path / "nowhere")
        os.mkfifo(folder(tmp_path) / "pipe.json")
        (folder(tmp_path) / "device.json").symlink_to("/dev/zero")
        found = load_all(tmp_path)
        assert [entry.id for entry in found.current] == [whole]
        names = ("device.json", "folder.json", "link.json", "pipe.json", "torn.json")
        assert len(found.problems) == len(names), "each bad file is told, not only the first"
        assert all(name in problem for name, problem in zip(names, found.problems, strict=True))
        assert not [problem for problem in found.problems if "\n" in problem]

    def test_an_edited_or_renamed_record_is_a_problem(self, tmp_path: Path) -> None:
        name = save(tmp_path, at(1))
        path = folder(tmp_path) / f"{name}.json"
        data = path.read_bytes()
        path.write_bytes(data.replace(b"2000000", b"1000000"))
        (folder(tmp_path) / f"copy of {name}x.json").write_bytes(data)
        found = load_all(tmp_path)
        assert found.current == ()
        assert len(found.problems) == 2
        assert all(name in problem for problem in found.problems)
        path.write_bytes(data)
        assert [entry.id for entry in load_all(tmp_path).current] == [name]

    def test_a_path_that_is_not_a_readable_folder(self, tmp_path: Path) -> None:
        (tmp_path / "machine").mkdir()
        (tmp_path / "machine" / "records").touch()
        for runs, reason in ((tmp_path, "Not a directory"), (tmp_path / ("x" * 5000), "File name too long")):
            with pytest.raises(BakeoffError, match=reason) as error:
                load_all(runs)
            assert error.value.code == "not-readable"

    def test_a_run_of_a_pipeline_is_read_back_and_superseded(self, tmp_path: Path) -> None:
        made = pipeline_record()
        name = save(tmp_path, made)
        found = load_all(tmp_path)
        assert [(run.id, run.record) for run in found.pipelines] == [(name, made)]
        assert (found.current, found.problems) == ((), ())
        supersede(tmp_path, name, "another program ran")
        assert load_all(tmp_path).pipelines == ()


class TestFind:
    def test_by_name_beginning_hash_and_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first, second = save(tmp_path, at(1)), save(tmp_path, at(2, "inductor"))
        for asked in (first, first[: len("20260102T030401")], first.rpartition("_")[2], first[-12:-4], f"{first}.json"):
            assert find(tmp_path, asked).id == first
        assert find(tmp_path, second).record == at(2, "inductor")
        assert find(tmp_path / "nowhere", str(folder(tmp_path) / f"{second}.json")).id == second
        monkeypatch.chdir(folder(tmp_path))
        assert find(tmp_path / "nowhere", f"{second}.json").id == second

    def test_ambiguous_and_unknown(self, tmp_path: Path) -> None:
        save(tmp_path, at(1))
        save(tmp_path, at(2))
        for asked, count in (
            ("2026", "2 of 2"),
            ("20260102T03040", "2 of 2"),
            *((asked, "none of 2") for asked in ("", "zzz", "*", "../records/2026", "missing.json")),
        ):
            with pytest.raises(BakeoffError, match=f"{re.escape(asked)}.*{count}") as error:
                find(tmp_path, asked)
            assert error.value.code == "no-record"


class TestSupersede:
    def test_excludes_a_record_and_keeps_its_file(self, tmp_path: Path) -> None:
        bad, good = save(tmp_path, at(1)), save(tmp_path, at(2))
        supersede(tmp_path, bad, "  another program ran\n")
        found = load_all(tmp_path)
        assert [entry.id for entry in found.current] == [good]
        assert [(entry.id, reason) for entry, reason in found.superseded] == [(bad, "another program ran")]
        assert (folder(tmp_path) / f"{bad}.json").read_bytes() == encode(at(1))
        assert find(tmp_path, bad).id == bad

    def test_superseding_a_missing_record_changes_nothing(self, tmp_path: Path) -> None:
        gone = Supersede(SCHEMA, now(), "20250101T000000Z_gone_0123456789ab", "bad")
        with pytest.raises(BakeoffError) as error:
            save(tmp_path, gone)
        assert error.value.code == "no-record"
        data = encode(gone)
        save(tmp_path, at(1))
        (folder(tmp_path) / f"x_{hashlib.sha256(data).hexdigest()[:12]}.json").write_bytes(data)
        found = load_all(tmp_path)
        assert (len(found.current), found.superseded, found.problems) == (1, (), ())
