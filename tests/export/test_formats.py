"""Every artifact format that a CPU host can write: exported, opened in a new process and here, correct over frames."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="artifacts are opened with torch")

import torch
from artifacts import copy, exported, manifest_of
from lab import Recorder
from toys import LIBRARY_WARNINGS

from bakeoff.artifact.export import Exported, export
from bakeoff.artifact.plan import plan_export
from bakeoff.backends import backend_names, resolve_backend
from bakeoff.export import Artifact, load
from bakeoff.export.manifest import MANIFEST
from bakeoff.export.sample import Reader
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.request import request_of
from bakeoff.report.pages.artifact import inspected
from bakeoff.report.render import terminal
from bakeoff.variant import parse_variant

pytestmark = LIBRARY_WARNINGS
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "deploy"
BROUGHT = ROOT / "tests" / "support" / "brought_models.py"
DTYPES = {"torch.export": "bf16", "aoti": "bf16", "onnxruntime": "fp32", "openvino": "bf16"}
CASES = {
    "toy": "toy:tiny.stream",
    "wm": "wm:tiny.step",
    "image": "image:tiny.decode",
    "audio": "audio:tiny.decode",
    "matrix-vae": "matrix-vae:tiny.steady1",
}


WARM = re.compile(r"^\w+ +first call \d+\.\d+ ms, median of (\d+) warm calls \d+\.\d+ ms$", re.MULTILINE)
"""A program's line in what the examples print; a single call would be cold."""


def variant(component: str, backend: str) -> str:
    return f"{CASES[component]}/{backend}/{DTYPES[backend]}@cpu"


def skip_without(backend: str) -> None:
    gap = resolve_backend(backend).unavailable(resolve_backend(backend).options(), "cpu")
    if gap:
        pytest.skip(gap)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAKEOFF_CACHE", str(cache))


def test_every_backend_with_an_artifact_format_is_tested() -> None:
    names = {name for name in backend_names() if resolve_backend(name).artifact is not None}
    assert names == {*DTYPES, "tensorrt-aot"}, "tensorrt-aot needs a GPU"


@pytest.mark.parametrize(
    ("component", "backend"),
    [(name, backend) for backend in DTYPES for name in CASES if backend != "aoti" or name == "toy"],
)
def test_computes_what_eager_does(component: str, backend: str, tmp_path: Path) -> None:
    """The export itself opens the artifact in a new process and compares it with the reference, over ten frames.

    AOTInductor takes half a minute of g++ for each program: one here, the world model's three below.
    """
    skip_without(backend)
    done = exported(variant(component, backend), tmp_path / "artifact", tmp_path / "runs")
    checked = {f"{one.program}/{one.output}": one for one in done.verified.checked}
    assert all(one.passed for one in checked.values())
    assert set(checked) == {f"{one.name}/{port.name}" for one in done.manifest.programs for port in one.outputs}
    assert done.verified.frames == (10 if done.manifest.stream else 1)
    if backend != "torch.export":
        assert any(one.rel_l2 for one in checked.values()), "another compiler is not exact to the bit"
    assert sorted(os.listdir(tmp_path / "artifact")) == sorted([*done.manifest.files, MANIFEST])
    assert manifest_of(tmp_path / "artifact") == done.manifest
    if component == "matrix-vae":
        assert [one.name for one in done.manifest.programs] == ["steady1", "prime"], "a pair is one artifact"
        assert done.manifest.stream is not None
        assert done.manifest.stream.opening == ("prime",)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("small")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAKEOFF_CACHE", str(folder / "cache"))
        patch.setenv("BAKEOFF_LOCKS", str(folder / "locks"))
        return exported("wm:tiny.step4/torch.export/fp32@cpu", folder / "artifact", folder / "runs")


@pytest.fixture
def opened(small: Exported) -> Artifact:
    return load(small.folder)


class TestSample:
    @pytest.mark.parametrize(
        ("model", "dtype", "takes"),
        [
            (("toy", "--workload", "world", "--device", "cpu"), "fp32", {"float32"}),
            (("toy", "--workload", "world", "--device", "cpu"), "bf16", {"bfloat16", "float32"}),
            ((f"{BROUGHT}:language",), "bf16", {"int64", "bool"}),
        ],
    )
    def test_the_lines_of_the_page_call_any_artifact(
        self, model: tuple[str, ...], dtype: str, takes: set[str], tmp_path: Path
    ) -> None:
        options = ("--backend", "torch.export", "--dtype", dtype, "--to", "artifacts/toy", "--threads", "1")
        command = [sys.executable, "-m", "bakeoff", "export", *model, *options]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        manifest = manifest_of(tmp_path / "artifacts" / "toy")
        assert {port.dtype for port in manifest.programs[0].inputs} == takes
        page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
        lines = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0]
        ran = subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        for port in manifest.programs[0].outputs:
            assert f"'{port.name}': (torch.{port.dtype}, torch.Size({list(port.shape)}))" in ran.stdout

    def test_each_is_its_caller_s_own(self, opened: Artifact) -> None:
        first = opened.sample()
        wanted = {name: tensor.clone() for name, tensor in first.items()}
        for tensor in first.values():
            tensor.zero_()
        again = opened.sample()
        assert list(again) == [port.name for port in opened.program(opened.manifest.main).about.inputs]
        assert all(torch.equal(tensor, wanted[name]) for name, tensor in again.items())


class TestCalls:
    def test_named_tensors_in_and_out(self, opened: Artifact) -> None:
        outputs = opened(**opened.sample())
        assert list(outputs) == ["video", "audio"]
        assert outputs["video"].dtype == torch.float32

    def test_the_order_of_names_does_not_matter(self, opened: Artifact) -> None:
        inputs = opened.sample()
        turned = dict(reversed(inputs.items()))
        assert torch.equal(opened(**inputs)["video"], opened(**turned)["video"])

    def test_what_is_not_contiguous_is_made_so(self, opened: Artifact) -> None:
        inputs = opened.sample()
        turned = inputs["x"].transpose(-1, -2).contiguous().transpose(-1, -2)
        assert not turned.is_contiguous()
        assert torch.equal(opened(**inputs)["video"], opened(**{**inputs, "x": turned})["video"])

    def test_a_missing_input_is_named(self, opened: Artifact) -> None:
        inputs = opened.sample()
        del inputs["mouse"]
        with pytest.raises(BakeoffError) as refused:
            opened(**inputs)
        assert refused.value.code == "bad-input"
        assert "lack mouse" in str(refused.value)
        assert "x, audio, t, mouse, btn, cache_k.0" in str(refused.value)

    def test_inputs_without_names_are_refused(self, opened: Artifact) -> None:
        inputs = opened.sample()
        for call in (opened, opened.program(opened.manifest.main)):
            with pytest.raises(BakeoffError, match=r"by name and got 1 without; give x, audio, t, mouse") as refused:
                call(inputs.pop("x"), **inputs)
            assert refused.value.code == "bad-input"
            inputs = opened.sample()

    def test_an_unknown_input_is_named(self, opened: Artifact) -> None:
        with pytest.raises(BakeoffError) as refused:
            opened(**opened.sample(), keyboard=torch.zeros(1))
        assert refused.value.code == "bad-input"
        assert "keyboard" in str(refused.value)

    @pytest.mark.parametrize(
        ("wrong", "found", "advice"),
        [
            (lambda x: x[..., :-1], "float32", "give a tensor of that shape"),
            (lambda x: x.double(), "float64", "convert it"),
            (lambda x: x.to("meta"), "on meta", "convert it"),
            (lambda x: x.flatten(), "float32", "give a tensor of that shape"),
        ],
    )
    def test_a_wrong_tensor_is_refused(self, opened: Artifact, wrong: object, found: str, advice: str) -> None:
        inputs = opened.sample()
        inputs["x"] = wrong(inputs["x"])  # type: ignore[operator]
        with pytest.raises(BakeoffError) as refused:
            opened(**inputs)
        assert refused.value.code == "bad-input"
        assert "x as float32" in str(refused.value)
        assert found in str(refused.value).partition(" on cpu ")[2]
        assert str(refused.value).endswith(advice)

    def test_an_unknown_program_is_named(self, opened: Artifact) -> None:
        with pytest.raises(BakeoffError) as refused:
            opened.program("decode")
        assert refused.value.code == "unknown-name"
        assert "step4, context4, append4" in str(refused.value)


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A video decoder of blocks of three latent frames, whose stream opens with two programs."""
    folder = tmp_path_factory.mktemp("blocks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAKEOFF_CACHE", str(folder / "cache"))
        patch.setenv("BAKEOFF_LOCKS", str(folder / "locks"))
        return exported("matrix-vae:tiny.steady3/torch.export/fp32@cpu", folder / "artifact", folder / "runs")


class TestOpening:
    def test_the_artifact_holds_and_verifies_all_its_programs(self, blocks: Exported) -> None:
        assert [one.name for one in blocks.manifest.programs] == ["steady3", "prime", "steady2"]
        checked = {f"{one.program}/{one.output}" for one in blocks.verified.checked}
        assert checked == {f"{one.name}/{port.name}" for one in blocks.manifest.programs for port in one.outputs}
        assert blocks.verified.frames == 10

    def test_the_order_of_calls_is_printed(self, blocks: Exported) -> None:
        lines = terminal.render(inspected(blocks.manifest, ())).splitlines()
        assert "calls: first prime, steady2, then repeatedly steady3; 32 inputs of prime start as zeros" in lines

    def test_each_call_takes_the_state_of_the_call_before(self, blocks: Exported) -> None:
        artifact = load(blocks.folder)
        latents = torch.randn(1, 9, 16, 4, 6, generator=torch.Generator().manual_seed(4))
        steps = (("prime", 0, 1), ("steady2", 1, 3), ("steady3", 3, 6), ("steady3", 6, 9))
        state = {port.name: torch.zeros(port.shape) for port in artifact.program("prime").about.inputs[1:]}
        stream = artifact.stream()
        for name, begin, end in steps:
            z = latents[:, begin:end]
            wanted = artifact.program(name)(z=z, **state)
            found = stream.begin(z=z) if name == "prime" else stream.call(name, z=z)
            assert torch.equal(found["video"], wanted["video"]), name
            state = {port: tensor for port, tensor in wanted.items() if port != "video"}
        assert found["video"].shape == (1, 12, 3, 32, 48)
        assert {name for name, _ in stream.state} == {"steady3"}, "the opening's state is released"

    def test_another_order_is_refused(self, blocks: Exported) -> None:
        stream = load(blocks.folder).stream()
        stream.begin(z=torch.zeros(1, 1, 16, 4, 6))
        with pytest.raises(
            BakeoffError, match=r"prime, steady2, and then steady3; it got steady3 .*steady2"
        ) as refused:
            stream.call("steady3", z=torch.zeros(1, 3, 16, 4, 6))
        assert refused.value.code == "bad-input"
        for call in (stream.begin, lambda z: stream.call("steady2", z)):
            with pytest.raises(BakeoffError, match="by name and got 1 without; give "):
                call(torch.zeros(1, 2, 16, 4, 6))
        stream.call("steady2", z=torch.zeros(1, 2, 16, 4, 6))
        with pytest.raises(BakeoffError, match=r"steady2 lack cache\.00"):
            stream.call("steady2", z=torch.zeros(1, 2, 16, 4, 6))
        stream.call("steady3", z=torch.zeros(1, 3, 16, 4, 6))


class TestStream:
    def test_opens_and_goes_on(self, opened: Artifact) -> None:
        """The window after an append: the oldest frame is gone, the new one is behind."""
        reader = Reader(opened.folder, opened.manifest)
        stream = opened.stream()
        stream.begin(**reader.inputs(0, "context4", "cpu"))
        before = stream.state["step4", "cache_k.0"]
        frame = {name: tensor for name, tensor in opened.sample().items() if not name.startswith("cache_")}
        stream.call("step4", **frame)
        assert torch.equal(stream.state["step4", "cache_k.0"], before), "a denoising step leaves the window alone"
        made = stream.call("append4", **frame)["new_k.0"]
        after = stream.state["step4", "cache_k.0"]
        count = made.shape[2]
        assert torch.equal(after[:, :, :-count], before[:, :, count:])
        assert torch.equal(after[:, :, -count:], made)
        assert stream.state["append4", "cache_k.0"] is after, "both programs read one window"

    def test_begins_with_zeros_where_the_contract_says_so(self, tmp_path: Path) -> None:
        exported("toy:tiny.stream/torch.export/fp32@cpu", tmp_path / "artifact", tmp_path / "runs")
        artifact = load(tmp_path / "artifact")
        stream = artifact.stream()
        assert stream.begin() == {}
        assert not stream.state["stream", "cache.00"].any()
        outputs = stream.call("stream", z=artifact.sample()["z"])
        assert stream.state["stream", "cache.00"] is outputs["cache.00"]

    def test_what_carries_nothing_is_no_stream(self, tmp_path: Path) -> None:
        exported("toy:tiny.picture/torch.export/fp32@cpu", tmp_path / "artifact", tmp_path / "runs")
        with pytest.raises(BakeoffError) as refused:
            load(tmp_path / "artifact").stream()
        assert refused.value.code == "unsupported"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Three ONNX models of one world model."""
    skip_without("onnxruntime")
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAKEOFF_CACHE", str(folder / "cache"))
        patch.setenv("BAKEOFF_LOCKS", str(folder / "locks"))
        return exported("wm:tiny.step/onnxruntime/fp32@cpu", folder / "artifact", folder / "runs")


def test_programs_share_weights_that_are_the_same(models: Exported, tmp_path: Path) -> None:
    """They are stored in the folder once."""
    single = exported("wm:tiny.single/onnxruntime/fp32@cpu", tmp_path / "single", tmp_path / "runs")
    assert models.manifest.files["weights.data"].bytes < 1.5 * single.manifest.files["weights.data"].bytes


def test_onnx_runtime_alone_follows_the_frames(models: Exported, tmp_path: Path) -> None:
    """The example checks hashes itself, carries the state, and must not have imported torch."""
    copy(models.folder, tmp_path / "artifact")
    command = [sys.executable, "-P", str(EXAMPLES / "onnx_only.py"), str(tmp_path / "artifact")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "10 frames, largest relative error" in ran.stdout
    assert WARM.findall(ran.stdout) == ["20"] * 3
    assert re.findall(r"^(\w+) +first call", ran.stdout, re.MULTILINE) == ["context", "step", "append"]
    weights = tmp_path / "artifact" / "weights.data"
    weights.write_bytes(bytes(weights.stat().st_size))
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("weights.data ")


def test_a_player_s_frames_are_followed_and_drawn(tmp_path: Path) -> None:
    """World model, picture and sound as artifacts, through the Python example."""
    for name, component in (("wm", "wm"), ("image", "fitting:IMAGE"), ("audio", "fitting:AUDIO")):
        request = request_of(parse_variant(f"{CASES[name]}/torch.export/fp32@cpu"))
        request = replace(request, component=component, threads=1, ceilings=False)
        export(plan_export(request), tmp_path / name, False, tmp_path / "runs", "a test", Recorder())
    parts = [text for name in ("wm", "image", "audio") for text in (f"--{name}", str(tmp_path / name))]
    command = [sys.executable, "-P", str(EXAMPLES / "rollout.py"), *parts, "--frames", "3", "--steps", "2"]
    ran = subprocess.run(
        [*command, "--plot", str(tmp_path / "frames.png")], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"^opening +first \S+ ms$", ran.stdout, re.MULTILINE)
    for part in ("denoise", "append", "picture", "sound", "frame"):
        found = re.search(rf"^{part} +first (\S+) ms, median of 2 warm ones (\S+) ms", ran.stdout, re.MULTILINE)
        assert found is not None, ran.stdout
        assert min(map(float, found.groups())) > 0
    assert (tmp_path / "frames.png").read_bytes().startswith(b"\x89PNG")


def test_weights_apart_are_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AOTInductor stores weights of 1 GB or more in a separate file; here weights of one byte or more."""
    skip_without("aoti")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support" / "small_apart"), prepend=os.pathsep)
    done = exported("wm:tiny.step/aoti/fp32@cpu", tmp_path / "artifact", tmp_path / "runs")
    assert all(one.constants[-1] == "step.constants.safetensors" for one in done.manifest.programs)
    sizes = [file.bytes for name, file in done.manifest.files.items() if name.endswith(".constants.safetensors")]
    assert sum(sizes) < 1.1 * max(sizes), "only a table of positions is another in each program"
    build_and_run_rollout(tmp_path)


def build_and_run_rollout(folder: Path) -> None:
    """The C++ program computes the sample's frames with a small error, without Python."""
    if shutil.which("cmake") is None:
        return
    source, build = EXAMPLES / "cpp", folder / "build"
    found = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    for command in (["cmake", "-S", str(source), "-B", str(build), found], ["cmake", "--build", str(build)]):
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout + made.stderr
    ran = subprocess.run([build / "rollout", folder / "artifact"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    said = re.search(r"10 frames, largest relative error of an output (\S+)\n$", ran.stdout)
    assert said is not None, ran.stdout
    assert WARM.findall(ran.stdout) == ["20"] * 3
    assert re.findall(r"^(\w+) +first call", ran.stdout, re.MULTILINE) == ["context", "step", "append"]
    assert float(said[1]) < 1e-4
    wrong = subprocess.run([build / "rollout", folder], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1), wrong.stderr


def test_quantised_layers_are_exported(tmp_path: Path) -> None:
    skip_without("aoti")
    if importlib.util.find_spec("torchao") is None:
        pytest.skip("torchao is not installed")
    done = exported("toy:small.world/int8[least=1]+aoti/fp32@cpu", tmp_path / "artifact", tmp_path / "runs")
    assert done.manifest.quantisation == "dynamic"


def test_pickled_weights_are_not_written(tmp_path: Path) -> None:
    if importlib.util.find_spec("torchao") is None:
        pytest.skip("torchao is not installed")
    with pytest.raises(BakeoffError, match=r"int8\+aoti"):
        exported("toy:small.world/int8[least=1]+torch.export/fp32@cpu", tmp_path / "artifact", tmp_path / "runs")
    assert not (tmp_path / "artifact").exists()


def test_what_cannot_be_deployed_says_so(tmp_path: Path) -> None:
    with pytest.raises(BakeoffError) as refused:
        exported("toy:tiny.world/inductor/fp32@cpu", tmp_path / "artifact", tmp_path / "runs")
    assert refused.value.code == "not-exportable"
    assert "aoti, torch.export" in str(refused.value)


def test_what_this_host_lacks_is_said(tmp_path: Path) -> None:
    with pytest.raises(BakeoffError) as refused:
        exported("toy:tiny.world/tensorrt-aot/fp32@cpu", tmp_path / "artifact", tmp_path / "runs")
    assert refused.value.code == "not-exportable"
    assert "tensorrt-aot" in str(refused.value)


def test_a_wrong_artifact_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend writes another program than it was given; the first verification finds it out."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support" / "lying_writer"), prepend=os.pathsep)
    with pytest.raises(BakeoffError) as refused:
        exported("toy:tiny.world/torch.export/fp32@cpu", tmp_path / "artifact", tmp_path / "runs")
    assert refused.value.code == "wrong-output"
    assert set(os.listdir(tmp_path)) <= {"runs", "cache", "locks"}


def test_an_export_is_replaced_only_when_that_is_asked_for(tmp_path: Path) -> None:
    text = "toy:tiny.picture/torch.export/fp32@cpu"
    exported(text, tmp_path / "artifact", tmp_path / "runs")
    before = manifest_of(tmp_path / "artifact")
    with pytest.raises(BakeoffError) as refused:
        exported(text, tmp_path / "artifact", tmp_path / "runs")
    assert refused.value.code == "target-exists"
    assert manifest_of(tmp_path / "artifact") == before
    exported(text, tmp_path / "artifact", tmp_path / "runs", force=True)
    assert manifest_of(tmp_path / "artifact").created > before.created


def test_a_copy_elsewhere_is_the_same_artifact(small: Exported, tmp_path: Path) -> None:
    moved = load(copy(small.folder, tmp_path / "elsewhere"))
    first, second = load(small.folder)(**moved.sample()), moved(**moved.sample())
    assert torch.equal(first["video"], second["video"])
