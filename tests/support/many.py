"""A folder with as many records as years of sweeps: a few hundred variants, several machines, all samples."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import numpy as np
from records import HOST, measurement, record

from bakeoff.machine.floors import Ceiling
from bakeoff.record import store
from bakeoff.record.finding import Finding
from bakeoff.record.schema import SCHEMA, Clock, Comparison, Record, Round, Samples, SelftestStamp, Status

LATENCY, WARMUP, THROUGHPUT = 2000, 2000, 60
"""Number of samples of a record: the most that a clock stores."""

_MACHINES = tuple(
    replace(HOST, cpu=cpu, cores=cores) for cpu, cores in (("Intel Xeon 8480C", 56), ("AMD EPYC 9654", 96), ("M4", 10))
)
_SUBJECTS = tuple(product(("wm", "image", "audio"), ("200m", "1b"), ("step",)))
_BACKENDS = (
    "eager", "inductor", "inductor[freezing]", "inductor[graph]", "aoti", "aoti[freezing]", "onnxruntime", "openvino",
    "tensorrt", "tensorrt-aot", "torch.export", "cudagraph",
)  # fmt: skip
_ROWS = tuple(product(("fp32", "bf16"), _BACKENDS))
"""Of a sweep."""
_FAILURES: tuple[Status, ...] = ("unsupported", "timeout", "oom", "build_failed", "parity_failed", "unstable")
_CEILINGS = tuple(Ceiling(kind, "fp32", 84 << 20, 1.46e10, 1.41e10) for kind in ("copy", "product"))  # type: ignore[arg-type]


def fill(runs: Path, count: int, seed: int = 0) -> None:
    """Save `count` records in sweeps of 24 rows, and the final comparison of each complete sweep."""
    rows: list[Record] = []
    for made in _records(count, seed):
        store.save(runs, made)
        rows.append(made)
        if len(rows) == len(_ROWS):
            store.save(runs, _comparison(rows))
            rows = []


def _records(count: int, seed: int) -> Iterator[Record]:
    """One in ten is not ok, and most of those have no numbers."""
    generator = np.random.default_rng(seed)
    for index in range(count):
        sweep, position = divmod(index, len(_ROWS))
        dtype, backend = _ROWS[position]
        started = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=7 * sweep)
        chance, host = generator.random(), _MACHINES[sweep // len(_SUBJECTS) % len(_MACHINES)]
        status: Status = "ok" if chance < 0.9 else _FAILURES[int(generator.integers(len(_FAILURES)))]
        reason = "" if status == "ok" else f"{status} for a reason that takes a sentence of the usual length to tell"
        made = measurement(status=status, reason=reason, findings=(Finding("busy-host", f"load {chance * 9:.1f}"),))
        if status in ("ok", "parity_failed", "unstable"):
            median_ms = 4.0 + 3 * (sweep % 7) + position / 5
            latency = _clock(generator, median_ms, LATENCY, WARMUP)
            rates = _clock(generator, median_ms * 0.97, THROUGHPUT, 0, 5)
            timed = measurement([1.0], status, reason, findings=made.findings)
            made = replace(timed, latency=latency, throughput=rates)
        base = record(backend, dtype=dtype, made=made, host=host)
        component, preset, workload = _SUBJECTS[sweep % len(_SUBJECTS)]
        yield replace(
            base,
            variant=replace(base.variant, component=component, preset=preset, workload=workload),
            config_id=f"{component}-{preset}-{backend}-{dtype}",
            created=_iso(started + timedelta(seconds=90 * position, microseconds=index)),
            sweep=f"{started:%Y%m%dT%H%M%S}-{sweep:06x}",
            versions={"bakeoff": "0.1.0", "torch": f"{2 + sweep // 100}.{sweep % 13}.0"},
            note=f"after the change of driver number {sweep // 40}" if sweep % 5 == 0 else "",
            minimum_bytes=550 << 20,
            ceilings=_CEILINGS,
            selftest=SelftestStamp(True, False, _iso(started), "c0de" * 16),
        )


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _clock(generator: np.random.Generator, median_ms: float, samples: int, warmup: int, calls: int = 1) -> Clock:
    drawn = generator.lognormal(np.log(median_ms * 1e6), 0.04, samples + warmup).astype(np.int64).tolist()
    return Clock(Samples(drawn[:samples]), Samples(drawn[samples:]), calls, "samples")


def _comparison(rows: list[Record]) -> Comparison:
    """A comparison of a sweep's two fastest variants: 40 rounds of 25 calls, eight for each pair of processes."""
    ranked = sorted(
        (row.latency.median_ms, place) for place, row in enumerate(rows) if row.status == "ok" and row.latency
    )
    best = [rows[place] for _, place in ranked[:2]]
    sides = tuple(replace(row, measurement=replace(row.measurement, latency=None, throughput=None)) for row in best)
    samples = [row.measurement.latency.samples_ns for row in best if row.measurement.latency is not None]
    rounds = tuple(
        Round((0, 1), tuple(Samples(ns[number * 25 : number * 25 + 25]) for ns in samples), number // 8)
        for number in range(40)
    )
    moment = datetime.fromisoformat(rows[-1].created) + timedelta(seconds=60)
    return Comparison(SCHEMA, _iso(moment), rows[0].sweep, "interleaved", 0, sides, rounds)
