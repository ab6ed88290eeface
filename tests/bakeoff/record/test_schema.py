"""Records are read back as they were written, equal records give equal bytes, and invalid files are refused by name."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from records import GPU_HOST, HOST, measurement, record

import bakeoff
from bakeoff.machine.floors import Ceiling
from bakeoff.machine.identity import Machine
from bakeoff.models.errors import BakeoffError
from bakeoff.record.codec import Entry, decode, encode, encode_json, read_as
from bakeoff.record.finding import Finding, FindingCode
from bakeoff.record.schema import (
    SCHEMA,
    CeilingsRecord,
    Comparison,
    OutputParity,
    Parity,
    Record,
    Round,
    Samples,
    Status,
    SummaryRecord,
    Supersede,
)
from bakeoff.record.store import record_files

FULL = record(
    "inductor[freezing]",
    [5.0, 6.0, 7.0],
    "parity_failed",
    "y differs",
    findings=(Finding("busy-host", "load average 3.0"),),
    note='quotes " and \\ and | and \u00e9 and \U0001f680',
    host=GPU_HOST,
    calls_per_frame=None,
    config={"width": 32, "sizes": [1, 2], "nested": {"a": None}, "ratio": 0.1},
)
SUPERSEDE = Supersede(SCHEMA, "2026-01-02T03:04:05.000000Z", "some-id", "measured on a busy host")
_ROUND = Round((0, 1), (Samples([3, 1]), Samples([2, 2])), pair=4)
COMPARISON = Comparison(SCHEMA, SUPERSEDE.created, "sweep", "interleaved", 7, (FULL, FULL), (_ROUND,))
_MACHINE = Machine("0123456789ab", "ba9876543210", "Test CPU, 4 cores")
_CEILING = Ceiling("product", "int8", 2 << 30, 4.5e11, 4.25e11)
CEILINGS = CeilingsRecord(SCHEMA, SUPERSEDE.created, _MACHINE, 2, (_CEILING,), 0.01, HOST, {"torch": "2.13.0"})
FINDING_CODES = set(get_args(FindingCode))
HISTORICAL_CODES = {
    "cores-moved", "rebuild", "bf16-emulated", "cpu-bf16-conv2d", "cudnn-conv3d", "size-padded", "size-recompiled",
    "size-refused", "size-wrong", "window-not-full",
}  # fmt: skip
"""Codes in stored records that this version does not emit."""
RUNS = Path(__file__).resolve().parents[3] / "runs" / "published"
STORED = list(record_files(RUNS))


@pytest.mark.parametrize(
    "entry",
    [
        FULL,
        record(samples_ms=[1.0]),
        *(record(status=status, reason="why") for status in get_args(Status)),
        SUPERSEDE,
        COMPARISON,
        CEILINGS,
    ],
    ids=lambda entry: entry.status if isinstance(entry, Record) else type(entry).__name__.lower(),
)
def test_round_trip(entry: Entry) -> None:
    data = encode(entry)
    assert decode(data, "x") == entry
    assert encode(decode(data, "x")) == data


def test_the_same_record_gives_the_same_bytes() -> None:
    again = record(
        "inductor[freezing]",
        [5.0, 6.0, 7.0],
        "parity_failed",
        "y differs",
        findings=(Finding("busy-host", "load average 3.0"),),
        note=FULL.note,
        host=replace(HOST, gpus=GPU_HOST.gpus),
        calls_per_frame=None,
        config=dict(FULL.config),
    )
    assert encode(again) == encode(FULL)
    assert encode(replace(FULL, note="other")) != encode(FULL)


def test_bytes_are_one_line_of_json_with_every_field() -> None:
    data = encode(FULL)
    assert data.endswith(b"}\n")
    assert data.count(b"\n") == 1
    plain = json.loads(data)
    assert list(plain) == [field.name for field in fields(Record)]
    assert plain["schema"] == SCHEMA
    assert plain["variant"] == {
        "component": "toy",
        "preset": "tiny",
        "workload": "world",
        "backends": [{"name": "inductor", "options": [["freezing", True]]}],
        "dtype": "fp32",
        "device": "cpu",
    }
    assert plain["measurement"]["latency"]["samples_ns"] == [5_000_000, 6_000_000, 7_000_000]


_DROPPED = {
    "allocated_peak_bytes", "alone_ns", "between_from", "between_ms", "build_s", "front", "high_ms", "idle",
    "joules", "low_ms", "p99_ms", "part_median_ns", "parts_bytes", "round", "state_bytes", "tied", "weights_bytes",
    "widened",
}  # fmt: skip
"""Fields of stored pipelines that nothing reads any more."""


def test_every_stored_record_is_read_without_loss() -> None:
    """Fields that an older version did not write are added with their defaults; nothing else stored changes or is lost
    than what is dropped by name."""
    assert STORED
    for path in STORED:
        data = path.read_bytes()
        entry = decode(data, path.name)
        assert decode(encode(entry), path.name) == entry
        assert _contains(json.loads(encode(entry)), json.loads(data)), path.name


def test_finding_codes_of_stored_records_are_known() -> None:
    """A code that this version no longer emits, but that stored records carry, is moved to HISTORICAL_CODES."""
    assert not HISTORICAL_CODES & FINDING_CODES
    for path in STORED:
        entry = decode(path.read_bytes(), path.name)
        for findings in _findings(entry):
            assert {finding.code for finding in findings} <= FINDING_CODES | HISTORICAL_CODES, path.name


def _findings(entry: Entry) -> Iterator[tuple[Finding, ...]]:
    if isinstance(entry, SummaryRecord):
        for each in entry.entries.values():
            yield from _findings(each)
    elif isinstance(entry, Record):
        yield entry.measurement.findings
    elif isinstance(entry, Comparison):
        yield from (entry.findings, entry.a.measurement.findings, entry.b.measurement.findings)


def test_unknown_finding_codes_are_read() -> None:
    kept = replace(FULL, measurement=replace(FULL.measurement, findings=(Finding("of-a-later-version", "text"),)))
    assert decode(encode(kept), "x") == kept


def test_findings_are_made_with_a_checked_code() -> None:
    """`Finding(...)` takes any code, so that records can be read; code that emits one calls a function that checks"""
    root = Path(bakeoff.__path__[0])
    calls = {file.name for file in root.rglob("*.py") if re.search(r"\bFinding\(", file.read_text(encoding="utf-8"))}
    assert calls == {"finding.py"}


def _contains(whole: Any, part: Any) -> bool:
    """Whether `whole` has every field of `part` with the same value, in nested objects too."""
    if isinstance(part, dict):
        kept = part.keys() - (_DROPPED - whole.keys())
        return isinstance(whole, dict) and all(key in whole and _contains(whole[key], part[key]) for key in kept)
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(_contains, whole, part))
    return bool(whole == part)


def test_no_figure_is_stored() -> None:
    """Means and intervals are computed from the samples; a stored copy could differ from them."""
    text = encode(FULL).decode()
    assert not [word for word in ("mean", "median", "std_ms", "p90", "speedup", "fps") if word in text]


@pytest.mark.parametrize("cut", [0, 1, 100, -2, -40])
def test_an_incomplete_file_is_named(cut: int) -> None:
    with pytest.raises(BakeoffError, match=r"torn\.json") as error:
        decode(encode(FULL)[:cut], "torn.json")
    assert error.value.code == "bad-record"


def _with(path: str, value: Any) -> bytes:
    plain = json.loads(encode(FULL))
    *parents, last = path.split(".")
    target = plain
    for name in parents:
        target = target[name]
    target[last] = value
    return json.dumps(plain).encode()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("variant", "toy:tiny.world/eager/fp32@cpu"),
        ("measurement.status", "fine"),
        ("measurement.latency.samples_ns", ["fast"]),
        ("measurement.latency.samples_ns", [1.5]),
        ("measurement.latency.samples_ns", [5_000_000, 0]),
        ("measurement.throughput.samples_ns", [-1]),
        ("threads", 0),
        ("flops", -1),
        ("batch", "one"),
        ("host", None),
        ("policy.min_s", "long"),
    ],
)
def test_wrong_types_are_refused(path: str, value: Any) -> None:
    with pytest.raises(BakeoffError) as error:
        decode(_with(path, value), "x")
    assert error.value.code == "bad-record"


@pytest.mark.parametrize("schema", [0, 1, SCHEMA + 1, "1", None, 1.5])
def test_another_schema_is_named(schema: Any) -> None:
    with pytest.raises(BakeoffError, match=f"schema {schema}") as error:
        decode(_with("schema", schema), "x")
    assert error.value.code == "bad-record"


@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"7", b"[]", b'"schema"', b"\xff\xfe", b"{" * 9, b"[" * 100_000, b'{"schema":1,"a":' * 50_000],
)
def test_other_data_is_refused(data: bytes) -> None:
    with pytest.raises(BakeoffError) as error:
        decode(data, "x")
    assert error.value.code == "bad-record"


def test_an_object_without_schema_is_refused() -> None:
    with pytest.raises(BakeoffError, match="schema") as error:
        decode(b'{"name": "package"}', "x")
    assert error.value.code == "bad-record"


@pytest.mark.parametrize("entry", [FULL, SUPERSEDE, COMPARISON, CEILINGS], ids=lambda entry: entry.kind)
def test_kinds_are_told_by_their_tag(entry: Entry) -> None:
    plain = json.loads(encode(entry))
    assert plain["kind"] == entry.kind
    assert type(decode(json.dumps(plain).encode(), "x")) is type(entry)
    del plain["kind"]
    with pytest.raises(BakeoffError) as error:
        decode(json.dumps(plain).encode(), "x")
    assert error.value.code == "bad-record"


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(BakeoffError, match="unheard") as error:
        decode(json.dumps({**json.loads(encode(FULL)), "kind": "unheard"}).encode(), "x")
    assert error.value.code == "bad-record"


def test_numbers_json_cannot_hold_are_not_written() -> None:
    """The worker turns an infinite error into None; msgspec would write null for it and reading must accept that."""
    odd = replace(FULL, load_before=float("inf"))
    with pytest.raises(BakeoffError) as error:
        decode(encode(odd), "x")
    assert error.value.code == "bad-record"
    worst = OutputParity("y", None, 1e-4, False, None, None, None, None, "is not finite")
    kept = replace(FULL, measurement=replace(FULL.measurement, parity=Parity("j", "fp64", 4, (worst,))))
    assert decode(encode(kept), "x") == kept


@pytest.mark.parametrize(("gpus", "device", "name"), [(0, "cpu", "Test CPU, 4 cores"), (1, "cuda", "Test GPU")])
def test_name_of_the_machine(gpus: int, device: str, name: str) -> None:
    assert (GPU_HOST if gpus else HOST).name(device) == name
    assert GPU_HOST.name("cpu") == "Test CPU, 4 cores"


def test_parity_is_that_of_the_worst_output() -> None:
    good, bad = OutputParity("a", 1e-6, 1e-4, True, sqnr_db=60.0), OutputParity("b", 1.0, 1e-4, False, sqnr_db=3.0)
    assert Parity("j", "fp64", 4, (good,)).passed
    assert not Parity("j", "fp64", 4, (good, bad)).passed
    assert Parity("j", "fp64", 4, (good, bad)).sqnr_db == 3.0


def test_a_worker_s_report_is_read_back_unchanged() -> None:
    made = measurement([1.0, 2.0], findings=(Finding("a", "b"),), traceback="Traceback\n  x")
    assert read_as(msgspec.json.decode(encode_json(made)), type(made)) == made


def test_records_of_one_weights_file_have_one_key_whatever_its_name() -> None:
    plain = record()
    labels = ("a.pt, sha256 0123456789ab", "b.pt, sha256 0123456789ab", "a.pt, sha256 ba9876543210", "a.pt, 12 bytes")
    keys = [replace(plain, checkpoint=label).weights_key for label in labels]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    assert plain.weights_key == ""
