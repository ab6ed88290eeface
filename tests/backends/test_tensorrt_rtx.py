"""TensorRT for RTX without its plugin: what is refused, what a host lacks, engines' headers and context models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx", reason="context models are ONNX models")

import onnx
from onnx import helper
from rtx_engines import context_model, engine, node, sizes

from bakeoff.backends.backend import by_options
from bakeoff.backends.format import BadArtifact
from bakeoff.backends.tensorrt_rtx import backend as rtx
from bakeoff.backends.tensorrt_rtx.backend import BACKEND
from bakeoff.backends.tensorrt_rtx.engines import check_context, copy_context, read_engine
from bakeoff.backends.tensorrt_rtx.options import LEAST_RUNTIME, TARGETS, Options
from bakeoff.models.errors import BakeoffError
from bakeoff.models.options import options_of


class TestRules:
    @pytest.mark.parametrize(
        ("options", "device", "says"),
        [
            (Options(), "cpu", "--build-for sm89"),
            (Options(cuda_graph=True), "cpu", "--build-for sm89"),
            (Options(target="sm89"), "cuda", "@cpu"),
            (Options(target="sm120", cuda_graph=True), "cpu", "cuda_graph"),
            (Options(target="sm89"), "cpu", ""),
            (Options(), "cuda", ""),
            (Options(cuda_graph=True), "cuda", ""),
        ],
    )
    def test_a_target_is_built_on_a_cpu_and_an_engine_runs_on_a_gpu(
        self, options: Options, device: str, says: str
    ) -> None:
        found = BACKEND.unsupported(options, device, "fp16")
        assert (found is None) is (not says)
        assert says in (found or "")

    @pytest.mark.parametrize("target", TARGETS)
    def test_only_a_named_target_is_for_another_gpu(self, target: Any) -> None:
        assert by_options(BACKEND.builds_for, Options(target=target)) == target
        assert by_options(BACKEND.builds_for, Options()) == ""
        assert not by_options(BACKEND.overlaps, Options(target=target)), "its build's seconds are the result"

    def test_an_unknown_target_is_refused_with_the_known_ones(self) -> None:
        with pytest.raises(BakeoffError) as refused:
            options_of(BACKEND, {"target": "sm90"})
        assert refused.value.code == "bad-option"
        assert all(target in str(refused.value) for target in (*TARGETS, "sm90"))


class TestMissing:
    """What a host lacks, beside the packages that every backend names."""

    @pytest.fixture(autouse=True)
    def _runtime(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rtx, "_version", {"onnxruntime": "1.31.1", "onnxruntime-gpu": ""}.get)

    @pytest.fixture
    def without_compiler(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CC", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))

    def missing(self) -> str | None:
        return BACKEND.missing(Options(target="sm89"), "cpu")

    @pytest.mark.usefixtures("without_compiler")
    @pytest.mark.parametrize("driver", [True, False])
    def test_a_c_compiler_where_there_is_no_driver(self, driver: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rtx, "has_driver", lambda: driver)
        found = self.missing()
        assert (found is None) is driver
        assert driver or "gcc" in str(found)

    @pytest.mark.parametrize(
        ("cpu", "gpu", "enough"),
        [
            ("1.26.2", "", False),
            ("", "1.9.0", False),
            ("", "", False),
            ("1.27.0", "", True),
            ("1.22.0", "1.31.1", True),
        ],
    )
    def test_a_runtime_that_compiles(self, cpu: str, gpu: str, enough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rtx, "has_driver", lambda: True)
        monkeypatch.setattr(rtx, "_version", {"onnxruntime": cpu, "onnxruntime-gpu": gpu}.get)
        found = self.missing()
        assert (found is None) is enough
        assert enough or (LEAST_RUNTIME in str(found) and "rtx" in str(found))


class TestHeader:
    @pytest.mark.parametrize("target", TARGETS)
    def test_has_target_version_and_size(self, target: str, tmp_path: Path) -> None:
        (tmp_path / "0.engine").write_bytes(engine(target, 200))
        found = read_engine(tmp_path / "0.engine")
        assert (found.target, found.version, found.bytes) == (target, "1.7.1", 200)
        assert bytes.fromhex(found.header) == engine(target, 200)[:64]

    @pytest.mark.parametrize(
        ("data", "says"),
        [
            (b"", "no engine"),
            (engine()[:63], "no engine"),
            (b"ftrt" + engine()[4:], "no engine"),
            (b"\x08\x0aonnx" + bytes(100), "no engine"),
            (engine()[:-1], "has 95"),
            (engine()[:64], "96"),
            (engine() + b"\0", "has 97"),
            (engine(stated=1 << 40), str(1 << 40)),
        ],
        ids=["empty", "no header", "other magic", "foreign", "cut", "header alone", "longer", "states more"],
    )
    def test_a_damaged_file_is_refused_by_name(self, data: bytes, says: str, tmp_path: Path) -> None:
        (tmp_path / "3.engine").write_bytes(data)
        with pytest.raises(BadArtifact) as refused:
            read_engine(tmp_path / "3.engine")
        assert str(refused.value).startswith("3.engine")
        assert says in str(refused.value)


def nested(inner: Any) -> Any:
    """A node of an If whose branch holds `inner`."""
    branch = helper.make_graph([inner], "branch", [], [helper.make_tensor_value_info(inner.output[0], 1, [1])])
    return helper.make_node("If", ["x"], ["z"], then_branch=branch, else_branch=branch)


class TestContext:
    @pytest.mark.parametrize(
        ("make", "says"),
        [
            (lambda: ([node(source="QNNExecutionProvider")], None), "'QNNExecutionProvider'"),
            (lambda: ([node(source=None)], None), "for ''"),
            (lambda: ([node("../0.engine")], None), "'../0.engine'"),
            (lambda: ([node("/etc/passwd")], None), "'/etc/passwd'"),
            (lambda: ([node("other.engine")], None), "'other.engine'"),
            (lambda: ([node(b"\xff\xfe")], None), "not a file of the artifact"),
            (lambda: ([node(ep_cache_context=None)], None), "''"),
            (lambda: ([node(embed_mode=1)], None), "not a file of the artifact"),
            (lambda: ([node(embed_mode=None)], None), "not a file of the artifact"),
            (lambda: ([helper.make_node("Relu", ["x"], ["y"])], None), "no compiled engine"),
            (lambda: ([node()], engine("sm120")[:64].hex()), "another engine"),
            (lambda: ([node()], ""), "another engine"),
            (lambda: ([node(), nested(node("/etc/passwd"))], None), "'/etc/passwd'"),
            (lambda: ([node(), nested(nested(node(source="Another")))], None), "'Another'"),
        ],
        ids=[
            "foreign source", "no source", "outside", "absolute", "not listed", "not text", "no file", "embedded",
            "no mode", "no engine", "metadata of another", "no metadata", "in a branch", "in a branch of a branch",
        ],
    )  # fmt: skip
    def test_a_wrong_one_is_refused(self, make: Callable[[], Any], says: str, tmp_path: Path) -> None:
        nodes, stated = make()
        model = context_model(tmp_path, nodes, {"0.engine": engine()}, stated)
        with pytest.raises(BadArtifact) as refused:
            check_context(model, sizes(tmp_path))
        assert refused.value.code == "bad-artifact"
        assert str(refused.value).startswith("model.onnx")
        assert says in str(refused.value)

    def test_an_engine_in_a_function_is_checked(self, tmp_path: Path) -> None:
        path = context_model(tmp_path, [node()], {"0.engine": engine()})
        model = onnx.load(str(path))
        imports = [helper.make_opsetid("com.microsoft", 1)]
        model.functions.append(helper.make_function("own", "F", ["x"], ["y"], [node("/etc/passwd")], imports))
        path.write_bytes(model.SerializeToString())
        with pytest.raises(BadArtifact, match="/etc/passwd"):
            check_context(path, sizes(tmp_path))

    def test_engines_of_two_targets_are_refused_with_both(self, tmp_path: Path) -> None:
        made = {"0.engine": engine("sm89"), "1.engine": engine("sm120")}
        model = context_model(tmp_path, [node(file) for file in made], made)
        with pytest.raises(BadArtifact, match="sm120 and sm89"):
            check_context(model, sizes(tmp_path))

    def test_a_weight_outside_of_the_artifact_is_refused(self, tmp_path: Path) -> None:
        path = context_model(tmp_path, [node()], {"0.engine": engine()})
        model = onnx.load(str(path))
        weight = model.graph.initializer.add(name="w", data_type=1, dims=[1], data_location=1)
        for key, value in (("location", "/etc/passwd"), ("offset", "0"), ("length", "4")):
            weight.external_data.add(key=key, value=value)
        path.write_bytes(model.SerializeToString())
        with pytest.raises(BadArtifact, match="/etc/passwd"):
            check_context(path, sizes(tmp_path))

    def test_a_copy_names_its_own_engines(self, tmp_path: Path) -> None:
        made = {f"{number}.engine": engine("sm86", 100 + number) for number in range(2)}
        context_model(tmp_path / "made", [node(file) for file in made], made)
        target = tmp_path / "artifact"
        target.mkdir()
        assert copy_context(tmp_path / "made", target, "step") == "step.onnx"
        assert copy_context(tmp_path / "made", target, "other") == "other.onnx"
        names = {f"{name}.{number}.engine" for name in ("step", "other") for number in range(2)}
        assert set(sizes(target)) == {*names, "step.onnx", "other.onnx"}
        copied = {name: (target / f"step.{name}").read_bytes() for name in made}
        assert copied == made
        assert check_context(target / "step.onnx", sizes(target)).bytes == 100
        assert check_context(tmp_path / "made" / "model.onnx", sizes(tmp_path / "made")).target == "sm86"
