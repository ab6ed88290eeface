"""What `list` and `doctor` print, and what commands print as JSON."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from records import UNSUPPORTED, bakeoff

from bakeoff.backends import resolve_backend
from bakeoff.models import component_names, resolve_component
from bakeoff.record.store import load_all
from bakeoff.report.markdown import files, history
from bakeoff.report.text import doctor, listing


class TestListing:
    def test_holds_the_evidence_that_a_backend_ran(self) -> None:
        text = listing.render(listing.read())
        assert f"inductor: {resolve_backend('inductor').evidence.checks}" in text.splitlines()

    def test_holds_every_component_preset_and_backend(self) -> None:
        found = listing.read()
        assert list(found.components) == list(component_names())
        text = listing.render(found)
        for name in component_names():
            for preset in resolve_component(name).presets:
                assert preset.name in text
        assert "{:,}".format(resolve_component("wm").parameters(resolve_component("wm").preset("1b").config)) in text

    def test_a_component_of_nobody_has_no_empty_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        toy = resolve_component("toy")
        monkeypatch.setattr(listing, "resolve_component", lambda _name: replace(toy, credit=""))
        assert listing.read("toy").components == {"toy": toy.summary}

    def test_of_one_component(self) -> None:
        assert list(listing.read("toy").components) == ["toy"]

    def test_every_backend_is_ready_or_has_a_reason(self) -> None:
        for line in listing.read_backends():
            assert "\n" not in line.why_not
            assert line.option_sets or line.why_not

    def test_doctor_reports_what_makes_numbers_wrong(self) -> None:
        text = doctor.render(doctor.read())
        for word in ("CPU ", "bf16 ", "memory ", "load ", "versions ", "records ", "caches "):
            assert f"\n{word}" in f"\n{text}"
        spoilt = replace(doctor.read(), versions={"bakeoff": "0"}, known_bad=("cuDNN x is bad",), load=1e3)
        text = doctor.render(spoilt)
        (problem,) = [line for line in text.splitlines() if line.startswith("problem ")]
        assert "torch" in problem
        assert "warning   cuDNN x is bad" in text
        assert "1000.00: busy" in text


class TestJson:
    """With --json stdout is one JSON value and nothing else, under keys that scripts can rely on."""

    def json(self, *arguments: str, cwd: Path, code: int = 0) -> Any:
        ran = bakeoff(*arguments, "--json", cwd=cwd)
        assert ran.code == code, ran.err
        assert ran.out.endswith("}\n")
        return json.loads(ran.out)

    def test_list(self, tmp_path: Path) -> None:
        found = self.json("list", "toy", cwd=tmp_path)
        assert list(found) == ["components", "presets", "backends", "evidence"]
        assert found["presets"][0] == {
            "component": "toy",
            "preset": "tiny",
            "label": "toy",
            "parameters": 24451,
            "workloads": ["world", "picture", "sound", "stream"],
            "default_on": ["cpu"],
        }
        assert list(found["backends"][0]) == ["backend", "summary", "device", "why_not", "option_sets"]

    def test_doctor(self, tmp_path: Path) -> None:
        found = self.json("doctor", cwd=tmp_path)
        assert list(found) == [
            "host", "versions", "load", "available_bytes", "native_bf16", "known_bad", "gpu_limits",
            "backends", "runs", "cache",
        ]  # fmt: skip
        assert found["cache"] == str(tmp_path / "cache")
        assert found["runs"] == str(tmp_path / "runs")

    def test_show_and_table(self, runs: Path) -> None:
        first = load_all(runs).current[0]
        found = self.json("show", first.id, cwd=runs)
        assert list(found) == ["id", "log", "record"]
        assert found["record"]["measurement"]["latency"]["samples_ns"] == list(
            first.record.measurement.latency.samples_ns  # type: ignore[union-attr]
        )
        found = self.json("table", "toy", cwd=runs)
        assert list(found) == ["records", "rows", "problems", "machines", "pipelines"]
        assert found["records"] == [row["record"] for row in found["rows"]]
        assert list(found["rows"][1]) == [
            "record", "variant", "quantisation", "status", "reason", "stale", "latency", "copy_ms", "video_fps",
            "floor", "of_floor", "vs_eager", "vs_eager_fp32", "peak_mib", "sqnr_db", "lossless", "build", "limits",
        ]  # fmt: skip
        assert found["rows"][1]["vs_eager"] == pytest.approx(10.95 / 5.95)
        assert found["rows"][1]["latency"]["median_ms"] == pytest.approx(5.95)

    def test_history(self, runs: Path) -> None:
        written = self.json("history", cwd=runs)["written"]
        assert written == [str(runs / history.NAME), *sorted(map(str, runs.glob("*/*.md")), reverse=True)]
        assert self.json("history", "--check", cwd=runs) == {"problem": "", "problems": []}
        (runs / history.NAME).write_text("mine")
        assert history.NAME in self.json("history", "--check", cwd=runs, code=1)["problem"]

    def test_dry_run_and_sweep(self, tmp_path: Path) -> None:
        found = self.json(*UNSUPPORTED, "--dry-run", cwd=tmp_path)
        assert list(found) == [
            "lines", "builds", "processes", "seconds", "disk_bytes", "objective", "batches", "finals",
            "references_s", "budget_s",
        ]  # fmt: skip
        assert list(found["lines"][0]) == [
            "variant", "batch", "build_number", "process", "precheck", "seconds", "seconds_from", "memory_bytes",
            "disk_bytes", "fits",
        ]  # fmt: skip
        assert not (tmp_path / "runs").exists()
        found = self.json(*UNSUPPORTED, cwd=tmp_path, code=3)
        assert list(found) == ["sweep", "objective", "records", "finals", "interrupted", "spent_s", "out_of_time"]
        assert (found["interrupted"], found["out_of_time"]) == ([], None)
        assert [entry.id for entry in load_all(tmp_path / "runs").current] == found["records"]


@pytest.mark.parametrize(("suite", "stated"), [("default", False), ("full", True)])
def test_the_full_suite_states_its_size_before_it_starts(suite: str, stated: bool, tmp_path: Path) -> None:
    ran = bakeoff(*UNSUPPORTED, "--workload", "world", "--suite", suite, cwd=tmp_path)
    assert ran.code == 3, ran.err
    assert ("full suite: 1 row, about 0.0 minutes by estimate" in ran.err) is stated, ran.err


def test_text_of_a_sweep(tmp_path: Path) -> None:
    """The table on stdout, progress on stderr; the history is there afterwards."""
    ran = bakeoff(*UNSUPPORTED, "--note", "try", cwd=tmp_path)
    assert ran.code == 3
    assert "Deploy nothing from this table: no row is ok." in ran.out
    assert "1 of 1 variant recorded in" in ran.out.splitlines()[-1]
    assert "1 row cannot run here (1 unsupported); the records say why." in ran.err
    assert "> try\n" in (tmp_path / "runs" / history.NAME).read_text()
    assert files.check(tmp_path / "runs") == []
