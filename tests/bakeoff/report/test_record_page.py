"""One record in full: `bakeoff show`, with its proof and its trace."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from few_records import TEN, stored, texts
from pages import html_text, tables_text
from records import measurement, record

from bakeoff.backends import resolve_backend
from bakeoff.process.jobs import TraceResult
from bakeoff.record.policy import Policy
from bakeoff.record.schema import KernelTime, Memory, ProofRecord, Record, TraceRecord
from bakeoff.record.store import Records, Stored, load_all
from bakeoff.report.groups import name_of
from bakeoff.report.pages import record as one
from bakeoff.report.render import terminal
from bakeoff.sweeps.wave import with_trace


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
            "build: 12.2/3.5 s cold/warm, peak 300 MiB, no compiler process above 200 MiB",
            "reference: reference-1, eager fp64, 4 sets of inputs",
            "captured calls 12",
            "versions: bakeoff 0.1.0, torch 2.13.0",
            "not on this machine (was logs/20260102T030400-abcdef/toy.log in the cache folder)",
        ):
            assert part in text
        rows = [" ".join(line.split()) for line in text.splitlines()]
        for row in (
            "median 2.950", "95 % from 2.500", "95 % to 3.400", "mean 2.950", "min 2.000", "samples 20",
            "calls a sample 1", "stopped by narrow", "weights 50 MiB", "inputs 1.0 MiB", "host peak 500 MiB",
            "calls add 10 MiB", "y 5.00e-01 2.00e-06 FAILED",
        ):  # fmt: skip
            assert any(line.startswith(row) for line in rows), row

    def test_a_policy_that_is_not_the_usual_one_is_said(self) -> None:
        """On the record's own page, and below a table of it and another row."""
        relaxed = record("inductor", TEN, policy=Policy(contention=5.0, trace=False))
        said, entry = "policy: contention 5 (usual 0.2), trace 0 (usual 1)", stored(relaxed)[0]
        assert said in shown(entry).splitlines()
        assert f"inductor fp32: {said}" in tables_text(stored(record("eager", TEN), relaxed)).splitlines()
        assert said in tables_text((entry,)).splitlines()
        usual = stored(record("eager", TEN))
        assert "policy" not in shown(usual[0]) + tables_text(usual)

    def test_fits_80_columns(self, runs: Path) -> None:
        for entry in load_all(runs).current:
            lines = terminal.render(one.document(entry), 80).splitlines()
            assert max(map(len, (line for line in lines if "  " in line.strip()))) <= 80

    def test_small_weights_have_a_size(self) -> None:
        memory = Memory(weights_bytes=1_181_072, io_bytes=70_000)
        rows = [line.split() for line in shown(Stored("id", record(made=measurement(TEN, memory=memory)))).splitlines()]
        assert ["weights", "1.1", "MiB"] in rows
        assert ["inputs", "68", "KiB"] in rows

    @pytest.mark.parametrize("status", ["unavailable", "crashed", "build_failed"])
    def test_of_a_row_without_numbers(self, status: str) -> None:
        made = record(made=measurement(status=status, reason="why", traceback="Traceback\n  ValueError: x\n"))
        text = shown(Stored("id", made))
        assert f"status: {status}: why" in text
        assert text.endswith("Traceback\n  ValueError: x")

    def test_log_on_this_machine(self, tmp_path: Path) -> None:
        made = record()
        path = tmp_path / "cache" / made.log
        path.parent.mkdir(parents=True)
        path.touch()
        assert one.log_path(made) == str(path)


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
            "facts: graphs 1, graph breaks 0, recompiles 1, kernels_generated 7",
            f"evidence that inductor ran: {resolve_backend('inductor').checks}",
            "incomplete: the traced build has another graph (aa, measured bb)",
            "recompiled: guard failed: x.size(0) == 1",
            "run by the framework or a library, by its names: mm 3",
            "quantised: 6, int8 dynamic: layer.0, layer.1, layer.2, layer.3 and 2 more",
            "left: 1, 128 elements, fewer than 65536: gate",
            "a traced call took 1.000 ms, 90% in named kernels, 60% in the compiler's own (*); the 2 longest of 12:",
        ):
            assert line in text.splitlines()
        (inside,) = (line for line in text.splitlines() if line.startswith("compiled: "))
        assert inside.startswith("compiled: aten.op15 15, aten.op14 14,")
        assert inside.endswith("aten.op4 4 and 3 more")
        kernels = [line.split() for line in text.splitlines() if line.startswith(("cpp_fused", "aten::mm"))]
        assert kernels == [["cpp_fused_add_0", "*", "2", "0.6000", "60%"], ["aten::mm", "1", "0.2500", "25%"]]

    def test_a_fallback_is_printed(self) -> None:
        made = measurement(TEN, "fell_back", "ran eager", proof=ProofRecord(fell_back="eager"))
        assert "fell back: eager" in shown(Stored("id", record("inductor", made=made))).splitlines()

    def test_of_a_backend_that_is_not_in_the_table(self) -> None:
        text = shown(Stored("id", record("canary", TEN)))
        assert "canary ran" not in text
        assert "facts: graphs 1" in text

    def test_a_record_cannot_name_code_to_import(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "evil.py").write_text("raise SystemExit('was imported')\n")
        monkeypatch.syspath_prepend(tmp_path)
        assert "facts: " in shown(Stored("id", record("evil:X", TEN)))

    def test_a_gpus_idle_time_is_shown(self) -> None:
        trace = TraceRecord((), 3, 2_000_000, 1_900_000, 0, span_ns=5_000_000, busy_ns=1_500_000)
        made = measurement(TEN, proof=ProofRecord(trace=trace))
        lines = shown(Stored("id", record("inductor", made=made))).splitlines()
        assert "the GPU is idle for 70% of the 5.000 ms between events around a call" in lines
        assert any(line.startswith("a traced call took 2.000 ms, 95% in named kernels") for line in lines)
        on_cpu = measurement(TEN, proof=replace(ProofRecord(trace=trace), trace=replace(trace, span_ns=0)))
        assert "idle" not in shown(Stored("id", record("inductor", made=on_cpu)))

    def test_no_share_of_an_older_record_exceeds_the_call(self) -> None:
        """As of an H200, whose named time was the mean of the traced calls, and whose total their median."""
        kernel = KernelTime("nvjet", 8, 5_240_000, own=True)
        trace = TraceRecord((kernel,), 1, 5_088_864, 5_234_907, 5_240_000)
        made = record("inductor", made=measurement(TEN, proof=ProofRecord(trace=trace)))
        text = shown(Stored("id", made))
        assert "100% in named kernels, 100% in the compiler's own" in text
        assert one.longest_kernels(made, 1) == ((kernel, "100%"),)

    def test_a_trace_of_no_time_is_shown(self) -> None:
        proof = ProofRecord(trace=TraceRecord((), 0, 0, 0, 0))
        assert "a traced call took 0.000 ms, 0% in named" in shown(
            Stored("id", record("inductor", made=measurement(TEN, proof=proof)))
        )

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

    def test_a_table_notes_an_incomplete_trace(self) -> None:
        made = measurement(TEN, proof=ProofRecord(graph_hash="bb"))
        assert self.PROOF.trace
        trace = replace(self.PROOF.trace, graph_hash="aa")
        made = with_trace(made, TraceResult(trace, {}, {}), "cpu")
        text = tables_text(stored(record("eager", TEN), record("inductor", made=made)))
        (finding,) = made.findings
        assert f"inductor fp32: note: {finding.text} [proof.incomplete]" in text.splitlines()

    def test_a_page_lists_the_longest_kernels(self, row: Record) -> None:
        text = html_text(Records((Stored("id", row),), (), (), ()))
        assert "cpp_fused_add_0 60%, aten::mm 25%" in text
