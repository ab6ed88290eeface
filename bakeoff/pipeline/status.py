"""The status of a mix by what its worker reported, checked against what the parent saw."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bakeoff.models.words import counted
from bakeoff.process.phases import Block
from bakeoff.record.pipeline import PipelineMeasurement, SlotProgram
from bakeoff.record.policy import Policy
from bakeoff.record.schema import MEASURED, Finding, Status, new_finding
from bakeoff.record.units import Units

_CONTENTION = "other_cpu_share"
"""Of `device_state`: the share of all cores that other processes took while units ran."""


def with_status(
    measurement: PipelineMeasurement, blocks: Sequence[Block], span_s: float, policy: Policy, filling: int
) -> PipelineMeasurement:
    """The measurement with the worst status that its own facts mean; one that is worse already keeps its own.

    `blocks` are the units as the worker reported them one by one, within `span_s` seconds by the parent's clock;
    `filling` are those of a session before its windows are full.
    """
    if measurement.status != "ok":
        return measurement
    failed = next(_failures(measurement), None)
    if failed is not None:
        return replace(measurement, status=failed[0], reason=failed[1])
    findings = tuple(_doubts(measurement, blocks, span_s, policy, filling))
    if not findings:
        return measurement
    return replace(
        measurement,
        status="unstable",
        reason=findings[0].text,
        findings=(*measurement.findings, *findings),
    )


def _failures(measurement: PipelineMeasurement) -> Iterator[tuple[Status, str]]:
    """What makes the mix another one than was asked for, or wrong."""
    for program in measurement.programs:
        if program.status not in MEASURED:
            yield program.status, f"{_name(program)}: {program.reason}"
    for program in measurement.programs:
        if program.status == "fell_back" or (program.proof is not None and program.proof.fell_back):
            because = program.reason or (program.proof.fell_back if program.proof is not None else "")
            yield "fell_back", f"{program.slot}: {because}"
    for program in measurement.programs:
        if program.status == "parity_failed" or (program.parity is not None and not program.parity.passed):
            yield "parity_failed", f"{_name(program)}: {program.reason}".removesuffix(": ")
    for unit in measurement.parity.units if measurement.parity is not None else ():
        for output in unit.outputs:
            if not output.passed:
                yield "parity_failed", f"unit {unit.unit} of the loop: {output.problem or output.name}"


def _doubts(
    measurement: PipelineMeasurement, blocks: Sequence[Block], span_s: float, policy: Policy, filling: int
) -> Iterator[Finding]:
    """What makes the numbers no measurement of this mix."""
    units = measurement.units
    if units is None or "steady" not in units.kinds:
        count = len(units.kinds) if units is not None else 0
        if count < filling:
            yield new_finding(
                "window-not-full", f"{counted(count, 'unit')} ran, and the windows are full after {filling}"
            )
        yield new_finding("warm-up", f"no steady unit: times did not settle within {counted(count, 'unit')}")
        return
    recompiled = sorted({name for index in _steady(units) for name in units.moved.get(str(index), ())})
    if recompiled:
        yield new_finding("recompiles", f"recompiled: {', '.join(recompiled)}")
    share = measurement.device_state.get(_CONTENTION)
    if isinstance(share, int | float) and share > policy.contention:
        yield new_finding("contention", f"other processes used {share:.0%} of the CPU while units ran")
    for index in range(len(units.wall_ns)):
        total = sum(line.ns[index] for line in units.lines)
        if total != units.wall_ns[index]:
            text = f"the lines of unit {index} add up to {total} ns, it took {units.wall_ns[index]} ns"
            yield new_finding("clock-span", text)
            break
    if tuple(units.wall_ns) != tuple(block.samples_ns[0] for block in blocks):
        yield new_finding("clock-span", "the units of the report are not those that were announced one by one")
    elif sum(units.wall_ns) / 1e9 > span_s:
        text = f"units add up to {sum(units.wall_ns) / 1e9:.3f} s, the parent saw {span_s:.3f} s pass"
        yield new_finding("clock-span", text)


def _steady(units: Units) -> Iterator[int]:
    return (index for index, kind in enumerate(units.kinds) if kind == "steady")


def _name(program: SlotProgram) -> str:
    return f"{program.slot}.{program.variant.workload}"
