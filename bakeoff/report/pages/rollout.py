"""Pages of rollouts: whether a mix stays right for many units, and how it drifts when it runs free."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from bakeoff.models.words import counted
from bakeoff.record.pipeline import Curve, PipelineRecord, Rollout
from bakeoff.record.rollout import MIX, flicker, growth, horizon, nearest, of_output, rollout_text, standing
from bakeoff.record.schema import OutputParity
from bakeoff.record.store import StoredPipeline
from bakeoff.report import document
from bakeoff.report.document import Cell, Document, Figures, Heading, Section, Text, blocks, listed
from bakeoff.report.figures.rollout import figure
from bakeoff.report.groups import title
from bakeoff.report.links import Cited
from bakeoff.report.pages.sweep import tone_of
from bakeoff.report.pipelines import by_run, newest_rollouts

_HEADINGS: Final = (
    Heading("output"),
    Heading("worst unit", "the one whose error is the largest share of its limit", True, 1),
    Heading("error", "relative L2 against the reference loop, of a unit that starts from the reference's state", True),
    Heading("limit", "twice the error of eager in the same dtypes, at least the fp32 tolerance; quantised slots by "
            "their least signal to noise", True),
    Heading("of it", "error over limit", True),
    Heading("free below {:g} dB", "the first unit below the threshold when the loop runs free", True),
    Heading("against eager", "against equivalents: other threads, plain attention, starts that differ by a rounding"),
    Heading("last dB", "PSNR of pictures, else signal to error, of the last unit that ran free", True, 3),
    Heading("growth a unit [95 %]", "factor of that error, by least squares of its logarithm", True, 2),
    Heading("change off", "relative L2 of the change from unit to unit, running free (median), and against the most of "
            "the equivalents: what flickers, and errors of single units do not show", True, 1),
)  # fmt: skip
_UNTRAINED: Final = (
    "The weights are random: the curves show that the loop is computed alike, and say nothing about the picture."
)


def of_runs(runs: Iterable[StoredPipeline]) -> Document:
    """Return the page of all rollouts of each run, as `bakeoff rollout` prints it at its end."""
    return Document("", sections(runs))


def sections(runs: Iterable[StoredPipeline], cited: Cited | None = None, full: bool = False) -> tuple[Section, ...]:
    """Return a section for each subject with the newest rollout of each mix and, with `full`, its figure."""
    made = []
    for entries in by_run(newest_rollouts(runs)):
        parts = (block for entry in entries for block in _mix(entry, cited, full))
        made.append(Section(f"Rollout of {title(entries[0].record)}", (*parts, *_legend(entries))))
    return tuple(made)


def document_of(stored: StoredPipeline) -> Document:
    """Return the page of `bakeoff show` for one rollout."""
    return Document(str(stored.record.mix), (*_mix(stored, None, True), *_legend([stored])))


def verdict(record: PipelineRecord) -> str:
    """Say whether a mix stayed right, and how near it came to its limits, or why not."""
    made = record.measurement
    return f"stays right: {rollout_text(made)}" if record.status == "ok" else f"{record.status}: {made.reason}"


def _verdict(entry: StoredPipeline, cited: Cited | None) -> Text:
    record = entry.record
    links = (cited(entry),) if cited is not None else ()
    return Text(verdict(record), str(record.mix), tone_of(record.status), links)


def _mix(entry: StoredPipeline, cited: Cited | None, full: bool) -> tuple[Any, ...]:
    record, made = entry.record, entry.record.measurement
    rollout = made.rollout
    drawn = figure(rollout, record.unit) if rollout is not None and full else None
    checked = nearest(made)
    curves = {curve.output: curve for curve in rollout.curves if curve.run == MIX} if rollout is not None else {}
    blank: list[Cell | str] = [""] * 4
    rows = [
        [*(_checked(name, *checked[name]) if name in checked else [name, *blank]), *_free(record, curves.get(name))]
        for name in dict.fromkeys((*checked, *curves))
    ]
    threshold = rollout.horizon_db if rollout is not None else 0.0
    headings = [replace(one, text=one.text.format(threshold)) for one in _HEADINGS]
    ran = f", and running free for {counted(len(rollout.curves[0].errors), record.unit)}" if rollout is not None else ""
    return blocks(
        _verdict(entry, cited),
        document.table(headings, rows, f"Each unit from the reference's state{ran}"),
        Figures((drawn,)) if drawn is not None else None,
        listed(Text(finding.text, finding.code) for finding in made.findings),
    )


def _legend(entries: Sequence[StoredPipeline]) -> tuple[Text, ...]:
    """Return what to know about the figures: against what they were compared, and whether the weights are trained."""
    first = entries[0].record
    parity = next((one.record.measurement.parity for one in entries if one.record.measurement.parity), None)
    if parity is None:
        return ()
    against = f"Compared with eager in {parity.reference_dtype}, each unit from its state."
    texts = [f"{against} Running free is shown and not judged."]
    trained = {slot.slot for slot in first.mix.slots} <= {slot for slot, name in first.checkpoints.items() if name}
    return tuple(Text(text, tone="faint") for text in [*texts, *([] if trained else [_UNTRAINED])])


def _checked(name: str, unit: int, output: OutputParity) -> list[Cell | str]:
    label = name if name == output.name else f"state ({output.name.removeprefix('state.')})"
    error = "n/a" if output.rel_l2 is None else f"{output.rel_l2:.2e}"
    of_limit = Cell("n/a" if output.rel_l2 is None else f"{output.of_limit:.0%}", tone="" if output.passed else "bad")
    return [label, "opening" if unit < 0 else str(unit), error, f"{output.limit:.2e}", of_limit]


def _free(record: PipelineRecord, curve: Curve | None) -> list[Cell | str]:
    rollout = record.measurement.rollout
    if rollout is None or curve is None:
        return [""] * 5
    off = flicker(rollout, curve.output)
    unit, slope, last = horizon(curve, rollout.horizon_db), growth(curve), curve.decibels[-1]
    return [
        "never" if unit is None else f"{record.unit} {unit}",
        standing(rollout, curve.output),
        "" if last is None else f"{last:.1f}",
        "" if slope is None else f"{slope[0]:.3f} [{slope[1][0]:.3f}, {slope[1][1]:.3f}]",
        "" if off is None else f"{off[0]:.2e}" + (f" ({off[1]:.1f}x)" if off[1] is not None else ""),
    ]


def as_rows(runs: Iterable[StoredPipeline]) -> list[dict[str, Any]]:
    """Return the rollouts for `--json`: verdict, errors beside their limits, horizons and growths."""
    return [
        {
            "record": entry.id,
            "mix": str(entry.record.mix),
            "status": entry.record.status,
            "reason": entry.record.measurement.reason,
            "outputs": {
                name: {"unit": unit, "error": output.rel_l2, "limit": output.limit, "passed": output.passed}
                for name, (unit, output) in nearest(entry.record.measurement).items()
            },
            "free": _free_as_data(entry.record.measurement.rollout),
        }
        for entry in runs
    ]


def _free_as_data(rollout: Rollout | None) -> dict[str, Any]:
    if rollout is None:
        return {}
    mixes = [curve for curve in rollout.curves if curve.run == MIX]
    return {
        curve.output: {
            "horizon": horizon(curve, rollout.horizon_db),
            "horizons_of_eager": [horizon(one, rollout.horizon_db) for one in of_output(rollout, curve.output)[1]],
            "standing": standing(rollout, curve.output),
            "growth": growth(curve),
            "change": flicker(rollout, curve.output),
        }
        for curve in mixes
    }
