"""Remarks below a table of pipelines, the same on every page."""

from collections.abc import Sequence

from bakeoff.models.words import counted
from bakeoff.record.frames import BeforeAfter
from bakeoff.record.pairs import turned
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.prediction import Prediction, memory_sum, prediction, sweep_command, weights_held
from bakeoff.report.format import MIB, milliseconds, minute
from bakeoff.report.links import PROFILES
from bakeoff.report.monitored import sentences
from bakeoff.report.notes import selftest_text
from bakeoff.report.pipelines import MixRow
from bakeoff.trace.table import profile_table

_OUTPUTS = 3
"""Outputs of the loop's check that are listed at most."""


def mixes(rows: Sequence[MixRow]) -> list[str]:
    """What each name stands for, and which mixes are of an earlier run than the newest."""
    last = max((row.record for row in rows), key=lambda record: record.created).run if rows else ""
    return [
        f"{row.name}: {row.record.mix}"
        + ("" if row.record.run == last else f" (an earlier run, {minute(row.record.created)} UTC, not in turns)")
        for row in rows
    ]


def verdicts(rows: Sequence[MixRow]) -> list[str]:
    """Which mix to take, by interleaved units."""
    return [f"{row.name} {_verdict(row.gain, row.against)}" for row in rows if row.gain is not None]


def _verdict(gain: BeforeAfter, against: str) -> str:
    lost = gain.ratio < 1
    ratio, interval = turned(gain.ratio, gain.interval) if lost else (gain.ratio, gain.interval)
    ends = f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval is not None else ""
    how = f"{counted(gain.pairs, 'pair')} of interleaved units, one process each"
    for_whom = f" for {against}" if lost else ""
    text = {
        "faster": f"is {ratio:.2f}x as fast as {against}{ends}",
        "slower": f"lost: {against} is {ratio:.2f}x as fast{ends}",
        "no difference shown": f"against {against}: no difference shown, {ratio:.2f}x{ends}{for_whom}",
        "too few units": f"against {against}: too few units for a verdict, {ratio:.2f}x{for_whom}",
    }[gain.word]
    return f"{text} ({how})"


def remarks(row: MixRow) -> list[str]:
    """What must be known of one mix: why it is not ok, findings, its prediction, weights and parity."""
    record, made = row.record, row.record.measurement
    lines = [f"{record.status}: {made.reason or 'no reason is stored'}"] if record.status != "ok" else []
    lines += [f"{program.slot}.{program.variant.workload} is {program.status}: {program.reason}"
              for program in made.programs if program.status != "ok"]  # fmt: skip
    lines += [
        f"finding {finding.code}: {finding.text}"
        for finding in made.findings
        if record.status == "ok" or finding.text != made.reason
    ]
    lines += [
        f"finding of {program.slot}.{program.variant.workload}, {finding.code}: {finding.text}"
        for program in made.programs
        for finding in program.findings
    ]
    if made.units is not None and made.units.moved:
        lines += [f"unit {unit} compiled {', '.join(what)}" for unit, what in made.units.moved.items()]
    found = prediction(record)
    lines += explanation(found, record) if found is not None else []
    return [*lines, *memory(row), *parity(row), *profile(row), *sentences(record)]


def profile(row: MixRow) -> list[str]:
    """What the traced pass says of the whole unit."""
    table = profile_table(row.record)
    if table is None:
        return []
    hidden = f", {table.hidden_ms:.2f} not visible" if table.hidden_ms else ""
    told = f"{table.busy_ms:.2f} of {table.unit_ms:.2f} ms a {row.record.unit} busy, {table.idle_ms:.2f} idle{hidden}"
    return [f"profile: {told}; its page: {PROFILES}/{row.entry.id}.html"]


def explanation(found: Prediction, record: PipelineRecord) -> list[str]:
    """Where the prediction's error comes from; the programs without a part, with the sweep that makes it."""
    lines = [
        f"no prediction of {program.slot}.{program.variant.workload}: no record of it on this machine by this code; "
        f"run: {sweep_command(program, record)}"
        for program in found.missing
    ]
    largest = found.largest
    if found.predicted_ms is None or largest is None or largest.difference_ms is None or largest.share is None:
        return lines
    whole = found.unit_ms - found.predicted_ms
    lines.append(
        f"a unit takes {milliseconds(found.unit_ms)} ms, its parts' records promise {milliseconds(found.predicted_ms)} "
        f"({whole:+.2f} ms); {largest.slot} explains {largest.share:.0%} of the difference "
        f"({largest.difference_ms:+.2f} ms)"
    )
    return lines


def memory(row: MixRow) -> list[str]:
    """The peak beside the sum of the parts' peaks, and how often weights are held."""
    found, lines = memory_sum(row.record), []
    if found is not None and found.peak_bytes is not None:
        text = f"{found.meter} peak {found.peak_bytes / MIB:.0f} MiB with all components in place"
        if found.parts_bytes is not None:
            text += f"; the peaks of its parts alone add up to {found.parts_bytes / MIB:.0f} MiB"
            text += f" without {', '.join(found.without)}" if found.without else ""
        lines.append(text)
    held = [
        f"{each.slot} {counted(each.copies, 'copy', 'copies')} for {counted(each.programs, 'program')} "
        f"({_mebibytes(each.bytes)} MiB)"
        for each in weights_held(row.record)
    ]
    return [*lines, *([f"weights held: {', '.join(held)}"] if held else [])]


def _mebibytes(size: int) -> str:
    return f"{size / MIB:.0f}" if size >= 10 * MIB else f"{size / MIB:.2g}"


def parity(row: MixRow) -> list[str]:
    """The check of the loop's first units."""
    found = row.record.measurement.parity
    if found is None:
        return []
    wrong = [
        f"unit {unit.unit} {output.name}: {output.problem or f'relative L2 {output.rel_l2}, limit {output.limit:.2e}'}"
        for unit in found.units
        for output in unit.outputs
        if not output.passed
    ]
    count = len(found.units)
    checked = f"the loop's first {f'{count} units' if count != 1 else 'unit'} against eager {found.reference_dtype}"
    if not wrong:
        return [f"parity: {checked}: ok"]
    more = f" and {len(wrong) - _OUTPUTS} more" if len(wrong) > _OUTPUTS else ""
    return [f"parity: {checked}: FAILED: {'; '.join(wrong[:_OUTPUTS])}{more}"]


def selftests(rows: Sequence[MixRow]) -> list[str]:
    """The selftests that were the newest when the rows were measured, each once."""
    return list(dict.fromkeys(selftest_text(row.record) for row in rows))
