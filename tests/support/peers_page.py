"""docs/trials/peers.md from the record of tests/trials/peers.py: every figure on the page comes from there."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

_ROOT = Path(__file__).resolve().parents[2]
RECORD = _ROOT / "tests" / "trials" / "peers.json"
PAGE = _ROOT / "docs" / "trials" / "peers.md"
Said = Mapping[str, Any]

TITLES = {
    "zeros": "A backend that returns zeros",
    "bf16": "bf16 arithmetic presented as fp32",
    "tf32": "TF32 presented as fp32",
    "disabled": "inductor on a module that dynamo may not enter, asked for one whole graph",
    "disabled_in_parts": "the same with graph breaks allowed, which is AITune's default",
    "cuda_provider": "ONNX Runtime asked for its CUDA provider where there is none",
    "tensorrt_provider": "ONNX Runtime asked for its TensorRT provider where there is none",
    "lost_provider": "ONNX Runtime that lists a provider and then runs without it",
    "slow_first": "Correct: as fast as eager, but slow at the first call of each new batch",
    "aborts": "A candidate that calls abort()",
    "inductor": "Correct: inductor",
}
"""In the order of the table."""
_SAME = "Eager against eager"
_LONGEST = 120
"""Characters of a reason in a table."""
_HOW = """\
Written by `tests/trials/peers.py` from what it recorded in tests/trials/peers.json; do not edit. Each candidate is \
one small function on a module (tests/support/lies.py), or an option of a backend that both have. bakeoff sweeps it \
beside eager. NVIDIA AITune gets it by `ait.tune`, as a candidate of its default strategy, `MaxThroughputStrategy`. \
The module is the toy's decoder of pictures, in fp32.

A cell holds the answer, and the seconds from the start until it came: bakeoff's status and reason; AITune's success, \
its speed-up over its own eager baseline, and the backend that it selected. How far the output of the tuned module is \
off, on an input that it has not seen, is our own check: AITune compares no values."""


def table(record: Said) -> str:
    """The table as Markdown, also printed by the trial."""
    rows = [
        [TITLES[name], lab_cell(said["lab"]), aitune_cell(said["aitune"])]
        for name, said in sorted(record["rows"].items(), key=lambda row: list(TITLES).index(row[0]))
    ]
    if record["same"]:  # empty until all lies are told
        rows.append([_SAME, _lab_same(record["same"]["lab"]), _aitune_same(record["same"]["aitune"])])
    escaped = [[_escape(cell) for cell in row] for row in rows]
    return tabulate(escaped, ("candidate", "bakeoff", "AITune"), tablefmt="pipe")


def lab_cell(said: Said) -> str:
    if "needs" in said:
        return f"not run: needs {said['needs']}"
    rows = [_lab_row(row, several=len(said["rows"]) > 1) for row in said["rows"]]
    return f"{'; '.join(rows)}; {said['seconds']:.0f} s"


def _lab_row(row: Said, several: bool) -> str:
    where = f"batch {row['batch']}: " if several else ""
    text = f"{where}**{row['status']}**"
    if row["reason"]:
        text += f": {_short(row['reason'])}"
    if row["final"]:
        text += f", in the final {_verdict(row['final'])}"
    return text


def _verdict(final: Said) -> str:
    return f"{final['word']}, {final['ratio']:.2f}x [{final['low']:.2f}, {final['high']:.2f}]"


def aitune_cell(said: Sequence[Said]) -> str:
    """What AITune said of the lie; of a second run, without it, after that."""
    if not said:
        return "not run: needs a GPU, its ONNX Runtime backend takes no CPU"
    texts = [_aitune_run(one) for one in said]
    return "; without the slow call: ".join(texts)


def _aitune_run(said: Said) -> str:
    if "missing" in said:
        return str(said["missing"])
    if "needs" in said:
        return f"not run: needs {said['needs']}"
    if "died" in said:
        return f"the process ended by **{said['died']}**, without any result; {said['seconds']:.0f} s"
    (run,) = said["runs"]
    if run["success"]:
        text = f"**success**, speed-up {run['speedup']:.2f}x"
        if run["batch"] > 1:
            text += f", best batch {run['batch']}"
    else:
        text = f"**failed**: {_short(run['exception'])}"
    text += f"; selected `{run['selected']}`"
    if run["error"]:
        text += f", whose output is off by {run['error']:.1%}"
    return f"{text}; {said['seconds']:.0f} s"


def _aitune_same(said: Said) -> str:
    if "missing" in said or "died" in said:
        return _aitune_run(said)
    ratios = [run["speedup"] for run in said["runs"]]
    faster = sum(run["faster"] for run in said["runs"])
    return (
        f"**faster in {faster} of {len(ratios)}**, by more than 1 % in {sum(ratio > 1.01 for ratio in ratios)}; "
        f"speed-ups {min(ratios):.2f}x to {max(ratios):.2f}x; {said['seconds']:.0f} s"
    )


def _lab_same(said: Said) -> str:
    finals = said["finals"]
    counts = {word: sum(final["word"] == word for final in finals) for word in ("faster", "slower")}
    ratios = [final["ratio"] for final in finals]
    return (
        f"**faster in {counts['faster']} of {len(finals)}**, slower in {counts['slower']}, no difference shown in the "
        f"others; ratios {min(ratios):.2f}x to {max(ratios):.2f}x; {said['seconds']:.0f} s"
    )


def _short(text: str) -> str:
    line = re.sub(r"\S*/(?=[\w.-]+)", "", text.strip().partition("\n")[0])
    return line if len(line) <= _LONGEST else line[:_LONGEST].rpartition(" ")[0] + " ..."


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|")


def page(record: Said) -> str:
    """The whole of docs/trials/peers.md."""
    here, aitune, versions = record["host"], record["aitune"], record["versions"]
    where = f"{here['cpu']}, {here['cores']} cores, {', '.join(here['gpus']) or 'no GPU'}"
    software = f"Python {versions['python']}, torch {versions['torch']}, onnxruntime {versions['onnxruntime']}"
    parts = [
        "# Faulty candidates in bakeoff and in NVIDIA AITune",
        _HOW,
        f"Recorded {record['made']} on {where}, with threads={record['threads']}; {software}; "
        f"{record['seconds'] / 60:.0f} minutes in all. {_load(record)}",
        _about(aitune),
        "" if record["finished"] else _unfinished(record),
        table(record),
        _better(record),
        "To repeat it, alone on the machine: `python tests/trials/peers.py`.",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _about(aitune: Said) -> str:
    if "missing" in aitune:
        return f"{aitune['missing']}. Its column says so."
    text = f"AITune {aitune['version']}"
    if aitune["stubbed"]:
        text += (
            f" imports {' and '.join(aitune['stubbed'])}, which this host lacks: they were stubbed "
            "(tests/support/aitune_stubs.py), and what needs them was not asked for. The rest is the published package"
        )
    return f"{text}. All ran on a CPU, for which AITune is not made: nothing here says how fast it makes a GPU."


def _load(record: Said) -> str:
    load, cores = record["load"], record["host"]["cores"]
    text = f"Load average {load['start']:.1f} at the start and {load['end']:.1f} at the end."
    if load["start"] > cores / 2:
        text += " Other programs ran at the same time: speeds and seconds on this page mean nothing."
    return text


def _unfinished(record: Said) -> str:
    missing = [title for name, title in TITLES.items() if name not in record["rows"]]
    missing += [] if record["same"] else [_SAME]
    left = f" Not run: {'; '.join(missing)}." if missing else ""
    return f"The trial was ended before it had done all.{left}"


def _better(record: Said) -> str:
    """What AITune does better, where the run shows it."""
    said = record["rows"].get("inductor", {})
    if not said or "missing" in record["aitune"] or "runs" not in said["aitune"][0]:
        return ""
    ours, theirs = said["lab"]["seconds"], said["aitune"][0]["seconds"]
    if theirs >= ours:
        return ""
    return (
        f"AITune is done sooner: for eager and inductor it took {theirs:.0f} s from the start until its answer, and "
        f"bakeoff, with its usual clocks and final, {ours:.0f} s."
    )
