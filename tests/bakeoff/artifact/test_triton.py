"""Model repositories of Triton: each config.pbtxt is read by Triton's own message, each ONNX model by ONNX Runtime."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from records import bakeoff

from bakeoff.artifact.triton import is_repository, write_models
from bakeoff.export.manifest import Manifest, Port, Program, unseal
from bakeoff.models.errors import BakeoffError

GOLDEN = Path(__file__).parents[2] / "golden" / "manifest.json"
PORT = Port("x", "float32", (1, 16), "")


def config(model: Path) -> Any:
    """A model's configuration, by the message of `tritonclient[grpc]`, which is in no extra: it needs an older protobuf
    than the constraints pin."""
    message = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    from google.protobuf import text_format

    read = text_format.Parse((model / "config.pbtxt").read_text(encoding="utf-8"), message.ModelConfig())
    assert read.name == model.name
    assert read.max_batch_size == 0
    return read


def ports(found: Any) -> list[tuple[str, str, tuple[int, ...]]]:
    kinds = type(found[0]).DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    return [(port.name, kinds[port.data_type].name, tuple(port.dims)) for port in found]


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_an_exported_variant_is_a_model_that_onnx_runtime_opens(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    variant = "toy:tiny.world/onnxruntime/fp32@cpu"
    command = ("export", variant, "--threads", "1", "--format", "triton")
    ran = bakeoff(*command, cwd=tmp_path)
    name = "toy-tiny-world-onnxruntime-fp32"
    assert (ran.code, ran.out) == (0, f"wrote artifacts/{name}-triton/{name}\n"), ran.err
    model = tmp_path / "artifacts" / f"{name}-triton" / name
    assert files(model) == ["1/model.onnx/model.onnx", "1/model.onnx/weights.data", "config.pbtxt"]
    assert is_repository(model.parent)
    session = onnxruntime.InferenceSession(model / "1/model.onnx/model.onnx")
    ran = bakeoff(*command, cwd=tmp_path)
    assert (ran.code, ran.err.strip().endswith("[target-exists]")) == (2, True)
    assert variant in (model / "config.pbtxt").read_text()
    read = config(model)
    assert (read.backend, read.platform) == ("onnxruntime", "onnxruntime_onnx")
    for stated, opened in ((read.input, session.get_inputs()), (read.output, session.get_outputs())):
        assert ports(stated) == [(port.name, "TYPE_FP32", tuple(port.shape)) for port in opened]


def made(folder: Path, artifact: str, programs: Sequence[Program], **changes: Any) -> Manifest:
    """The manifest of an artifact of this format, with a file for each program."""
    folder.mkdir()
    for program in programs:
        (folder / program.file).write_text(program.name)
        (folder / program.file).with_suffix(".engine").write_text(f"engine of {program.name}")
    return replace(unseal(GOLDEN.read_bytes()), artifact=artifact, programs=tuple(programs), **changes)


def program(name: str = "step", **changes: Any) -> Program:
    base = Program(name, "", f"{name}.pt2", (), (PORT, replace(PORT, name="t", dtype="int64")), (PORT,), 1, {})
    return replace(base, **changes)


def test_packages_of_aotinductor_are_addressed_by_position(tmp_path: Path) -> None:
    """Of Triton 26.05 and newer: README.md of pytorch_backend, `Ordinal Base I/O Names`."""
    manifest = made(tmp_path / "made", "aoti", [program("step"), program("context")])
    assert write_models(tmp_path / "made", manifest, tmp_path / "repo", "toy") == ["toy-step", "toy-context"]
    assert (tmp_path / "repo/toy-context/1/model.pt2").read_text() == "context"
    assert is_repository(tmp_path / "repo")
    read = config(tmp_path / "repo/toy-step")
    assert (read.backend, read.platform) == ("pytorch", "torch_aoti")
    assert ports(read.input) == [("INPUT__0", "TYPE_FP32", (1, 16)), ("INPUT__1", "TYPE_INT64", (1, 16))]
    assert ports(read.output) == [("OUTPUT__0", "TYPE_FP32", (1, 16))]
    assert [group.kind for group in read.instance_group] == [read.instance_group[0].KIND_CPU]


def test_triton_reads_the_names_in_a_plan_itself(tmp_path: Path) -> None:
    manifest = made(tmp_path / "made", "tensorrt", [program(file="step.ep", facts={"raw_engine": True})], device="cuda")
    assert write_models(tmp_path / "made", manifest, tmp_path / "repo", "toy") == ["toy"]
    assert (tmp_path / "repo/toy/1/model.plan").read_text() == "engine of step"
    read = config(tmp_path / "repo/toy")
    assert (read.backend, read.platform, len(read.input)) == ("tensorrt", "tensorrt_plan", 0)
    assert [group.kind for group in read.instance_group] == [read.instance_group[0].KIND_GPU]


@pytest.mark.parametrize(
    ("artifact", "changes", "says"),
    [
        ("aoti", {"inputs": (replace(PORT, dtype="bfloat16"),)}, "step's x: its pytorch backend has no bfloat16"),
        ("aoti", {"outputs": (replace(PORT, shape=()),)}, "step's x: it takes no scalars"),
        ("aoti", {"inputs": (replace(PORT, layout="ordered", order=(1, 0)),)}, "step's x"),
        ("aoti", {"constants": ("step.safetensors",)}, "step.safetensors"),
        ("tensorrt", {"facts": {"raw_engine": False}}, "more than one TensorRT engine"),
        ("tensorrt", {"facts": {"raw_engine": True}, "inputs": (replace(PORT, dtype="float64"),)}, "float64"),
    ],
)
def test_what_triton_cannot_take_is_refused_by_name(
    tmp_path: Path, artifact: str, changes: dict[str, Any], says: str
) -> None:
    manifest = made(tmp_path / "made", artifact, [program(**changes)])
    with pytest.raises(BakeoffError) as error:
        write_models(tmp_path / "made", manifest, tmp_path / "repo", "toy")
    assert error.value.code == "not-exportable"
    assert says in str(error.value)


@pytest.mark.parametrize("backend", ["torch.export/fp32", "openvino/fp32", "aoti/bf16"])
def test_a_format_that_triton_does_not_open_is_refused_before_it_is_built(tmp_path: Path, backend: str) -> None:
    ran = bakeoff("export", f"toy:tiny.world/{backend}@cpu", "--format", "triton", cwd=tmp_path)
    assert ran.code == 2
    assert ran.err.strip().endswith("[not-exportable]")
    assert "started" not in ran.err
    assert not (tmp_path / "artifacts").exists()


def test_another_format_is_unknown(tmp_path: Path) -> None:
    ran = bakeoff("export", "toy:tiny.world/aoti/fp32@cpu", "--format", "bentoml", cwd=tmp_path)
    assert (ran.code, ran.err.strip().endswith("[bad-option]")) == (2, True)


def test_a_folder_with_other_files_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "model" / "1").mkdir(parents=True)
    assert not is_repository(tmp_path)
    (tmp_path / "model" / "config.pbtxt").touch()
    assert is_repository(tmp_path)
    (tmp_path / "notes").touch()
    assert not is_repository(tmp_path)
