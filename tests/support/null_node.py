"""A node's process that measures nothing: what the note of its order says happens instead.

`rows N` stores N records, also row by row, `hang` stores one and waits with a process of its own, `full` has no room.
"""

import subprocess
from dataclasses import replace
from pathlib import Path

import fake_gpus
from records import record

from bakeoff.cluster import node
from bakeoff.cluster.node import Lines
from bakeoff.cluster.order import FINAL, PLAN, Order, PlannedRow
from bakeoff.machine import host, paths
from bakeoff.machine.identity import this_machine
from bakeoff.models.errors import BakeoffError
from bakeoff.process import guard
from bakeoff.process.supervisor import Event
from bakeoff.record.codec import decode
from bakeoff.record.schema import Record
from bakeoff.record.store import now, save
from bakeoff.sweeps.run import SweepResult
from bakeoff.variant import Variant


def run(asked: Order, lines: Lines) -> None:
    """Do what the note says, with the rows that the driver does not know."""
    if asked.note == "full":
        raise BakeoffError(
            "records cannot be written to /cache: No space left on device; choose another folder", "not-writable"
        )
    runs = paths.cache_folder() / node.FOLDER / asked.sweep / asked.part
    lines.watch(runs, [save(runs, decode(data, "sent")) for data in asked.known])
    if asked.part:
        run_part(asked, lines, runs)
        return
    count = int(asked.note.removeprefix("rows ")) if asked.note.startswith("rows ") else 2
    lines.write("rows", count)
    known = [entry for entry in (decode(data, "sent") for data in asked.known) if isinstance(entry, Record)]
    preset = asked.request.component.partition(":")[2]
    for position in range(1 + len(known), 1 + count):
        variant = Variant("toy", preset, "world", (), "fp32", asked.request.device)
        variant = replace(variant, backends=record(f"eager[x{position}]").variant.backends)
        running = lines.start(position, count, str(variant))
        running.event(Event("latency"))
        made = record(
            samples_ms=[10 + 0.1 * index for index in range(20)],
            variant=variant,
            created=now(),
            sweep=asked.sweep,
            node=host.node(),
            machine=this_machine(asked.request.device),
            threads=host.usable_cores(),
            host=host.read_host(),
            position=position,
        )
        save(runs, made)
        running.finish()
        lines.result(made)
        if asked.note == "hang" and not known:
            subprocess.run(["sleep", "600"], check=False, preexec_fn=guard._prepare_child)  # as a guard's worker
    lines.expect(0.0)
    lines.write("done", SweepResult(asked.sweep, (), ()))


def run_part(asked: Order, lines: Lines, runs: Path) -> None:
    """Say which rows there are, or store a record of each row of the part; each node has a time of its own."""
    backends = ["eager", *(f"inductor[x{number}]" for number in range(1, int(asked.note.removeprefix("rows "))))]
    variants = [record(backend).variant for backend in backends]
    if asked.part == PLAN:
        keys = [(str(variant), 1, 1) for variant in variants]
        subject = variants[0].subject
        lines.write("planned", [PlannedRow(key, subject, True, key == keys[0]) for key in keys])
    machine = this_machine(asked.request.device)
    fitting = (each for each in asked.request.calibrations if machine.id in (each.medians_ns or [machine.id]))
    calibration = next(fitting, None)
    for variant in variants:
        if (str(variant), 1, 1) in asked.only and not asked.part.startswith(FINAL):
            made = record(
                samples_ms=[10 + ord(host.node()[-1]) % 10 + 0.01 * index for index in range(20)],
                variant=variant,
                created=now(),
                sweep=asked.sweep,
                node=host.node(),
                machine=machine,
                calibration=calibration,
            )
            save(runs, made)
            lines.result(made)
    lines.write("done", SweepResult(asked.sweep, (), ()))


node.run_order = run
if __name__ == "__main__":
    fake_gpus.install()
    node.main()
