"""Models of users from a file to records, through the same rows and checks as the lab's own."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from describing import MODELS
from lab import FAST, Recorder, Swept, marked_folder, outcome, sweep
from records import GPU_HOST, started_bakeoff

from bakeoff.bring.bring import bring
from bakeoff.machine import host
from bakeoff.models.brought.about import ABOUT
from bakeoff.models.component import TensorSpec
from bakeoff.models.errors import BakeoffError
from bakeoff.models.sizes import parse_sizes
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.process.jobs import DescribeJob
from bakeoff.process.supervisor import Outcome
from bakeoff.sweeps import describe
from bakeoff.sweeps.run import run_sweep

NAME = "brought_models.language"


def swept(model: str, folder: Path, *backends: str) -> Swept:
    """A sweep of a model of brought_models.py, or of another file."""
    with marked_folder(folder):
        reference = bring(model if ":" in model or model.endswith(".pt2") else f"{MODELS}:{model}", 0, 1, Recorder())
    request = Request(reference, backends=backends, dtypes=("fp32",), device="cpu", policy=FAST, threads=1)
    return sweep(request, folder)


def test_integers_masks_and_dictionaries_pass_through_every_exporter_and_a_lie_is_caught(tmp_path: Path) -> None:
    lie = "selftest_backends.faulty:CACHED_OUTPUT"
    honest = ["eager", "torch.export", "onnxruntime", "openvino"]
    records = swept("language", tmp_path, *honest, lie).records()
    assert {name: outcome(record) for name, record in records.items()} == {
        **dict.fromkeys(honest, "ok"),
        lie: "parity_failed",
    }
    for name in honest:
        record = records[name]
        assert str(record.variant).startswith(f"{NAME}:py.call/")
        assert record.checkpoint.startswith("its own weights, sha256 ")
        parity = record.measurement.parity
        assert parity is not None
        assert [output.name for output in parity.outputs] == ["logits", "best"]


def test_a_description_is_made_once_and_anew_after_an_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "mine.py"
    text = "import torch\ndef model():\n    return torch.nn.Linear(4, 4).eval(), torch.randn(2, 4)\n"
    mine.write_text(text)
    with marked_folder(tmp_path):
        first = bring("mine.py:model", 0, 1, Recorder())
        made = (Path(first) / ABOUT).stat().st_mtime_ns
        assert bring("mine.py:model", 0, 1, Recorder()) == first
        assert (Path(first) / ABOUT).stat().st_mtime_ns == made
        mine.write_text(text.replace("Linear(4, 4)", "Linear(4, 4, bias=False)"))
        other = bring("mine.py:model", 0, 1, Recorder())
        assert other != first
        assert bring("mine.py:model", 1, 1, Recorder()) not in (first, other)
        plans = [make_plan(Request(one, backends=("eager",), device="cpu")) for one in (first, other)]
    assert plans[0].rows[0].variant == plans[1].rows[0].variant
    assert plans[0].rows[0].config_id != plans[1].rows[0].config_id


def test_a_model_is_described_on_the_device_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[DescribeJob] = []

    def run(job: DescribeJob, *_: object) -> Outcome:
        jobs.append(job)
        return Outcome("timeout", "not run in this test")

    monkeypatch.setattr(describe, "run_job", run)
    monkeypatch.setattr(host, "missing_device", lambda _device: None)
    monkeypatch.setattr(host, "read_host", lambda: GPU_HOST)
    with marked_folder(tmp_path):
        for device in ("cpu", "cuda", ""):
            with pytest.raises(BakeoffError, match="cannot be described"):
                bring(f"{MODELS}:picture", 0, 1, Recorder(), device=device)
    assert [job.device for job in jobs] == ["cpu", "cuda", "cuda"], "a GPU where there is one"
    assert len({job.folder for job in jobs}) == 2


def test_a_name_stands_for_the_newest_description(tmp_path: Path) -> None:
    with marked_folder(tmp_path):
        reference = bring(f"{MODELS}:picture", 0, 1, Recorder())
        plan = make_plan(Request("brought_models.picture", backends=("eager",), dtypes=("fp32",), device="cpu"))
        assert plan.rows[0].subject.component == reference
        with pytest.raises(
            BakeoffError, match=r"no component 'picture'; did you mean brought_models\.picture; known: wm"
        ):
            make_plan(Request("picture"))
        with pytest.raises(BakeoffError, match="picture was not run with it"):
            make_plan(replace(plan.request, batches=(2,)))
        with pytest.raises(BakeoffError, match="picture brings its own weights") as refused:
            make_plan(replace(plan.request, checkpoint=str(MODELS)))
        assert refused.value.code == "bad-option"


def test_a_batch_curve_is_of_multiples_of_the_given_inputs(tmp_path: Path) -> None:
    with marked_folder(tmp_path):
        reference = bring(f"{MODELS}:language", 0, 1, Recorder(), batches=(1, 3))
        request = Request(reference, backends=("eager",), dtypes=("fp32",), device="cpu", policy=FAST, threads=1)
        plan = make_plan(replace(request, batches=(1, 3), final_s=0, ceilings=False))
        done = run_sweep(plan, tmp_path / "runs", "", resume=False, progress=Recorder())
    records = {stored.record.batch: stored.record for stored in done.stored}
    assert {batch: record.status for batch, record in records.items()} == {1: "ok", 3: "ok"}
    shapes = {row.subject.batch: [spec.shape for spec in row_inputs(plan, row.subject.batch)] for row in plan.rows}
    assert shapes == {1: [(1, 16), (1, 16)], 3: [(3, 16), (3, 16)]}
    assert len({record.config_id for record in records.values()}) == 2
    assert records[1].source is not None
    assert records[3].source is not None
    assert records[1].source.component == records[3].source.component


def row_inputs(plan: Plan, batch: int) -> tuple[TensorSpec, ...]:
    component = plan.component
    return component.workload(component.presets[0].config, "call", batch).inputs


def test_a_name_stands_for_its_file_where_batches_or_sizes_are_asked_for(tmp_path: Path) -> None:
    with marked_folder(tmp_path):
        with pytest.raises(BakeoffError, match="wm has fixed shapes"):
            bring("wm", 0, 1, Recorder(), parse_sizes(["ids.0=1,2"]))
        usual = bring(f"{MODELS}:language", 0, 1, Recorder())
        assert bring(NAME, 0, 1, Recorder()) == NAME
        batched = bring(NAME, 0, 1, Recorder(), batches=(1, 3))
        assert batched not in (usual, NAME)
        assert bring(f"{MODELS}:language", 0, 1, Recorder(), batches=(1, 3)) == batched
        plan = make_plan(Request(batched, backends=("eager",), dtypes=("fp32",), device="cpu", batches=(1, 3)))
        assert [row.subject.batch for row in plan.rows] == [1, 3]


def test_a_program_with_example_inputs_is_a_model_too(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()).eval()
    torch.export.save(torch.export.export(module, (torch.randn(2, 8),)), tmp_path / "net.pt2")
    (record,) = swept(str(tmp_path / "net.pt2"), tmp_path, "onnxruntime").records().values()
    assert outcome(record) == "ok"
    assert str(record.variant) == "net:pt2.call/onnxruntime/fp32@cpu"


def test_an_archive_that_would_run_code_is_not_opened(tmp_path: Path) -> None:
    module = torch.nn.Linear(8, 8).eval()
    program = torch.export.export(module, (torch.randn(2, 8),))
    path = tmp_path / "net.pt2"
    torch.export.save(program, path)
    import pickle
    import zipfile

    class Payload:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            import os

            return os.system, (f"touch {tmp_path / 'ran'}",)

    with zipfile.ZipFile(path) as archive:
        members = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    top = next(iter(members)).partition("/")[0]
    members[f"{top}/data/sample_inputs/model.pt"] = pickle.dumps(Payload())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with marked_folder(tmp_path), pytest.raises(BakeoffError, match="no plain tensors, and are not opened"):
        bring(str(path), 0, 1, Recorder())
    assert not (tmp_path / "ran").exists()


def test_files_of_a_user_hide_no_modules_of_python(tmp_path: Path) -> None:
    """Neither in the command nor in a worker (yolov5#6048); those that Python lacks are found."""
    for name in ("profile", "statistics", "typing_extensions"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported in place of the library')\n")
    (tmp_path / "mine.py").write_text(
        "import helper\ndef model():\n    return helper.torch.nn.Linear(4, 4).eval(), helper.torch.randn(2, 4)\n"
    )
    (tmp_path / "helper.py").write_text("import cProfile, statistics, torch\nstatistics.median([1])\n")
    (tmp_path / "own.py").write_text("from selftest_backends.faulty import NAN as BACKEND\n")
    asked = ["mine.py:model", "--backends", "own:BACKEND", "--dtype", "fp32", "--device", "cpu", "--dry-run"]
    ran = started_bakeoff("sweep", *asked, cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert "mine:py.call/nan/fp32@cpu" in ran.out
