"""A folder with as many records as years of sweeps: a few hundred variants, several machines, all samples."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from records import HOST, record

from bakeoff.machine.files import digest
from bakeoff.machine.floors import Ceiling
from bakeoff.record import store
from bakeoff.record.finding import Finding
from bakeoff.record.schema import (
    SCHEMA,
    BuildCost,
    Clock,
    Comparison,
    Measurement,
    Memory,
    OutputParity,
    Overhead,
    Parity,
    ProofRecord,
    Record,
    Round,
    Samples,
    SelftestStamp,
    Status,
)
from bakeoff.variant import BackendUse, Variant

LATENCY, WARMUP, THROUGHPUT = 2000, 2000, 60
"""Number of samples of a record: the most that a clock stores."""

_GPUS = ("NVIDIA H200", "NVIDIA L4", "NVIDIA GeForce RTX 5090")
_MACHINES = (
    replace(HOST, cpu="Intel(R) Xeon(R) Platinum 8480C", cores=56, cpu_flags=("avx2", "avx512f", "amx_bf16")),
    replace(HOST, cpu="AMD EPYC 9654 96-Core Processor", cores=96, cpu_flags=("avx2", "avx512f", "avx512_bf16")),
    *(
        replace(
            HOST, gpus=({"name": name, "uuid": f"GPU-{name[-4:]}", "driver": "570.86.15", "memory_bytes": 80 << 30},)
        )
        for name in _GPUS
    ),
)
_SUBJECTS = (
    ("wm", "200m", "step"),
    ("wm", "1b", "step"),
    ("wm", "1b", "cache"),
    ("image", "128x", "decode"),
    ("audio", "full", "decode"),
    ("matrix-vae", "vae", "decode"),
)
_BACKENDS = (
    "eager", "inductor", "inductor[freezing]", "inductor[mode=max-autotune]", "aoti", "aoti[freezing]", "onnxruntime",
    "openvino", "tensorrt[optimization_level=5]", "int8+aoti[freezing]", "int8+inductor", "fp8+inductor",
)  # fmt: skip
_DTYPES = ("fp32", "bf16")
_FAILURES: tuple[Status, ...] = ("unsupported", "timeout", "oom", "build_failed", "parity_failed", "unstable")
_ROWS = len(_BACKENDS) * len(_DTYPES)
_START = datetime(2026, 1, 1, tzinfo=UTC)


def fill(runs: Path, count: int, seed: int = 0) -> None:
    """Save `count` records in sweeps of 24 rows, and the final comparison of each complete sweep."""
    rows: list[Record] = []
    for made in _records(count, seed):
        store.save(runs, made)
        rows.append(made)
        if len(rows) == _ROWS:
            store.save(runs, _comparison(rows))
            rows = []


def _records(count: int, seed: int) -> Iterator[Record]:
    generator = np.random.default_rng(seed)
    for index in range(count):
        sweep, position = divmod(index, _ROWS)
        subject = _SUBJECTS[sweep % len(_SUBJECTS)]
        host = _MACHINES[sweep // len(_SUBJECTS) % len(_MACHINES)]
        dtype, backend = tuple(product(_DTYPES, _BACKENDS))[position]
        started = _START + timedelta(hours=7 * sweep)
        variant = Variant(*subject, _uses(backend), dtype, "cuda" if host.gpus else "cpu")
        yield record(
            made=_measurement(generator, 4.0 + 3 * (sweep % 7) + position / 5),
            created=_iso(started + timedelta(seconds=90 * position, microseconds=index)),
            sweep=f"{started:%Y%m%dT%H%M%S}-{sweep:06x}",
            variant=variant,
            config_id=f"{hash_of(variant):016x}",
            label="",
            config={
                "sample_size": 4,
                "channels": 128,
                "n_layers": 13,
                "n_heads": 16,
                "d_model": 1024,
                "causal": False,
                "backbone": "uvit",
                "n_frames": 30,
                "tokens_per_frame": 17,
                "control_dim": 512,
            },
            host=host,
            parameters=274_839_872,
            versions=dict.fromkeys(("bakeoff", "torch", "triton", "numpy"), f"{2 + sweep // 100}.{sweep % 13}.0"),
            environment={"MKL_NUM_THREADS": "56", "OMP_NUM_THREADS": "56", "OMP_WAIT_POLICY": "passive"},
            note=f"after the change of driver number {sweep // 40}" if sweep % 5 == 0 else "",
            baseline=backend == "eager",
            minimum_bytes=550 << 20,
            ceilings=_CEILINGS,
            code="c0de" * 16,
            selftest=SelftestStamp(True, False, _iso(started), "c0de" * 16),
        )


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def hash_of(variant: Variant) -> int:
    return int(digest(str(variant)), 16)


def _uses(backend: str) -> tuple[BackendUse, ...]:
    return tuple(
        BackendUse(name, tuple((option.partition("=")[0], option.partition("=")[2] or True) for option in options))
        for name, options in (
            (use.partition("[")[0], [option for option in use.partition("[")[2].rstrip("]").split(",") if option])
            for use in backend.split("+")
        )
    )


_CEILINGS = tuple(
    Ceiling(kind, dtype, 84 << 20, 1.46e10 + position, 1.41e10)  # type: ignore[arg-type]
    for position, (kind, dtype) in enumerate(
        product(("copy", "read", "product", "convolution"), ("fp32", "tf32", "bf16", "fp16"))
    )
)


def _clock(generator: np.random.Generator, median_ms: float, samples: int, warmup: int, calls: int = 1) -> Clock:
    drawn = generator.lognormal(np.log(median_ms * 1e6), 0.04, samples + warmup).astype(np.int64).tolist()
    return Clock(Samples(drawn[:samples]), Samples(drawn[samples:]), calls, "samples")


def _measurement(generator: np.random.Generator, median_ms: float) -> Measurement:
    """One in ten is not ok, and half of those have no numbers."""
    chance = generator.random()
    status: Status = "ok" if chance < 0.9 else _FAILURES[int(generator.integers(len(_FAILURES)))]
    reason = "" if status == "ok" else f"{status} for a reason that takes a sentence of the usual length to tell"
    findings = (Finding("busy-host", f"load average {generator.random() * 9:.1f} before the sweep started"),)
    if status not in ("ok", "parity_failed", "unstable"):
        return Measurement(status, reason, findings, traceback='  File "...", line 1, in build\n' * 30)
    return Measurement(
        status=status,
        reason=reason,
        findings=findings if chance < 0.3 else (),
        build=BuildCost("cold", 60 * generator.random(), 7 * generator.random(), 300 << 20, 200 << 20, 512 << 20),
        proof=ProofRecord(
            graphs=1,
            graph_breaks=0,
            operators_inside={f"aten.operator_{number}.default": number for number in range(25)},
            facts={"kernels_generated": 120, "kernels_cpp": 80, "providers": "CPUExecutionProvider", "shape_env": 0},
            graph_hash="ab" * 8,
        ),
        parity=Parity(
            "wm-200m-step-9cb09677cb6fe70a",
            "fp64",
            4,
            tuple(
                OutputParity(
                    name, 4.5e-6 * generator.random(), 1e-3, True, 1.2e-5, 0.99999, 60 + 50 * generator.random()
                )
                for name in ("video", "audio")
            ),
        ),
        latency=_clock(generator, median_ms, LATENCY, WARMUP),
        throughput=_clock(generator, median_ms * 0.97, THROUGHPUT, 0, 5),
        memory=Memory(
            1 << 30, 200 << 20, int(generator.integers(1 << 30, 1 << 32)), 10 << 20, 1 << 31, 1 << 31, 3 << 30
        ),
        overhead=Overhead(1200, 800),
        settings={
            "threads": 56,
            "interop_threads": 56,
            "float32_matmul_precision": "highest",
            "mkldnn": True,
            "cudnn_allow_tf32": False,
            "cudnn_benchmark": False,
            "memory_format": "contiguous",
        },
        device_state={"other_cpu_share": round(generator.random() / 100, 4), "sm_mhz": 1980, "power_w": 512.5},
        weights="e3c96158b0e75eedf1d7aef3302ffa347baa0c11e4870c83c5654fdcdd619301",
    )


def _comparison(rows: list[Record]) -> Comparison:
    """A comparison of a sweep's two fastest variants: 40 rounds of 25 calls, eight for each pair of processes."""
    ranked = sorted((row for row in rows if row.status == "ok" and row.latency), key=_median)
    a, b = (replace(row, measurement=replace(row.measurement, latency=None, throughput=None)) for row in ranked[:2])
    blocks: list[Any] = [
        [clock.samples_ns[number * 25 : number * 25 + 25] for number in range(40)]
        for clock in (row.measurement.latency for row in ranked[:2])
        if clock is not None
    ]
    rounds = tuple(
        Round((0, 1) if number % 2 == 0 else (1, 0), (Samples(ours), Samples(theirs)), number // 8)
        for number, (ours, theirs) in enumerate(zip(*blocks, strict=True))
    )
    moment = datetime.fromisoformat(rows[-1].created) + timedelta(seconds=60)
    return Comparison(SCHEMA, _iso(moment), rows[0].sweep, "interleaved", 0, (a, b), rounds)


def _median(row: Record) -> float:
    assert row.latency is not None
    return row.latency.median_ms
