"""Whose records a page shows: this machine's, those of the machines asked for, or of the one that measured last."""

from dataclasses import replace

import pytest
from records import record

from bakeoff.machine.identity import Machine
from bakeoff.models.errors import BakeoffError
from bakeoff.record.schema import Record
from bakeoff.record.store import Records, Stored
from bakeoff.report.selection import select

CPU = Machine("aaaa11112222", "cccc11112222", "AMD EPYC, 2 cores")
GPU = Machine("bbbb11112222", "dddd11112222", "NVIDIA H200")
TWIN = Machine("aabb33334444", "eeee11112222", "AMD EPYC, 2 cores")
MOVED = Machine(CPU.id, "ffff11112222", "AMD EPYC, 2 cores")
"""A host that got another processor, or a clone of it elsewhere."""
SAME = Machine("bbcc33334444", GPU.machine_class, "NVIDIA H200")
"""Another card of this kind."""


def made(machine: Machine, second: int) -> Record:
    return record("eager", [1.0] * 20, machine=machine, created=f"2026-01-02T03:04:{second:02}.000000Z")


RECORDS = Records(
    tuple(Stored(f"id-{index}", made(machine, index)) for index, machine in enumerate((CPU, TWIN, GPU))), (), ()
)


def chosen(*asked: str, own: tuple[Machine, ...] = ()) -> list[str]:
    return [machine.id for machine in select(RECORDS, asked, [machine.key for machine in own]).machines]


class TestDefault:
    def test_this_machine_with_all_its_devices(self) -> None:
        found = select(RECORDS, [], [CPU.key, GPU.key])
        assert [machine.id for machine in found.machines] == [GPU.id, CPU.id]
        assert {entry.machine.id for entry in found.records.current} == {CPU.id, GPU.id}
        assert not found.foreign

    def test_the_machine_that_measured_last_where_this_one_has_no_record(self) -> None:
        found = select(RECORDS, [], ["another"])
        assert ([machine.id for machine in found.machines], found.foreign) == ([GPU.id], True)


class TestAsked:
    @pytest.mark.parametrize("text", ["all", "ALL"])
    def test_all(self, text: str) -> None:
        assert chosen(text, own=(CPU,)) == [GPU.id, TWIN.id, CPU.id]

    @pytest.mark.parametrize(
        ("text", "machines"),
        [
            ("bbbb", [GPU]),
            (GPU.id, [GPU]),
            ("nvidia h200", [GPU]),
            ("nvidia-h200", [GPU]),
            (TWIN.folder, [TWIN]),
            ("AMD EPYC, 2 cores", [TWIN, CPU]),
            ("nvidia h200, aaaa", [GPU, CPU]),
            ("eeee", [TWIN]),
        ],
    )
    def test_by_name_folder_or_id(self, text: str, machines: list[Machine]) -> None:
        assert chosen(text, own=(CPU,)) == [machine.id for machine in machines]

    def test_an_id_may_be_of_two_processors_and_a_class_of_two_cards(self) -> None:
        more = (Stored("moved", made(MOVED, 10)), Stored("same", made(SAME, 11)))
        records, both = replace(RECORDS, current=RECORDS.current + more), [MOVED, CPU]
        assert records.machines() == [SAME, MOVED, TWIN, CPU]
        for text, found in (("aaaa", both), ("ffff", [MOVED]), ("bbbb", [SAME])):
            chosen = select(records, [text], [])
            assert list(chosen.machines) == found
            assert {entry.machine.key for entry in chosen.records.current} == {machine.key for machine in found}

    @pytest.mark.parametrize("text", ["nosuch", "aaa", "aaaa,nosuch", "2 cores"])
    def test_unknown_names_the_known_ones(self, text: str) -> None:
        with pytest.raises(BakeoffError) as error:
            chosen(text)
        assert error.value.code == "unknown-name"
        assert all(machine.folder in str(error.value) for machine in (CPU, TWIN, GPU))
