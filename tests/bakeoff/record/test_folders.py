"""Records lie in a folder of the machine that measured them."""

from dataclasses import replace
from pathlib import Path

import pytest
from records import GPU_HOST, HOST, record

from bakeoff.machine import host, identity
from bakeoff.machine.identity import Machine, machine_class, same_machine
from bakeoff.record.schema import SCHEMA, Comparison, Record
from bakeoff.record.store import load_all, of_one_host, publish, save, supersede
from bakeoff.report.pages import files as pages

MINE = Machine("aaaaaaaaaaaa", "c1a55000000", "Test CPU, 4 cores")
YOURS = Machine("aaaaaaaaaaaa", "d1a55000000", "Test CPU, 4 cores")
"""Of one id, as cloned virtual machines are."""
OTHER = Machine("bbbbbbbbbbbb", "c1a55000000", "Test CPU, 4 cores")
UNKNOWN = Machine("aaaaaaaaaaaa", "", "Test CPU, 4 cores")


def at(second: int, machine: Machine, backend: str = "eager") -> Record:
    created = f"2026-01-02T03:04:{second:02}.000000Z"
    return replace(record(backend, [1.0, 2.0], created=created), machine=machine)


def folders(runs: Path) -> set[str]:
    return {path.parent.relative_to(runs).as_posix() for path in runs.rglob("*.json")}


def test_classes_of_one_name_and_id_have_folders_of_their_own(tmp_path: Path) -> None:
    save(tmp_path, at(1, MINE))
    save(tmp_path, at(2, YOURS))
    assert folders(tmp_path) == {"test-cpu-4-cores-c1a550/records", "test-cpu-4-cores-d1a550/records"}
    found = load_all(tmp_path)
    assert found.machines() == [YOURS, MINE], "the one that measured last is first"
    assert [entry.machine for entry in found.of_machines([MINE.key]).current] == [MINE]


def test_hosts_of_one_class_share_a_folder(tmp_path: Path) -> None:
    save(tmp_path, at(1, MINE))
    save(tmp_path, at(2, OTHER))
    save(tmp_path, at(3, UNKNOWN))
    assert folders(tmp_path) == {"test-cpu-4-cores-c1a550/records", "test-cpu-4-cores-aaaaaa/records"}
    found = load_all(tmp_path)
    assert (found.machines(), found.hosts()) == ([UNKNOWN, OTHER], [UNKNOWN, OTHER, MINE])
    assert [entry.machine for entry in of_one_host(found.current, MINE)] == [MINE]
    assert [entry.machine for entry in of_one_host(found.current, replace(MINE, id="new"))] == [OTHER]
    assert of_one_host(found.current, YOURS) == []


def test_a_folder_named_by_the_id_is_read_and_gets_no_more_records(tmp_path: Path) -> None:
    """As folders were called before the class named them; of a record that lies there, nothing is copied."""
    save(tmp_path / "runs", at(1, MINE))
    old = tmp_path / "published" / "test-cpu-4-cores-aaaaaa"
    old.parent.mkdir()
    (tmp_path / "runs" / MINE.folder).rename(old)
    save(tmp_path / "published", at(2, OTHER))
    assert folders(tmp_path / "published") == {"test-cpu-4-cores-aaaaaa/records", "test-cpu-4-cores-c1a550/records"}
    found = load_all(tmp_path / "published")
    publish(tmp_path / "published", tmp_path / "published", {entry.id for entry in found.current})
    assert len(list((tmp_path / "published").rglob("*.json"))) == 2
    assert found.machines() == [OTHER]
    (old / "RESULTS.md").write_text("as it was")
    pages.update(tmp_path / "published")
    assert [text.partition(" is ")[0] for text in pages.check(tmp_path / "published")] == [str(old / "RESULTS.md")]


def test_a_machine_is_its_class_and_unknown_equals_only_unknown() -> None:
    assert same_machine(MINE, OTHER)
    assert same_machine(UNKNOWN, replace(UNKNOWN, name="renamed"))
    for other in (YOURS, UNKNOWN, replace(UNKNOWN, id=MINE.machine_class)):
        assert not same_machine(MINE, other)


def test_entries_that_belong_to_a_record_lie_beside_it(tmp_path: Path) -> None:
    bad = save(tmp_path, at(1, YOURS))
    save(tmp_path, at(2, MINE))
    supersede(tmp_path, bad, "busy")
    save(tmp_path, Comparison(SCHEMA, "2026", "", "in turn", 1, (at(3, YOURS), at(4, YOURS, "inductor")), ()))
    assert len(list((tmp_path / YOURS.folder / "records").iterdir())) == 3
    assert len(list((tmp_path / MINE.folder / "records").iterdir())) == 1


class TestIdentity:
    def asked(self, monkeypatch: pytest.MonkeyPatch, name: str, device: str = "cpu") -> Machine:
        monkeypatch.setenv(identity.VARIABLE, name)
        identity.this_machine.cache_clear()
        found = identity.this_machine(device)
        identity.this_machine.cache_clear()
        return found

    def test_two_hosts_of_one_class(self, monkeypatch: pytest.MonkeyPatch) -> None:
        one, other = self.asked(monkeypatch, "one"), self.asked(monkeypatch, "other")
        assert one.id != other.id
        assert one.machine_class == other.machine_class
        assert one == self.asked(monkeypatch, "one")

    def test_two_gpus_of_one_host(self, monkeypatch: pytest.MonkeyPatch) -> None:
        other = replace(GPU_HOST, gpus=({**GPU_HOST.gpus[0], "uuid": "GPU-2"},))
        found = []
        for facts in (GPU_HOST, other):
            monkeypatch.setattr(host, "read_host", lambda facts=facts: facts)
            found.append([self.asked(monkeypatch, "one", device) for device in ("cuda", "cpu")])
        (first, cpu), (second, same_cpu) = found
        assert first.id != second.id
        assert same_machine(first, second)
        assert cpu == same_cpu

    def test_nothing_of_the_host_can_be_read_from_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = self.asked(monkeypatch, "secret-host")
        assert "secret" not in repr(found)
        assert len(found.id) == 12

    def test_the_class_follows_the_parts(self) -> None:
        base = machine_class(HOST, "cpu")
        for changed in ({"cpu_stepping": "25 17 2"}, {"all_flags": "x"}, {"hypervisor": "KVM"}, {"memory_bytes": 1}):
            assert machine_class(replace(HOST, **changed), "cpu") != base
        assert machine_class(replace(HOST, memory_bytes=HOST.memory_bytes + (1 << 20)), "cpu") == base
        gpu = machine_class(GPU_HOST, "cuda")
        newer = replace(GPU_HOST, gpus=({**GPU_HOST.gpus[0], "driver": "600.1"},))
        assert machine_class(newer, "cuda") != gpu
        assert machine_class(newer, "cpu") == machine_class(GPU_HOST, "cpu")
