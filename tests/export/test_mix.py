"""A mix as a folder: exported once, each artifact verified in a fresh process; what is refused, and what is wrong."""

import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import artifacts
import msgspec
import pytest
import torch
from lab import Recorder, marked_folder
from mixes import loop_of
from pipeline_records import pipeline_record
from typer.testing import CliRunner

from bakeoff.artifact.mix import export_mix, is_whole
from bakeoff.artifact.mix import exported as exported_mixes
from bakeoff.backends.format import BadArtifact
from bakeoff.cli import app
from bakeoff.export import Program, load
from bakeoff.export.folder import read_manifest
from bakeoff.export.manifest import MANIFEST, Condition, Conditions, formatted
from bakeoff.export.mix import MixManifest, is_mix, read_mix, read_warmup, seal_mix
from bakeoff.export.warmup import WARMUP, WarmCall, WarmUp
from bakeoff.models.errors import BakeoffError
from bakeoff.models.toy.network import Toy
from bakeoff.models.toy.spec import Config
from bakeoff.models.weights import randomize
from bakeoff.pipeline.plan import PipelinePlan, make_pipeline_plan, make_programs
from bakeoff.pipeline.request import PipelineRequest
from bakeoff.record.store import StoredPipeline
from bakeoff.tuned.apply import apply
from bakeoff.worker.pipeline.programs import loaded_programs

pytestmark = pytest.mark.timeout(300)
MIX = "wm=onnxruntime/fp32,image=onnxruntime/fp32"


def planned(runs: Path, mix: str = MIX) -> tuple[PipelinePlan, StoredPipeline]:
    """The programs of `loops:Small`, and a run of the mix."""
    request = PipelineRequest("loops:Small", mixes=(mix,), device="cpu", threads=1)
    made = make_programs(request, (), runs, Recorder())
    chosen = make_pipeline_plan(request, runs, Recorder()).mixes[0].mix
    return made, StoredPipeline("id-run", replace(pipeline_record(), mix=chosen, threads=1))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mix")
    with marked_folder(folder):
        made, entry = planned(folder / "runs")
        export_mix(made, entry, folder / "made", False, folder / "runs", "a test", Recorder())
    return folder / "made"


@pytest.fixture
def mix(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "copy"))


def rewrite(folder: Path, **changes: Any) -> None:
    """A changed manifest with a correct hash."""
    (folder / MANIFEST).write_bytes(formatted(seal_mix(replace(read_mix(folder), **changes))))


def verified(folder: Path, *arguments: str) -> Any:
    with marked_folder(folder.parent / "lab"):
        return CliRunner().invoke(app, ["verify", str(folder), "--json", *arguments])


def test_the_folder_holds_artifacts_and_lists_the_calls(exported: Path) -> None:
    manifest = read_mix(exported)
    assert set(os.listdir(exported)) == {MANIFEST, WARMUP, *manifest.artifacts.values()}
    assert set(manifest.artifacts) == {"wm.world", "image.picture"}
    assert manifest.calls == ((), ("wm.world", "wm.world", "image.picture"))
    assert (manifest.loop, len(manifest.loop_hash)) == ("loops:Small", 12)
    assert not list(exported.rglob("*.py")), "no code lies in the folder"
    assert not list(exported.parent.glob(".made*")), "no unfinished folder is left"


def test_each_artifact_is_verified_in_a_fresh_process(mix: Path) -> None:
    done = verified(mix)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["artifacts"]
    assert [one["digest"] for one in found] == [*read_mix(mix).digests.values()]
    assert all(check["passed"] for one in found for check in one["result"]["checked"])


def test_conditions_that_are_checked_later_leave_it_valid(mix: Path) -> None:
    before, name = read_mix(mix), "wm.world"
    artifacts.rewrite(mix / name, conditions=Conditions("now", {}, 1.0, (Condition("fork", "right"),)))
    assert read_manifest(mix / name).digest != before.digests[name]
    assert is_whole(mix)
    assert read_mix(mix) == before
    artifacts.rewrite(mix / name, label="another")
    with pytest.raises(BadArtifact, match="is not the artifact that was exported"):
        read_mix(mix)


def test_a_wrong_artifact_among_right_ones_is_found(mix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bakeoff.artifact import export as module

    def wrong_picture(folder: Path, *arguments: Any) -> Any:
        result = verify(folder, *arguments)
        right = folder.name != "image.picture"
        return replace(result, checked=tuple(replace(one, passed=right) for one in result.checked))

    verify = module.verify
    monkeypatch.setattr(module, "verify", wrong_picture)
    done = verified(mix)
    assert done.exit_code == 1
    assert "does not compute what was exported: picture/image" in done.stderr
    assert len(json.loads(done.stdout)["artifacts"]) == 2


def test_a_cold_start_takes_each_artifact_as_an_engine(mix: Path) -> None:
    folders = {name: str(mix / folder) for name, folder in read_mix(mix).artifacts.items()}
    programs = loaded_programs(loop_of("loops:Small"), folders, 1)
    assert {str(key) for key in programs} == set(folders)
    for key, one in programs.items():
        port = one.engine.port(one.inputs, one.outputs)
        port.call()
        wanted = load(folders[str(key)])(**one.inputs)
        assert all(torch.equal(port.outputs[name], wanted[name]) for name in one.outputs)


def test_a_mix_with_a_slot_that_cannot_be_exported_says_so_before_another_one_is(tmp_path: Path) -> None:
    with marked_folder(tmp_path):
        request = PipelineRequest("loops:Small", mixes=("wm=onnxruntime/fp32",), device="cpu", threads=1)
        plan = make_pipeline_plan(request, tmp_path / "runs", Recorder())
        (lacking,) = exported_mixes(plan, tmp_path / "work", tmp_path / "runs", Recorder()).values()
        assert lacking.folders == {}
        assert lacking.problem.startswith("eager has no artifact format")
        assert not [*(tmp_path / "work").rglob("*")]


def test_load_makes_the_calls_of_the_plan_for_its_programs_when_asked(
    mix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, calls = Program.__call__, list[tuple[str, dict[str, torch.Tensor]]]()

    def called(self: Program, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        calls.append((self.about.name, inputs))
        return made(self, **inputs)

    monkeypatch.setattr(Program, "__call__", called)
    plan = read_warmup(mix, read_mix(mix))
    assert plan.units == 1000
    with_call(mix, WarmCall("wm.world", 0, {"t": (0.25,)}, {"cache_k": (1, 0, 3)}))
    try:
        load(mix / "image.picture", warm_up=True)
    except BakeoffError as error:
        raise AssertionError("it makes the calls of another artifact") from error
    assert calls == [], "of another artifact"
    artifact = load(mix / "wm.world", warm_up=True)
    ((name, inputs),) = calls
    assert name == "world"
    assert float(inputs["t"]) == 0.25
    assert not inputs["cache_k"][:, :3].any()
    assert torch.equal(inputs["cache_k"][:, 3:], artifact.sample()["cache_k"][:, 3:])
    for values in ({"t": (0.25, 0.5)}, {"unknown": (1.0,)}):
        with_call(mix, WarmCall("wm.world", 0, values, {}))
        with pytest.raises(BadArtifact, match=r"warmup\.json has a call of wm\.world that does not fit its inputs"):
            load(mix / "wm.world", warm_up=True)
    (mix / WARMUP).write_bytes(formatted(plan))
    with pytest.raises(BadArtifact, match=r"warmup\.json is not the one that was exported"):
        load(mix / "wm.world", warm_up=True)
    with_call(mix, WarmCall("wm.world", 0, {}, {}))
    rewrite(mix, warmup=msgspec.UNSET)
    with pytest.raises(BadArtifact, match=r"has no warmup\.json"):
        load(mix / "wm.world", warm_up=True)


def with_call(folder: Path, call: WarmCall) -> None:
    """Make this the only call of the mix's plan."""
    content = formatted(WarmUp((call,), 1, ()))
    (folder / WARMUP).write_bytes(content)
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=MixManifest)
    sealed = seal_mix(replace(manifest, warmup=hashlib.sha256(content).hexdigest()))
    (folder / MANIFEST).write_bytes(formatted(sealed))


def test_a_program_that_has_the_modules_uses_all_of_its_artifacts(mix: Path) -> None:
    pipe = {name: Toy(Config(), name).eval() for name in ("world", "picture")}
    for module in pipe.values():
        randomize(module, 0, None)
    with apply(pipe, mix, {"wm.world": "world", "image.picture": "picture"}) as applied, torch.inference_mode():
        for name in ("wm.world", "image.picture"):
            for _ in range(2):
                pipe[name.partition(".")[2]](*load(mix / name).sample().values())
        assert [(one.artifacts, one.tuned, one.original) for one in applied.places] == [
            (("wm.world",), 1, 1),
            (("image.picture",), 1, 1),
        ]
    rewrite(mix, digests=dict.fromkeys(read_mix(mix).digests, "0" * 64))
    with pytest.raises(BadArtifact, match="is not the artifact that was exported"):
        apply(pipe, mix)


def test_it_is_shown_with_its_artifacts_and_calls(mix: Path) -> None:
    lines = CliRunner().invoke(app, ["inspect", str(mix)]).stdout.splitlines()
    assert lines[0] == f"mix: {read_mix(mix).mix}"
    assert "here: this host meets all requirements" in lines
    assert [line.split()[2] for line in lines if line.startswith(("wm.world ", "image.picture "))] == [
        "wm.world",
        "image.picture",
    ]
    assert "each later unit: wm.world, wm.world, image.picture" in lines
    shown = json.loads(CliRunner().invoke(app, ["inspect", str(mix), "--json"]).stdout)
    assert (shown["manifest"]["digest"], shown["unmet"]) == (read_mix(mix).digest, [])


def test_a_folder_that_was_changed_is_refused(mix: Path) -> None:
    name = next(iter(read_mix(mix).digests))
    for changes, text in (
        ({"artifacts": {"wm.world": "../other"}}, r"lists the artifact '\.\./other'"),
        ({"digests": {"../..": "0" * 64}}, "which is not a folder of the mix"),
        ({"digests": {**read_mix(mix).digests, name: "0" * 64}}, f"{name} is not the artifact that was exported"),
        ({"schema": 99}, "has the schema 99 of a mix, this version reads 3; update bakeoff"),
    ):
        before = (mix / MANIFEST).read_bytes()
        rewrite(mix, **changes)  # type: ignore[arg-type]
        with pytest.raises(BadArtifact, match=text):
            read_mix(mix)
        (mix / MANIFEST).write_bytes(before)
    (mix / MANIFEST).write_bytes(before.replace(b'"id-run"', b'"id-ruN"'))
    with pytest.raises(BadArtifact, match="was edited"):
        read_mix(mix)
    (mix / MANIFEST).write_bytes(before)
    shutil.rmtree(mix / name)
    with pytest.raises(BadArtifact, match=f"{name} is missing"):
        read_mix(mix)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"kind": "mix"}', b"[" * 100_000, b"\xff"])
def test_what_is_no_mix_is_refused_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    assert is_mix(tmp_path) == (content == b'{"kind": "mix"}')
    with pytest.raises(BadArtifact):
        read_mix(tmp_path)
