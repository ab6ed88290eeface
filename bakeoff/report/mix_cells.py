"""The cells of a mix's row in every table of pipelines, as text and as JSON."""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from bakeoff.record.frames import FEWEST_FOR_P99, BeforeAfter, FrameFigures, figures, phases
from bakeoff.record.pairs import FEWEST_FOR_INTERVAL
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.prediction import Prediction, memory_sum, prediction, sweep_command, weights_held
from bakeoff.report.format import MIB, milliseconds, shorten
from bakeoff.report.pipelines import MixRow

_REASON_LETTERS = 48
_FRAMES = re.compile(r"(video )?frame")


@dataclass(frozen=True, slots=True)
class MixColumn:
    """A column: its heading with the unit, what it means, and its text; "" for an empty cell."""

    heading: str
    explanation: str
    text: Callable[[MixRow, FrameFigures | None, Prediction | None], str]
    numeric: bool = True
    blocks_only: bool = False
    """Shown only of a pipeline whose unit is a block of frames."""


def cells(rows: Sequence[MixRow]) -> tuple[tuple[MixColumn, ...], list[list[str]]]:
    """The columns that these rows fill, and the texts of each row."""
    kept = [column for column in _COLUMNS if not column.blocks_only or any(r.record.unit == "block" for r in rows)]
    shown = [replace(column, heading=in_words_of(rows[0].record, column.heading)) for column in kept] if rows else kept
    texts = []
    for row in rows:
        found, predicted = figures(row.record), prediction(row.record)
        texts.append([column.text(row, found, predicted) for column in shown])
    filled = [place for place, column in enumerate(shown) if not column.numeric or any(line[place] for line in texts)]
    return tuple(shown[place] for place in filled), [[line[place] for place in filled] for line in texts]


def in_words_of(record: PipelineRecord, text: str) -> str:
    """A heading or figure of frames; of a program that is called by itself, of calls."""
    return _FRAMES.sub("call", text) if record.unit == "call" else text


def _figure(read: Callable[[FrameFigures], str]) -> Callable[[MixRow, FrameFigures | None, Prediction | None], str]:
    """The text of a figure, empty where a mix has none."""
    return lambda _, found, __: read(found) if found is not None else ""


def cost(found: FrameFigures) -> str:
    """Median milliseconds a frame with its interval, or how many units an interval needs."""
    median = milliseconds(found.ms_a_frame)
    if found.interval is None:
        return f"{median} [n/a, needs {FEWEST_FOR_INTERVAL} units]"
    low, high = (milliseconds(end, found.ms_a_frame) for end in found.interval)
    return f"{median} [{low}, {high}]"


def tail(found: FrameFigures) -> str:
    if found.p99_ms is None:
        return f"n/a, needs {FEWEST_FOR_P99} units"
    return milliseconds(found.p99_ms, found.ms_a_frame)


def rate(per_s: float) -> str:
    """Frames or blocks a second, with three significant digits at least."""
    return f"{per_s:.2f}" if per_s >= 1 else f"{per_s:.3g}"


def gain(found: BeforeAfter, against: str) -> str:
    """The ratio against the baseline, with its interval, and that a mix lost where it did."""
    ratio = f"{found.ratio:.2f}x"
    if found.interval is None:
        return f"{ratio} (n/a, needs {FEWEST_FOR_INTERVAL} units)"
    ends = f"{ratio} [{found.interval[0]:.2f}, {found.interval[1]:.2f}]"
    return {"slower": f"{ends}, slower than {against}", "no difference shown": f"{ends} ~"}.get(found.word, ends)


def _status(row: MixRow, _found: FrameFigures | None, _predicted: Prediction | None) -> str:
    reason = row.record.measurement.reason
    return shorten(f"{row.record.status}: {reason}", _REASON_LETTERS) if reason else row.record.status


def _peak(row: MixRow, _found: FrameFigures | None, _predicted: Prediction | None) -> str:
    memory = memory_sum(row.record)
    return f"{memory.peak_bytes / MIB:.0f}" if memory is not None and memory.peak_bytes is not None else ""


def _predicted(_row: MixRow, found: FrameFigures | None, predicted: Prediction | None) -> str:
    if found is None or predicted is None:
        return ""
    return rate(predicted.frames_per_s) if predicted.frames_per_s is not None else "n/a"


def _error(_row: MixRow, _found: FrameFigures | None, predicted: Prediction | None) -> str:
    return f"{predicted.error:+.1%}" if predicted is not None and predicted.error is not None else ""


_COLUMNS: Final = (
    MixColumn("mix", "", lambda row, *_: row.name, numeric=False),
    MixColumn("status", "", _status, numeric=False),
    MixColumn("ms a frame [95 %]", "median over steady units of the wall time a frame, and its 95 % interval",
              _figure(cost)),
    MixColumn("p99 ms", "99 % of the steady units took less a frame (nearest rank)", _figure(tail)),
    MixColumn("video frames/s", "frames of all steady units over their wall time", _figure(
        lambda found: rate(found.frames_per_s))),
    MixColumn("blocks/s", "blocks over the same wall time", _figure(lambda found: rate(found.units_per_s)),
              blocks_only=True),
    MixColumn("of real time", "frames a second over the rate that the model was made for", _figure(
        lambda found: "" if found.real_time is None else f"{found.real_time:.2f}x")),
    MixColumn("first frame ms", "opening of the session and its first unit", _figure(
        lambda found: "" if found.first_frame_ms is None else milliseconds(found.first_frame_ms))),
    MixColumn("speed-up", "time of eager (or of the first mix, in a run without it) over that of this mix, median of "
              "interleaved pairs of units, and its 95 % interval; ~ no difference shown",
              lambda row, *_: gain(row.gain, row.against) if row.gain is not None else ""),
    MixColumn("peak MiB", "device memory on CUDA, else resident size of the worker, with all components in place",
              _peak),
    MixColumn("predicted frames/s", "from the records of the components: calls a unit times the median of each",
              _predicted),
    MixColumn("error", "predicted over measured frames/s, less 1", _error),
)  # fmt: skip


def legend() -> list[str]:
    """What the columns mean that do not explain themselves."""
    return [f"{column.heading}: {column.explanation}" for column in _COLUMNS if column.explanation]


def data(row: MixRow) -> dict[str, Any]:
    """A row under stable keys with figures as numbers, for `--json`."""
    record = row.record
    found, predicted, memory = figures(record), prediction(record), memory_sum(record)
    return {
        "record": row.entry.id,
        "name": row.name,
        "mix": str(record.mix),
        "role": record.role,
        "run": record.run,
        "how": record.how,
        "machine": record.machine,
        "unit": record.unit,
        "sizes": record.sizes,
        "status": record.status,
        "reason": record.measurement.reason,
        "findings": record.measurement.findings,
        "figures": asdict(found) if found is not None else None,
        "phases": [asdict(line) for line in phases(record)],
        "against": row.against if row.gain is not None else None,
        "gain": asdict(row.gain) if row.gain is not None else None,
        "prediction": None if predicted is None else _prediction(predicted, record),
        "memory": asdict(memory) if memory is not None else None,
        "weights": [asdict(held) for held in weights_held(record)],
    }


def _prediction(predicted: Prediction, record: PipelineRecord) -> dict[str, Any]:
    return {
        "unit_ms": predicted.unit_ms,
        "predicted_ms": predicted.predicted_ms,
        "frames_per_s": predicted.frames_per_s,
        "error": predicted.error,
        "explained_by": predicted.largest.slot if predicted.largest is not None else None,
        "slots": [asdict(slot) for slot in predicted.slots],
        "missing": [
            {"slot": program.slot, "program": program.variant.workload, "command": sweep_command(program, record)}
            for program in predicted.missing
        ],
    }
