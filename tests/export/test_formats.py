"""Every artifact format that a CPU host can write: exported, opened in a new process and here, correct over frames."""

import functools
import importlib.util
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="artifacts are opened with torch")

import torch
from artifacts import EXAMPLES, WARM, called_from_two_threads, check, copy, exported, manifest_of
from toys import LIBRARY_WARNINGS
from typer.testing import CliRunner

from bakeoff.artifact.export import ExportResult
from bakeoff.backends import backend_names, resolve_backend
from bakeoff.cli import app
from bakeoff.export import Artifact, load
from bakeoff.export.sample import Reader
from bakeoff.models import resolve_component
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.memory import weights_bytes
from bakeoff.report.pages.artifact import inspected
from bakeoff.report.render import terminal
from bakeoff.variant import parse_variant

pytestmark = LIBRARY_WARNINGS
ROOT = Path(__file__).resolve().parents[2]
BROUGHT = ROOT / "tests" / "support" / "brought_models.py"
WINDOW = "wm:tiny-decoded.step4/torch.export/fp32@cpu"
"""A world model, whose stream carries a window of frames, with latents for the decoders."""
BLOCKS = "matrix-vae:tiny.steady3/torch.export/fp32@cpu"
"""A video decoder of blocks of three latent frames, whose stream opens with two programs."""
STATE = "toy:tiny.stream/torch.export/bf16@cpu"
PICTURE = "toy:tiny.picture/torch.export/fp32@cpu"
MODELS = "wm:tiny.step4/onnxruntime/fp32@cpu"
"""Three ONNX models of one world model."""
DECODERS = ("image:tiny.decode/onnxruntime/fp32@cpu", "audio:tiny.decode/onnxruntime/fp32@cpu")
HALF = "toy:tiny.picture/openvino/bf16@cpu"
VARIANTS = (WINDOW, BLOCKS, STATE, PICTURE, MODELS, *DECODERS, HALF)
"""Each format, and each component that a CPU host exports, at least once."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ExportResult]:
    """Export a variant, once for all tests."""
    folder = tmp_path_factory.mktemp("made")

    @functools.cache
    def export_once(variant: str) -> ExportResult:
        for use in parse_variant(variant).backends:
            backend = resolve_backend(use.name)
            if gap := backend.unavailable(backend.options(), "cpu"):
                pytest.skip(gap)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BAKEOFF_CACHE", str(folder / "cache"))
            patch.setenv("BAKEOFF_LOCKS", str(folder / "locks"))
            return exported(variant, folder / parse_variant(variant).slug / "artifact", folder / "runs")

    return export_once


@pytest.fixture(scope="module")
def opened(made: Callable[[str], ExportResult]) -> Artifact:
    return load(made(WINDOW).folder)


@pytest.mark.parametrize("variant", VARIANTS)
def test_computes_what_eager_does(variant: str, made: Callable[[str], ExportResult]) -> None:
    check(made(variant))


def test_every_backend_with_an_artifact_format_is_tested() -> None:
    names = {name for name in backend_names() if resolve_backend(name).artifact is not None}
    tested = {parse_variant(variant).backends[-1].name for variant in VARIANTS}
    elsewhere = {"aoti": "test_packages.py", "tensorrt-rtx": "test_rtx_artifacts.py", "tensorrt-aot": "a GPU's tests"}
    assert names == {*tested, *elsewhere}


class TestSample:
    @pytest.mark.parametrize(("model", "takes"), [(STATE, {"bfloat16"}), ("", {"int64", "bool"})])
    def test_the_lines_of_the_page_call_any_artifact(
        self,
        model: str,
        takes: set[str],
        made: Callable[[str], ExportResult],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.chdir(tmp_path)
        if model:
            copy(made(model).folder, Path("artifacts/toy"))
        else:
            options = ("--backend", "torch.export", "--dtype", "bf16", "--to", "artifacts/toy", "--threads", "1")
            assert CliRunner().invoke(app, ["export", f"{BROUGHT}:language", *options]).exit_code == 0
        manifest = manifest_of(tmp_path / "artifacts" / "toy")
        assert {port.dtype for port in manifest.programs[0].inputs} == takes
        page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
        capsys.readouterr()
        exec(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0], {})
        printed = capsys.readouterr().out
        for port in manifest.programs[0].outputs:
            assert f"'{port.name}': (torch.{port.dtype}, torch.Size({list(port.shape)}))" in printed

    def test_each_is_its_caller_s_own(self, opened: Artifact) -> None:
        first = opened.sample()
        wanted = {name: tensor.clone() for name, tensor in first.items()}
        for tensor in first.values():
            tensor.zero_()
        again = opened.sample()
        assert list(again) == [port.name for port in opened.program(opened.manifest.main).about.inputs]
        assert all(torch.equal(tensor, wanted[name]) for name, tensor in again.items())


class TestCalls:
    @pytest.mark.parametrize(("variant", "code"), [(PICTURE, ""), (DECODERS[0], ""), (HALF, "other-thread")])
    def test_the_thread_of_the_first_call_owns_what_no_lock_protects(
        self, variant: str, code: str, made: Callable[[str], ExportResult]
    ) -> None:
        assert called_from_two_threads(made(variant).folder) == code

    def test_what_is_pickled_is_loaded_again(self, made: Callable[[str], ExportResult]) -> None:
        opened = load(made(PICTURE).folder, threads=1)
        again = pickle.loads(pickle.dumps(opened))
        assert (again.folder, again.threads, again.manifest) == (opened.folder, 1, opened.manifest)
        assert again.program(again.manifest.main) is not opened.program(opened.manifest.main)
        assert torch.equal(again(**again.sample())["image"], opened(**opened.sample())["image"])

    def test_what_is_not_contiguous_is_made_so(self, opened: Artifact) -> None:
        inputs = opened.sample()
        turned = inputs["x"].transpose(-1, -2).contiguous().transpose(-1, -2)
        assert not turned.is_contiguous()
        assert torch.equal(opened(**inputs)["video"], opened(**{**inputs, "x": turned})["video"])

    def test_inputs_without_names_are_refused(self, opened: Artifact) -> None:
        inputs = opened.sample()
        for call in (opened, opened.program(opened.manifest.main)):
            with pytest.raises(BakeoffError, match=r"by name and got 1 without; give x, audio, t, mouse") as refused:
                call(inputs.pop("x"), **inputs)
            assert refused.value.code == "bad-input"
            inputs = opened.sample()


@pytest.fixture(scope="module")
def blocks(made: Callable[[str], ExportResult]) -> Artifact:
    return load(made(BLOCKS).folder)


class TestOpening:
    def test_the_order_of_calls_is_printed(self, blocks: Artifact) -> None:
        assert [one.name for one in blocks.manifest.programs] == ["steady3", "prime", "steady2"]
        lines = terminal.render(inspected(blocks.manifest, ())).splitlines()
        assert "calls: first prime, steady2, then repeatedly steady3; 32 inputs of prime start as zeros" in lines

    def test_each_call_takes_the_state_of_the_call_before(self, blocks: Artifact) -> None:
        latents = torch.randn(1, 9, 16, 4, 6, generator=torch.Generator().manual_seed(4))
        steps = (("prime", 0, 1), ("steady2", 1, 3), ("steady3", 3, 6), ("steady3", 6, 9))
        state = {port.name: torch.zeros(port.shape) for port in blocks.program("prime").about.inputs[1:]}
        stream = blocks.stream()
        for name, begin, end in steps:
            z = latents[:, begin:end]
            wanted = blocks.program(name)(z=z, **state)
            found = stream.begin(z=z) if name == "prime" else stream.call(name, z=z)
            assert torch.equal(found["video"], wanted["video"]), name
            state = {port: tensor for port, tensor in wanted.items() if port != "video"}
        assert found["video"].shape == (1, 12, 3, 32, 48)
        assert {name for name, _ in stream.state} == {"steady3"}, "the opening's state is released"

    def test_another_order_is_refused(self, blocks: Artifact) -> None:
        stream = blocks.stream()
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

    def test_begins_with_zeros_where_the_contract_says_so(self, made: Callable[[str], ExportResult]) -> None:
        artifact = load(made(STATE).folder)
        stream = artifact.stream()
        assert stream.begin() == {}
        assert not stream.state["stream", "cache.00"].any()
        outputs = stream.call("stream", z=artifact.sample()["z"])
        assert stream.state["stream", "cache.00"] is outputs["cache.00"]

    def test_what_carries_nothing_is_no_stream(self, made: Callable[[str], ExportResult]) -> None:
        with pytest.raises(BakeoffError) as refused:
            load(made(PICTURE).folder).stream()
        assert refused.value.code == "unsupported"


def test_programs_share_weights_that_are_the_same(made: Callable[[str], ExportResult]) -> None:
    """They are stored in the folder once."""
    weights = weights_bytes(resolve_component("wm").preset("tiny"), "fp32")
    assert weights < made(MODELS).manifest.files["weights.data"].bytes < 1.5 * weights


def test_onnx_runtime_alone_follows_the_frames(made: Callable[[str], ExportResult], tmp_path: Path) -> None:
    """The example checks hashes itself, carries the state, and must not have imported torch."""
    copy(made(MODELS).folder, tmp_path / "artifact")
    command = [sys.executable, "-P", str(EXAMPLES / "onnx_only.py"), str(tmp_path / "artifact")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "10 frames, largest relative error" in ran.stdout
    assert WARM.findall(ran.stdout) == ["20"] * 3
    assert re.findall(r"^(\w+) +first call", ran.stdout, re.MULTILINE) == ["context4", "step4", "append4"]
    weights = tmp_path / "artifact" / "weights.data"
    weights.write_bytes(bytes(weights.stat().st_size))
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("weights.data ")


def test_a_player_s_frames_are_followed_and_drawn(made: Callable[[str], ExportResult], tmp_path: Path) -> None:
    """World model, picture and sound as artifacts, through the Python example."""
    parts = []
    for option, variant in zip(("--wm", "--image", "--audio"), (WINDOW, *DECODERS), strict=True):
        parts += [option, str(made(variant).folder)]
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


def test_pickled_weights_are_not_written(tmp_path: Path) -> None:
    if importlib.util.find_spec("torchao") is None:
        pytest.skip("torchao is not installed")
    with pytest.raises(BakeoffError, match=r"int8\+aoti"):
        exported("toy:tiny.world/int8[least=0]+torch.export/fp32@cpu", tmp_path / "artifact", tmp_path / "runs")
    assert not (tmp_path / "artifact").exists()


def test_a_wrong_artifact_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend writes another program than it was given; the first verification finds it out."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "support" / "lying_writer"), prepend=os.pathsep)
    with pytest.raises(BakeoffError) as refused:
        exported("toy:tiny.world/torch.export/fp32@cpu", tmp_path / "artifact", tmp_path / "runs")
    assert refused.value.code == "wrong-output"
    assert set(os.listdir(tmp_path)) <= {"runs", "cache", "locks"}


def test_an_export_is_replaced_only_when_that_is_asked_for(made: Callable[[str], ExportResult], tmp_path: Path) -> None:
    folder = copy(made(PICTURE).folder, tmp_path / "artifact")
    before = manifest_of(folder)
    with pytest.raises(BakeoffError) as refused:
        exported(PICTURE, folder, tmp_path / "runs")
    assert refused.value.code == "target-exists"
    assert manifest_of(folder) == before
    exported(PICTURE, folder, tmp_path / "runs", force=True)
    assert manifest_of(folder).created > before.created
