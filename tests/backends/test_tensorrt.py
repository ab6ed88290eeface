"""The TensorRT backends with a fake of torch_tensorrt that follows its source code; no real engine is built."""

import json
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch_tensorrt converts torch's graphs")

import torch
from fake_torch_tensorrt import Fake, installed
from toys import LIBRARY_WARNINGS, build_toy

from bakeoff.backends.backend import Unsupported
from bakeoff.backends.torch_tensorrt import ahead_of_time, jit, settings
from bakeoff.backends.torch_tensorrt.program import load_program
from bakeoff.backends.torch_tensorrt.proof import (
    _ENGINE_OPERATOR,
    Converted,
    PartitionLog,
    aten_name,
    prove,
)
from bakeoff.models.errors import BakeoffError
from bakeoff.worker.failures import StageError

pytestmark = LIBRARY_WARNINGS
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SIGNATURES: dict[str, dict[str, list[str]]] = json.loads((GOLDEN / "torch_tensorrt.json").read_text(encoding="utf-8"))
PARTITIONS = (GOLDEN / "torch_tensorrt_partitions.txt").read_text(encoding="utf-8")
BOTH = ("tensorrt", "tensorrt-aot")


@pytest.fixture(autouse=True)
def _work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> None:
    """Dynamo compiles the code of one class eight times at most."""
    torch._dynamo.reset()


@pytest.fixture(params=list(SIGNATURES))
def fake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.setattr(settings, "version", lambda _name: request.param)
    with installed(Fake(request.param, SIGNATURES[request.param], "")) as library:
        yield library


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.setattr(settings, "version", lambda _name: "2.13.0")
    with installed(Fake("2.13.0", SIGNATURES["2.13.0"], PARTITIONS)) as library:
        yield library


def refused(text: str, folder: Path) -> BakeoffError:
    with pytest.raises(StageError) as failed:
        build_toy(text, folder)
    assert isinstance(failed.value.error, BakeoffError)
    return failed.value.error


class TestSettings:
    def every_option(self, backend: Any) -> str:
        """Each boolean option set and the others as they are, but for captures, which are no settings."""
        booleans = [entry.name for entry in fields(backend.Options) if isinstance(entry.default, bool)]
        return ",".join(name for name in booleans if name not in ("cudagraphs", "graph"))

    @pytest.mark.parametrize("name", BOTH)
    def test_each_version_gets_only_what_it_knows(self, fake: Fake, name: str, tmp_path: Path) -> None:
        backend = jit if name == "tensorrt" else ahead_of_time
        build_toy(f"world/{name}[{self.every_option(backend)}]/fp32", tmp_path)
        (asked,) = fake.asked
        where = "settings" if name == "tensorrt" else "compile"
        assert set(asked) - {"arg_inputs"} <= fake.known(where)
        assert "enabled_precisions" not in asked
        assert asked["pass_through_build_failures"] is True
        assert asked["attn_bias_is_causal"] is False
        assert ("use_explicit_typing" in asked) == (fake.version < "2.13")
        assert asked.get("decompose_attention", False) == (fake.version < "2.13")

    def test_a_setting_that_a_version_lacks_is_no_silent_default(self, one: Fake, tmp_path: Path) -> None:
        one.signatures = {**one.signatures, "settings": ["disable_tf32"]}
        with installed(one):
            error = refused("world/tensorrt/fp32", tmp_path)
        assert isinstance(error, Unsupported)
        assert "2.13.0" in str(error)
        assert "min_block_size, optimization_level" in str(error)

    @pytest.mark.parametrize(("dtype", "disabled"), [("fp32", True), ("tf32", False), ("bf16", True)])
    def test_tf32_is_a_dtype_of_its_own(self, dtype: str, disabled: bool, tmp_path: Path) -> None:
        context: Any = SimpleNamespace(dtype=dtype, cache_dir=tmp_path)
        known = SIGNATURES["2.13.0"]["settings"]
        assert settings.settings({}, known, context)["disable_tf32"] is disabled


class TestEngines:
    @pytest.mark.parametrize("name", BOTH)
    def test_the_engine_runs_and_is_proved(self, one: Fake, name: str, tmp_path: Path) -> None:
        one.partitions = ""
        toy = build_toy(f"world/{name}/fp32", tmp_path)
        before = len(one.ran)
        assert toy.error() < 1e-6
        assert len(one.ran) > before
        proof = toy.proof
        assert (proof.fell_back, proof.graphs, proof.graph_breaks, proof.operators_outside) == ("", 1, 0, {})
        assert proof.facts["engines"] == 1
        assert any("attention" in operator for operator in proof.operators_inside)
        assert proof.graph_hash
        assert (toy.built.cost.untimed_s > 0) is (name == "tensorrt-aot"), "only its cache has a key of the weights"

    def test_no_engine_is_falling_back(self, one: Fake, tmp_path: Path) -> None:
        one.lacks = ("attention",)
        proof = build_toy("world/tensorrt/fp32", tmp_path).proof
        assert proof.fell_back.startswith("PyTorch")
        assert any("attention" in operator for operator in proof.operators_outside)

    def test_a_failed_build_is_never_pytorch_in_silence(self, one: Fake, tmp_path: Path) -> None:
        one.fails = True
        with pytest.raises(StageError, match="no tactic"):
            build_toy("world/tensorrt/fp32", tmp_path)

    @pytest.mark.parametrize("name", BOTH)
    @pytest.mark.parametrize(
        ("logged", "status"),
        [
            ("Error Code 2: OutOfMemory (Requested size was 8589934592 bytes.)", "oom"),
            ("Error Code 10: Internal Error (Could not find any implementation for node ForeignNode.)", "build_failed"),
        ],
    )
    def test_a_builder_that_returns_none_is_explained(
        self, one: Fake, name: str, logged: str, status: str, tmp_path: Path
    ) -> None:
        one.builder_log = (logged, "Error Code 2: and so on")
        with pytest.raises(StageError) as failed:
            build_toy(f"world/{name}/fp32", tmp_path)
        assert failed.value.status == status
        assert failed.value.reason == f"BuilderError: {logged} (and 1 more error)"

    def test_full_compilation_names_what_is_lacking(self, one: Fake, tmp_path: Path) -> None:
        one.lacks = ("attention",)
        error = refused("world/tensorrt-aot/fp32", tmp_path)
        assert isinstance(error, Unsupported)
        assert "aten._safe_softmax, aten.cumsum" in str(error)

    @pytest.mark.usefixtures("one")
    def test_quantised_weights_are_refused_with_the_reason(self, tmp_path: Path) -> None:
        pytest.importorskip("torchao", reason="torchao quantises")
        for name in BOTH:
            assert "modelopt" in str(refused(f"world/fp8[least=0]+{name}/bf16", tmp_path))


class TestNames:
    """Dynamo's graphs, ATen's graphs and the library's log name one operator differently."""

    @pytest.mark.parametrize(
        ("names", "aten"),
        [
            (("conv2d", "aten.conv2d.default", "torch.ops.aten.conv2d.default", "aten::conv2d"), "aten.conv2d"),
            (("add", "iadd", "add_", "aten.add.Tensor", "torch.ops.aten.add.Tensor"), "aten.add"),
            (("truediv", "aten.div.Tensor"), "aten.div"),
            (("_safe_softmax", "torch.ops.aten._safe_softmax.default"), "aten._safe_softmax"),
            (("mine.twice.default", "torch.ops.mine.twice.default", "mine::twice"), "mine.twice"),
        ],
    )
    def test_are_made_atens(self, names: tuple[str, ...], aten: str) -> None:
        assert {aten_name(name) for name in names} == {aten}

    def test_what_pytorch_runs_is_not_inside(self) -> None:
        """The names as dynamo's graph and the log of 2.13.0 give them."""
        graph = Counter({"conv2d": 3, "iadd": 1, "add": 1, "_safe_softmax": 1, "cumsum": 1})
        partitions = PARTITIONS + "\nNode: torch.ops.aten.add.Tensor, with layer location: /add\n"
        proof = prove(Converted({"_run_on_acc_0": b""}), PartitionLog(partitions), graph, "hash")
        assert proof.operators_inside == {"aten.conv2d": 3, "aten.add": 1}
        assert proof.operators_outside == {"aten._safe_softmax": 1, "aten.cumsum": 1, "aten.add": 1}


@pytest.mark.usefixtures("one")
@pytest.mark.parametrize("name", BOTH)
def test_an_engines_call_is_an_operator_that_the_profiler_sees(name: str, tmp_path: Path) -> None:
    """By its name a trace knows which kernels an engine launches."""
    toy = build_toy(f"world/{name}/fp32", tmp_path, trace=True)
    names = [kernel.name for kernel in toy.engine.trace(toy.built.calls[0]).kernels]
    assert any(found.startswith(_ENGINE_OPERATOR) for found in names)


def test_a_traced_build_is_the_same(one: Fake, tmp_path: Path) -> None:
    """So the warm build can be traced, without a third one."""
    for trace in (False, True):
        build_toy("world/tensorrt/fp32", tmp_path, trace)
    timed, traced = one.asked
    assert timed == traced
    build_toy("world/tensorrt-aot/fp32", tmp_path)
    assert build_toy("world/tensorrt-aot/fp32", tmp_path, trace=True).proof.facts["program_from_cache"] is True


class TestSaved:
    @pytest.mark.usefixtures("one")
    def test_no_guards_run_at_a_call(self, tmp_path: Path) -> None:
        """torch adds them when it loads a program; `bind` has checked the layouts."""
        toy = build_toy("world/tensorrt-aot/fp32", tmp_path)
        (saved,) = (tmp_path / "cache").glob("*.ep")
        assert "_guards_fn" not in str(load_program(settings.load_library(), saved).graph)
        assert toy.error() < 1e-6

    @pytest.mark.usefixtures("one")
    def test_an_engine_may_have_4_gib(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[Any] = []
        save = torch.export.save
        monkeypatch.setattr(torch.export, "save", lambda *given, **named: (asked.append(named), save(*given, **named)))
        build_toy("world/tensorrt-aot/fp32", tmp_path)
        assert [named["pickle_protocol"] for named in asked] == [4]

    def test_the_second_build_loads_the_first_ones(self, one: Fake, tmp_path: Path) -> None:
        first = build_toy("world/tensorrt-aot/fp32", tmp_path)
        again = build_toy("world/tensorrt-aot/fp32", tmp_path)
        assert len(one.asked) == 1
        assert again.proof.facts["program_from_cache"] is True
        assert again.proof.facts["program_digest"] == first.proof.facts["program_digest"]
        assert again.error() < 1e-6

    @pytest.mark.usefixtures("one")
    def test_nothing_that_opening_it_would_unpickle_is_saved(self, tmp_path: Path) -> None:
        build_toy("world/tensorrt-aot/fp32", tmp_path)
        (saved,) = (tmp_path / "cache").glob("*.ep")
        ahead_of_time.BACKEND.artifact.check(saved, {saved.name: saved.stat().st_size})
        with zipfile.ZipFile(saved) as archive:
            examples = [member for member in archive.infolist() if "sample_inputs" in member.filename]
        assert [member.file_size for member in examples] == [0]

    def test_the_compiled_program_is_gone_when_the_saved_one_is_loaded(self, one: Fake, tmp_path: Path) -> None:
        """Else two engines would be metered."""
        build_toy("world/tensorrt-aot/fp32", tmp_path)
        assert one.compiled_left == [False]

    @pytest.mark.usefixtures("one")
    @pytest.mark.parametrize("name", ["tensorrt", "tensorrt-aot"])
    def test_captured_engines_state_that_their_calls_copy_the_inputs(self, name: str, tmp_path: Path) -> None:
        for options, copies in (("", False), ("[cudagraphs]", True)):
            made = build_toy(f"world/{name}{options}/fp32", tmp_path / f"graphs-{copies}")
            assert (made.engine.copies_inputs(), made.engine.captures()) == (copies, False)


class TestAbsent:
    def test_a_library_that_does_not_load_is_unavailable_and_quiet(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """As 2.11 to 2.14 do without TensorRT's libraries: printing, then a bare Exception."""
        package = tmp_path / "site" / "torch_tensorrt"
        package.mkdir(parents=True)
        said = "import error when try to import _TensorRTProxyModule, got error No module named 'tensorrt'"
        (package / "__init__.py").write_text(f'print("{said}")\nraise Exception("{said}")\n', encoding="utf-8")
        monkeypatch.syspath_prepend(str(package.parent))
        monkeypatch.setattr(settings, "version", lambda _name: "2.13.0")
        error = refused("world/tensorrt/fp32", tmp_path)
        assert error.code == "missing-library"
        assert said in str(error)
        assert capsys.readouterr().out == ""
