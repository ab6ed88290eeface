"""One record in full: `bakeoff show`, with its proof and its trace."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from few_records import TEN, stored, texts
from pages import tables_text
from records import measurement, record

from bakeoff.record.regimes import Regime
from bakeoff.record.schema import KernelTime, ProofRecord, Record, TraceRecord
from bakeoff.record.store import Stored, load_all
from bakeoff.report.groups import name_of
from bakeoff.report.pages import record as one
from bakeoff.report.render import terminal


def shown(entry: Stored) -> str:
    """The page as a terminal without a width prints it: a line for each text."""
    return terminal.render(one.document(entry))


class TestOneRecord:
    def test_shows_what_the_record_holds(self, runs: Path) -> None:
        entry = load_all(runs).current[2]
        text = shown(entry)
        for part in (
            "toy:tiny.world/inductor[freezing]/fp32@cpu",
            entry.id,
            "status: parity_failed: y differs by 5.00e-01",
            "a call: 2.950 ms [2.500, 3.400]",
            "\nbuild: 12.2 s\nwarm: 3.5 s\npeak: 300 MiB\nchildren peak: 200 MiB\n",
            "\nreference: reference-1\nreference dtype: fp64\nsets: 4\n",
            "\nweights: 50 MiB\nio: 1.0 MiB\nhost peak: 500 MiB\nhost call: 10 MiB\n",
            "captured calls 12",
            "versions: bakeoff 0.1.0, torch 2.13.0",
            "not on this machine (was logs/20260102T030400-abcdef/toy.log in the cache folder)",
        ):
            assert part in text
        rows = [" ".join(line.split()) for line in text.splitlines()]
        for row in (
            "median 2.950 ms", "low 2.500 ms", "high 3.400 ms", "mean 2.950 ms", "min 2.000 ms", "count 20",
            "stopped narrow", "y 0.5 2e-06 no",
        ):  # fmt: skip
            assert any(line.startswith(row) for line in rows), row

    def test_shows_the_range_and_each_regime(self) -> None:
        made = measurement(TEN)
        assert made.parity is not None
        regimes = (Regime("x4", 1e-7, 1e-7, 1e-4), Regime("x16", 0.025, 0.01, 0.02))
        made = replace(made, parity=replace(made.parity, regimes=regimes, repeats=True))
        rows = [" ".join(line.split()) for line in shown(stored(record(made=made))[0]).splitlines()]
        words = "right up to 4 times the given inputs; from 16 times on 8 dB worse than eager in the same dtype"
        assert f"range: {words}" in rows
        assert "repeats: yes" in rows
        assert "x16 0.025 0.01 0.02" in rows


class TestProof:
    """The proof and the kernels that `show` prints."""

    PROOF = ProofRecord(
        graphs=1,
        graph_breaks=0,
        recompiles=("guard failed: x.size(0) == 1",),
        operators_inside={f"aten.op{index}": index for index in range(1, 16)},
        operators_outside={"mm": 3},
        facts={"kernels_generated": 7},
        quantised={f"layer.{index}": "int8 dynamic" for index in range(6)},
        skipped={"gate": "128 elements, fewer than 65536"},
        trace=TraceRecord(
            (KernelTime("cpp_fused_add_0", 2.0, 600_000, True), KernelTime("aten::mm", 1.0, 250_000, False)),
            12,
            1_000_000,
            900_000,
            600_000,
        ),
        incomplete="the traced build has another graph (aa, measured bb)",
    )

    @pytest.fixture
    def row(self) -> Record:
        return replace(record("inductor", TEN, made=measurement(TEN, proof=self.PROOF)), quantisation="dynamic")

    def test_holds_the_evidence(self, row: Record) -> None:
        text = shown(Stored("id", row))
        for line in (
            "graph breaks: 0",
            "facts: kernels_generated 7",
            "incomplete: the traced build has another graph (aa, measured bb)",
            "recompiles: guard failed: x.size(0) == 1",
            "operators outside: mm 3",
            "quantised: 6, int8 dynamic: layer.0, layer.1, layer.2, layer.3 and 2 more",
            "skipped: 1, 128 elements, fewer than 65536: gate",
            "kernel count: 12",
            "own: 0.6 ms",
        ):
            assert line in text.splitlines()
        (inside,) = (line for line in text.splitlines() if line.startswith("operators inside: "))
        assert inside.startswith("operators inside: aten.op15 15, aten.op14 14,"), "the most frequent first"
        kernels = [line.split() for line in text.splitlines() if line.startswith(("cpp_fused", "aten::mm"))]
        assert kernels == [
            ["cpp_fused_add_0", "60%", "2", "0.6", "ms", "yes"], ["aten::mm", "25%", "1", "0.25", "ms", "no"],
        ]  # fmt: skip

    def test_a_record_cannot_name_code_to_import(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "evil.py").write_text("raise SystemExit('was imported')\n")
        monkeypatch.syspath_prepend(tmp_path)
        assert "\ngraphs: 1\n" in shown(Stored("id", record("evil:X", TEN)))

    def test_a_gpus_idle_time_is_shown(self) -> None:
        trace = TraceRecord((), 3, 2_000_000, 1_900_000, 0, span_ns=5_000_000, busy_ns=1_500_000)
        made = measurement(TEN, proof=ProofRecord(trace=trace))
        lines = shown(Stored("id", record("inductor", made=made))).splitlines()
        assert {"GPU idle: 70% of the span", "span: 5 ms", "total: 2 ms", "named: 1.9 ms"} <= {*lines}
        on_cpu = measurement(TEN, proof=replace(ProofRecord(trace=trace), trace=replace(trace, span_ns=0)))
        assert "idle" not in shown(Stored("id", record("inductor", made=on_cpu)))

    def test_no_share_of_an_older_record_exceeds_the_call(self) -> None:
        """As of an H200, whose named time was the mean of the traced calls, and whose total their median."""
        kernel = KernelTime("nvjet", 8, 5_240_000, own=True)
        trace = TraceRecord((kernel,), 1, 5_088_864, 5_234_907, 5_240_000)
        made = record("inductor", made=measurement(TEN, proof=ProofRecord(trace=trace)))
        assert "nvjet   100%" in shown(Stored("id", made))
        assert one.longest_kernels(made, 1) == ((kernel, "100%"),)

    @pytest.mark.parametrize(
        ("quantisation", "name"),
        [
            ("", "inductor bf16"),
            ("dynamic", "inductor bf16 (dynamic int8)"),
            ("weight-only", "inductor bf16 (int8 weights)"),
            ("static", "inductor bf16 (static int8)"),
            ("fp8", "inductor bf16 (fp8)"),
        ],
    )
    def test_tables_name_the_class_of_a_quantised_row(self, quantisation: Any, name: str) -> None:
        made = record("inductor", TEN, dtype="bf16", quantisation=quantisation)
        assert name_of(made) == name
        assert next(texts(stored(made)))[0] == name
        assert f"\n{name}  ok " in tables_text(stored(made))
