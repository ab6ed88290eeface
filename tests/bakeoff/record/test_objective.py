"""Objectives as they are typed, what is refused, and what a record keeps of one."""

import msgspec
import pytest
from records import record

from bakeoff.models.errors import BakeoffError
from bakeoff.record.codec import decode, encode
from bakeoff.record.objective import Limit, parse_objective
from bakeoff.record.schema import Record


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("latency", "latency"),
        ("throughput", "throughput"),
        ("THROUGHPUT", "throughput"),
        ("p99<=33ms", "latency,p99<=33ms"),
        ("p99<33ms", "latency,p99<33ms"),
        ("memory<=8GiB , p95 < 1.50 s,throughput", "throughput,p95<1.5s,memory<=8GiB"),
        ("P99<=900US,memory<=512mib", "latency,p99<=900us,memory<=512MiB"),
    ],
)
def test_is_read_and_printed(text: str, said: str) -> None:
    found = parse_objective(text)
    assert str(found) == said
    assert parse_objective(said) == found


def test_limits_are_in_milliseconds_and_bytes() -> None:
    found = parse_objective("p95<=500us,p99<2s,memory<=1.5GiB")
    assert [limit.bound for limit in found.limits] == [0.5, 2000.0, 1.5 * (1 << 30)]
    p95, p99, memory = found.limits
    assert (p95.allows(0.5), p99.allows(2000.0), memory.allows(1 << 30)) == (True, False, True)


NEITHER = (
    "", ",", "latency,", "fast", "p99<=33", "p99=33ms", "p99>=33ms", "p99<=-3ms", "p99<=1e3ms", "p99<=nanms",
    "p99<=infms", "p99<=" + "9" * 400 + "ms", "p99<=٣٣ms", "p99<=33ms\nmemory<=8GiB", "p99<=33ms;rm -rf /",
    "\x1b[31mp99<=33ms", "<script>",
)  # fmt: skip
"""What is neither a goal nor a limit."""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "neither") for text in NEITHER),
        ("latency,throughput", "one goal"),
        ("latency,latency", "one goal"),
        ("p99<=33ms,p99<40ms", "p99 has two limits"),
        ("p90<=33ms", "no limit of 'p90'"),
        ("p99<=33min", "'min' is not a unit"),
        ("p99<=8GiB", "p99 is not in GiB; give it in us or ms or s"),
        ("memory<=8ms", "memory is not in ms; give it in MiB or GiB"),
        ("memory<=8GB", "'gb' is not a unit"),
        ("p99<=0ms", "above 0"),
        ("p99<=0.000ms", "above 0"),
        ("p99<=9999999999ms", "at most 1,000,000,000"),
    ],
)
def test_what_is_not_one_is_refused_in_one_sentence_with_examples(text: str, said: str) -> None:
    with pytest.raises(BakeoffError) as refused:
        parse_objective(text)
    message = str(refused.value)
    assert said in message
    assert "p99<=33ms or memory<=8GiB" in message
    assert refused.value.code == "bad-option"
    assert len(message) < 500


def stored(value: object) -> Record:
    """A record read from a file whose objective is `value`."""
    raw = msgspec.json.decode(encode(record("eager", [1.0])))
    raw["objective"] = value
    found = decode(msgspec.json.encode(raw), "x.json")
    assert isinstance(found, Record)
    return found


@pytest.mark.parametrize(
    "value",
    [
        "latency",
        {"goal": "beauty", "limits": []},
        {"goal": "latency", "limits": [{"figure": "p99", "number": -1, "unit": "ms"}]},
        {"goal": "latency", "limits": [{"figure": "p99", "number": 1, "unit": "GiB"}]},
        {"goal": "latency", "limits": [{"figure": "p42", "number": 1, "unit": "ms"}]},
        {"goal": "latency", "limits": [{"figure": "p99", "number": "1", "unit": "ms"}]},
    ],
)
def test_a_record_with_an_impossible_one_cannot_be_read(value: object) -> None:
    with pytest.raises(BakeoffError):
        stored(value)
    limits = [{"figure": "p99", "number": 1, "unit": "ms"}]
    assert stored({"goal": "latency", "limits": limits}).objective.limits == (Limit("p99", 1.0, "ms"),)
