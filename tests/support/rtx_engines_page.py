"""docs/trials/rtx-engines.md from tests/trials/rtx_engines.json."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
RECORD, PAGE = ROOT / "tests" / "trials" / "rtx_engines.json", ROOT / "docs" / "trials" / "rtx-engines.md"
_HEAD = """# TensorRT engines of the five components, built without a GPU

Written by `tests/trials/rtx_engines.py` from what it recorded in tests/trials/rtx_engines.json; do not edit. Each row
is built as `bakeoff sweep COMPONENT --backends tensorrt-rtx --build-for sm89,sm120` builds it, alone on a machine
without a GPU. **No card has run any of these engines, and nothing here is the time of a call.** `in engines` counts
operators of the ONNX graph; `TensorRT` are the seconds of its builder, `build` those of everything, the export
included; `peak` is the memory of the builder's process. `fp8` is `modelopt[least=4096]+tensorrt-rtx` in bf16: modelopt
quantises layers with calibrated scales, as pairs of QuantizeLinear and DequantizeLinear. Each engine is for one
architecture: sm89 is RTX 40, sm120 RTX 50.
"""
_BESIDE = """
## Beside the converters of torch_tensorrt

A dry run of torch_tensorrt 2.13's converters, without TensorRT, had taken every operator of the components' graphs
into one engine in bf16, of five of them also in fp16. It counts an operator as taken if a converter for it is
registered and accepts the node; here the operator was in an engine that was built. """


def page(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of these rows."""
    hosts = sorted({f"{one['host']}, {one['versions']}" for one in found})
    lines = [_HEAD, f"Recorded on {'; '.join(hosts)}.\n"]
    for title, reduced in (("Full presets", False), ("Reduced presets", True)):
        rows = [_cells(one) for one in _sorted(found) if one["reduced"] == reduced]
        if rows:
            headings = (
                "program",
                "dtype",
                "target",
                "in engines",
                "outside",
                "engines",
                "MiB",
                "TensorRT s",
                "build s",
            )
            lines += [f"## {title}\n", tabulate(rows, (*headings, "peak MiB"), "github", disable_numparse=True), ""]
    reasons: dict[str, list[str]] = {}
    for one in _sorted(found):
        if one["status"] != "built":
            reasons.setdefault(one["reason"], []).append(f"`{one['program']}` {one['dtype']} {one['target']}")
    lines += [f"{', '.join(names)}: {reason}.\n" for reason, names in reasons.items()]
    return "\n".join(lines) + _BESIDE + _differences(found) + "\n"


def _sorted(found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(
        found, key=lambda one: (one["order"], one["dtype"] != "fp16", one["dtype"], len(one["target"]), one["target"])
    )


def _cells(one: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"`{one['program']}`", one["dtype"], one["target"])
    if one["status"] != "built":
        yield from (one["status"], *[""] * 6)
        return
    inside, outside = sum(one["inside"].values()), sum(one["outside"].values())
    yield f"{inside} of {inside + outside}" if outside else f"all {inside}"
    yield ", ".join(f"{count} {name}" for name, count in one["outside"].items()) or "none"
    yield from (str(one["engines"]), f"{one['engine_bytes'] / 2**20:.0f}", f"{one['engine_s']:.1f}")
    yield from (f"{one['build_s']:.1f}", f"{one['engine_peak_bytes'] >> 20}")


def _differences(found: Sequence[Mapping[str, Any]]) -> str:
    compared = [one for one in _sorted(found) if one["dtype"] != "fp8"]
    apart = [one for one in compared if one["status"] != "built" or one["outside"] or one["engines"] > 1]
    if not apart:
        return "They agree: all operators of each graph are in one engine."
    names = ", ".join(f"`{one['program']}` {one['dtype']} {one['target']}" for one in apart)
    return f"They differ in {names}: see the tables."
