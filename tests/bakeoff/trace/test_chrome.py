"""Trace files: what is read, what is refused with one sentence, and what is written."""

import gzip
import json
from pathlib import Path

import pytest

from bakeoff.models.errors import BakeoffError
from bakeoff.trace import chrome
from bakeoff.trace.chrome import ChromeTrace, TraceEvent, read_trace, write_trace

KINETO = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "H100"}],
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1759000000000000000,
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::conv2d", "pid": 7, "tid": 7, "ts": 1234.567, "dur": 10.001,
         "args": {"External id": 3, "Ev Idx": 0}},
        {"ph": "M", "name": "process_name", "ts": 0, "pid": "Spans", "tid": "PyTorch Profiler", "args": {"name": "p"}},
        {"ph": "f", "id": 3, "pid": 0, "tid": 7, "ts": 1240.5, "cat": "ac2g", "name": "ac2g", "bp": "e"},
        {"name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g", "pid": "Traces", "tid": "Trace", "ts": 1},
    ],
    "traceName": "/tmp/trace.json",
}  # fmt: skip


def refused(path: Path) -> str:
    with pytest.raises(BakeoffError) as found:
        read_trace(path)
    assert found.value.code == "bad-trace"
    text = str(found.value)
    assert "\n" not in text
    assert str(path) in text
    return text


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_of_kineto_is_read(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "trace.json"
    data = json.dumps(KINETO).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    trace = read_trace(path)
    assert (trace.traceEvents[0].start_ns, trace.traceEvents[0].end_ns) == (1_234_567, 1_244_568)
    assert [event.ph for event in trace.traceEvents] == ["X", "M", "f", "i"]
    assert trace.deviceProperties == [{"id": 0, "name": "H100"}]


def test_what_is_written_is_read_again_and_is_json(tmp_path: Path) -> None:
    path = tmp_path / "made.json.gz"
    events = [TraceEvent("X", "<script>", "bakeoff", 1.5, 2.0, "bakeoff", 3, args={"index": 4}), TraceEvent("M", "n")]
    write_trace(path, ChromeTrace(events))
    first = path.read_bytes()
    assert read_trace(path).traceEvents == events
    assert json.loads(gzip.decompress(first))["traceEvents"][0]["args"] == {"index": 4}
    write_trace(path, ChromeTrace(events))
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"[]",
        b'{"traceEvents": 3}',
        b'{"traceEvents": [{"ph": "X", "ts": NaN}]}',
        b'{"traceEvents": [{"ph": "X", "ts": "soon"}]}',
        b'{"traceEvents": [{"name": "without a kind"}]}',
        b'{"traceEvents": [{"ph": "X", "args": ' + b"[" * 200_000 + b"]" * 200_000 + b"}]}",
        b"\xff\xfe\x00",
        gzip.compress(b'{"traceEvents": []}')[:-9],
        b"\x1f\x8b broken",
    ],
    ids=["empty", "text", "list", "number", "nan", "string", "no-kind", "deep", "bytes", "torn", "no-gzip"],
)
def test_what_is_no_trace_is_refused_in_one_sentence(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    refused(path)


def test_a_file_that_unpacks_to_more_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file may claim gigabytes; it is left before they are in memory."""
    monkeypatch.setattr(chrome, "MOST_BYTES", 1 << 20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * (64 << 20)))
    assert "more than 1 MiB" in refused(path)
