"""What `list` and `doctor` print, and what commands print as JSON."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from records import UNSUPPORTED, bakeoff

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.models import component_names, resolve_component
from bakeoff.record.store import load_all
from bakeoff.report.pages import doctor, history, listing
from bakeoff.report.render import terminal


class TestListing:
    def test_of_one_component_holds_presets_sets_of_options_and_the_evidence_that_a_backend_ran(self) -> None:
        found = listing.read("wm")
        lines = terminal.render(listing.page_of_component(found)).splitlines()
        assert list(found["components"]) == ["wm"]
        parameters = resolve_component("wm").preset("1b").parameters
        assert ["1b", f"{parameters:,}", "cuda"] in [line.split() for line in lines]
        assert "openvino on cpu: openvino, openvino[hint=dtype]" in lines
        inductor = resolve_backend("inductor")
        assert f"inductor: {inductor.summary}; it ran where {inductor.checks}" in lines

    def test_has_a_row_for_every_component_with_its_presets_and_every_backend(self) -> None:
        found = listing.read()
        assert list(found["components"]) == list(component_names())
        lines = terminal.render(listing.page(found)).splitlines()
        for name in component_names():
            (row,) = [line for line in lines if line.startswith(f"{name} ")]
            assert all(re.search(rf"\b{preset.name}\b", row) for preset in resolve_component(name).presets)
        (row,) = [line for line in lines if line.startswith("wm ")]
        assert "200m: 274.8 M" in row
        assert "1b: 1,094 M" in row
        rows = [line.split()[0] for line in lines if re.match(r"\S+ +(yes|no|-) +(yes|no|-) ", line)]
        assert rows == list(backend_names())

    def test_every_backend_is_ready_or_has_a_reason(self) -> None:
        for line in listing.read_backends():
            assert "\n" not in line.why_not
            elsewhere = any(field.name == "target" for field in fields(resolve_backend(line.backend).options))
            assert line.option_sets or line.why_not or elsewhere, "the suites of a CPU build for no other GPU"

    def test_doctor_reports_what_makes_numbers_wrong(self) -> None:
        text = terminal.render(doctor.page(doctor.read()))
        for word in ("backends that run here", "CPU", "memory", "load", "versions", "records", "caches"):
            assert f"\n{word}: " in f"\n{text}"
        spoilt = replace(
            doctor.read(), versions={"bakeoff": "0"}, known_bad=("cuDNN x is bad",), load=1e3, native_bf16=False
        )
        found = terminal.render(doctor.page(spoilt)).split("\n\n")[0].splitlines()[1:]
        assert "torch" in found[0].removeprefix("problem: ")
        assert found[1] == "warning: cuDNN x is bad"
        assert found[2].startswith("warning: this host is busy")
        assert found[3].startswith("warning: bf16 is emulated")


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
            "host", "versions", "load", "available_bytes", "native_bf16", "known_bad", "gpus", "gpu_limits",
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
        assert list(found) == [
            "records",
            "rows",
            "problems",
            "machines",
            "pipelines",
            "budgets",
            "rollouts",
            "sustained",
        ]
        assert found["records"] == [row["record"] for row in found["rows"]]
        assert list(found["rows"][1]) == [
            "record", "variant", "quantisation", "status", "reason", "stale", "latency", "copy_ms", "video_fps",
            "floor", "of_floor", "vs_eager", "vs_eager_fp32", "peak_mib", "sqnr_db", "lossless", "build", "limits",
        ]  # fmt: skip
        assert found["rows"][1]["vs_eager"] == pytest.approx(10.95 / 5.95)
        assert found["rows"][1]["latency"]["median_ms"] == pytest.approx(5.95)

    def test_history(self, runs: Path) -> None:
        written = self.json("history", cwd=runs)["written"]
        pages = [str(runs / history.NAME), *sorted(map(str, runs.glob("*/*.md")), reverse=True)]
        assert written == pages
        assert self.json("history", "--check", cwd=runs) == {"problem": "", "problems": []}
        (runs / history.NAME).write_text("mine")
        assert history.NAME in self.json("history", "--check", cwd=runs, code=1)["problem"]

    def test_dry_run_and_sweep(self, tmp_path: Path) -> None:
        found = self.json(*UNSUPPORTED, "--dry-run", cwd=tmp_path)
        assert list(found) == [
            "lines", "processes", "seconds", "objective", "batches", "finals", "time_limit_s",
        ]  # fmt: skip
        assert list(found["lines"][0]) == [
            "variant", "batch", "process", "precheck", "seconds", "seconds_from", "memory_bytes", "fits",
        ]  # fmt: skip
        assert not (tmp_path / "runs").exists()
        found = self.json(*UNSUPPORTED, cwd=tmp_path, code=3)
        assert list(found) == ["sweep", "objective", "records", "finals", "interrupted", "used_s", "out_of_time"]
        assert (found["interrupted"], found["out_of_time"]) == ([], None)
        assert [entry.id for entry in load_all(tmp_path / "runs").current] == found["records"]
