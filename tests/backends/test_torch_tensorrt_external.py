"""Submodules that PyTorch runs between TensorRT's engines, with a fake of torch_tensorrt."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch_tensorrt converts torch's graphs")

import torch
from fake_torch_tensorrt import Fake, installed
from torch import Tensor, nn
from toys import LIBRARY_WARNINGS, build_toy

from bakeoff.backends.backend import Unsupported
from bakeoff.backends.format import BadArtifact, Opening, WriteRequest
from bakeoff.backends.torch_tensorrt import ahead_of_time, external, settings
from bakeoff.backends.torch_tensorrt.settings import check_outside
from bakeoff.worker.failures import StageError

pytestmark = LIBRARY_WARNINGS
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SIGNATURES: dict[str, dict[str, list[str]]] = json.loads((GOLDEN / "torch_tensorrt.json").read_text(encoding="utf-8"))
BOTH = ("tensorrt", "tensorrt-aot")


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Fake]:
    monkeypatch.chdir(tmp_path)  # the library writes a report into the working folder
    torch._dynamo.reset()
    monkeypatch.setattr(settings, "version", lambda _name: "2.13.0")
    with installed(Fake("2.13.0", SIGNATURES["2.13.0"], "")) as library:
        yield library


def refused(text: str, folder: Path) -> str:
    with pytest.raises(StageError) as failed:
        build_toy(text, folder)
    assert failed.value.status == "unsupported"
    assert isinstance(failed.value.error, Unsupported)
    return str(failed.value.error)


class TestExternal:
    @pytest.mark.usefixtures("one")
    @pytest.mark.parametrize("name", BOTH)
    def test_a_submodule_is_one_operator_between_engines(self, name: str, tmp_path: Path) -> None:
        toy = build_toy(f"picture/{name}[external=picture.0+picture.1]/fp32", tmp_path)
        assert toy.error() < 1e-6
        proof = toy.proof
        assert proof.fell_back == ""
        assert (proof.graphs, proof.graph_breaks) == (1, 0)
        names = [name for name in proof.operators_outside if name.startswith("bakeoff.external_picture_")]
        assert len(names) == 2
        assert not any("conv" in name for name in {**proof.operators_inside, **proof.operators_outside})

    def test_one_engine_of_a_hybrid_is_not_the_program(self, one: Fake, tmp_path: Path) -> None:
        """A raw engine without the operators around it would compute something else."""
        build_toy("picture/tensorrt-aot[external=picture.0]/fp32", tmp_path)
        assert one.asked
        assert not list((tmp_path / "cache").glob("*.engine"))
        build_toy("picture/tensorrt-aot/fp32", tmp_path)
        assert list((tmp_path / "cache").glob("*.engine"))

    def test_what_is_no_external_operator_must_be_converted(self, one: Fake, tmp_path: Path) -> None:
        """`require_full_compilation` holds for all but these."""
        one.unconverted = ("torch.ops.aten.silu.default",)
        with installed(one):
            asked = "picture/tensorrt-aot[external=picture.0]/fp32"
            assert "would also run aten.silu, outside of external" in refused(asked, tmp_path)
            assert build_toy(asked.replace("[", "[require_full_compilation=false,"), tmp_path).error() < 1e-6

    def test_an_operator_that_the_graph_lacks_is_refused(self) -> None:
        """Else the row would be that without the option, under another name."""
        asked = {"external=a": "torch.ops.bakeoff.external_a.default"}
        check_outside(asked, ["aten.mean", "bakeoff.external_a"])
        with pytest.raises(Unsupported, match=r"external=a: .* has no such operator"):
            check_outside(asked, ["aten.mean.dim"])

    def test_a_saved_program_registers_its_operators(self, one: Fake, tmp_path: Path) -> None:
        first = build_toy("picture/tensorrt-aot[external=picture.0]/fp32", tmp_path)
        (operator,) = (tmp_path / "cache").glob("*.external_picture_0_*.pt2")
        again = build_toy("picture/tensorrt-aot[external=picture.0]/fp32", tmp_path)
        assert again.proof.facts["program_from_cache"] is True
        assert again.proof.facts["program_digest"] == first.proof.facts["program_digest"]
        assert len([asked for asked in one.asked if not asked.get("dryrun")]) == 1
        (program,) = (tmp_path / "cache").glob("*.ep")
        artifact = ahead_of_time.BACKEND.artifact
        assert artifact is not None
        artifact.check(program, {})
        operator.unlink()
        with pytest.raises(BadArtifact, match="not an ATen operator"):
            artifact.check(program, {})

    @pytest.mark.usefixtures("one")
    def test_an_artifact_carries_its_operators(self, tmp_path: Path) -> None:
        artifact = ahead_of_time.BACKEND.artifact
        assert artifact is not None
        options = ahead_of_time.Options(external="blocks.0+blocks.1")
        context: Any = SimpleNamespace(
            dtype="fp32", cache_dir=tmp_path / "cache", work_dir=tmp_path, sizes=(), untimed=nullcontext
        )
        folder = tmp_path / "artifact"
        folder.mkdir()
        module, inputs = Blocks().eval().requires_grad_(False), drawn()
        written = artifact.write(WriteRequest(module, inputs, options, context, folder, "step"))
        assert [name.rpartition("_")[0] for name in sorted(os.listdir(folder))] == [
            "",
            "step.external_blocks_0",
            "step.external_blocks_1",
        ]
        artifact.check(folder / written.file, {})
        run = artifact.read(folder / written.file, (), Opening("cpu", "fp32", 1, options))
        for found, wanted in zip(run(tuple(inputs.values())), module(*inputs.values()), strict=True):
            assert torch.equal(found, wanted)


class Attention(nn.Module):
    """Arguments and outputs as real blocks have them: nested caches, None, a keyword, a number."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)
        self.register_buffer("shift", torch.linspace(0, 1, 8))

    def forward(self, x: Tensor, caches: Any, mask: Any = None, scale: float = 1.0) -> Any:
        (key, value), rest = caches
        return self.mix(x) * scale + self.shift + key, {"caches": [(key + 1, value), rest], "mask": mask}


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Attention(), Attention()])
        self.unused = nn.Linear(8, 8)

    def forward(self, x: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        for block in self.blocks:
            x, more = block(torch.tanh(x), ((key, value), None), scale=2.0)
            (key, value), _ = more["caches"]
        return x, key * 1, value * 1


class Cache:
    def __init__(self, key: Tensor) -> None:
        self.key = key


class Varied(nn.Module):
    """Submodules that an operator cannot stand for."""

    def __init__(self, forward: Any) -> None:
        super().__init__()
        self.inner = nn.Module()
        self.inner.forward = forward  # type: ignore[method-assign]

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        once = self.inner(Cache(x) if self.inner.forward is takes_cache else x)
        return (once, self.inner(once[:1])) if self.inner.forward is doubles else (once,)


def takes_cache(cache: Cache) -> Tensor:
    return cache.key + 1


def doubles(x: Tensor) -> Tensor:
    return 2 * x


def adds_in_place(x: Tensor) -> Tensor:
    return x.add_(1)


def depends_on_values(x: Tensor) -> Tensor:
    return x if bool(x.sum() > 0) else -x


def drawn() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {name: torch.randn(2, 8) for name in ("x", "key", "value")}


class TestOperator:
    def test_nested_arguments_and_constants_survive_every_way_of_tracing(self) -> None:
        module, inputs = Blocks().eval(), drawn()
        changed, operators = external.externalise(module, inputs, "blocks.0+blocks.1")
        assert len(operators) == len({operator.name for operator in operators}) == 2
        with torch.no_grad():
            expected = module(*inputs.values())
            torch._dynamo.reset()
            compiled = torch.compile(changed, backend="aot_eager", fullgraph=True)
            exported = torch.export.export(changed, tuple(inputs.values()), strict=False)
            for run in (changed, compiled, exported.module()):
                for found, wanted in zip(run(*inputs.values()), expected, strict=True):
                    assert torch.equal(found, wanted)
        called = [str(node.target) for node in exported.graph.nodes if "external_" in str(node.target)]
        assert len(called) == 2
        assert not any("linear" in str(node.target) for node in exported.graph.nodes)
        assert isinstance(module.blocks[0], Attention), "the module itself is not changed"

    def test_a_fresh_process_loads_the_program_with_its_operators(self, tmp_path: Path) -> None:
        module, inputs = Blocks().eval(), drawn()
        changed, operators = external.externalise(module, inputs, "blocks.1")
        program = tmp_path / "step.ep"
        torch.export.save(torch.export.export(changed, tuple(inputs.values()), strict=False), program)
        external.save_operators(operators, program)
        torch.save((tuple(inputs.values()), [output.detach() for output in module(*inputs.values())]), tmp_path / "io")
        (file,) = external.operator_files(program).values()
        assert file.stat().st_size < 100_000
        code = (
            "import sys, torch; from pathlib import Path\n"
            "from bakeoff.backends.torch_tensorrt import external\n"
            "program = Path(sys.argv[1])\n"
            "try: torch.export.load(program); print('opened')\n"
            "except Exception: print('not without its operators')\n"
            "external.register_files(program)\n"
            "inputs, expected = torch.load(program.with_name('io'))\n"
            "found = external.strip_guards(torch.export.load(program).module())(*inputs)\n"
            "print(all(torch.equal(*both) for both in zip(found, expected, strict=True)))\n"
        )
        command = [sys.executable, "-c", code, str(program)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.stdout == "not without its operators\nTrue\n", ran.stderr

    def test_a_graph_under_another_name_is_not_registered(self, tmp_path: Path) -> None:
        _changed, operators = external.externalise(Blocks().eval(), drawn(), "blocks.1")
        program = tmp_path / "step.ep"
        external.save_operators(operators, program)
        (file,) = external.operator_files(program).values()
        shutil.move(file, tmp_path / "step.external_blocks_1_0123456789ab.pt2")
        with pytest.raises(ValueError, match="another operator"):
            external.register_files(program)
        assert not hasattr(torch.ops.bakeoff, "external_blocks_1_0123456789ab")

    @pytest.mark.parametrize(
        ("path", "reason"),
        [
            ("unused", "never called"),
            ("blocks", "never called"),
            ("blocks.0+blocks.0", "named twice"),
            ("blocks.0+blocks.0.mix", "named twice or a part"),
        ],
    )
    def test_paths_that_make_no_operator_are_refused(self, path: str, reason: str) -> None:
        with pytest.raises(Unsupported, match=reason):
            external.externalise(Blocks().eval(), drawn(), path)

    @pytest.mark.parametrize(
        ("forward", "reason"),
        [
            (takes_cache, "takes a Cache"),
            (doubles, "its 2 calls differ"),
            (adds_in_place, "in place"),
            (depends_on_values, "cannot be traced"),
        ],
    )
    def test_submodules_that_are_no_operator_are_refused_by_name(self, forward: Any, reason: str) -> None:
        with pytest.raises(Unsupported, match=rf"external=inner: .*{reason}"):
            external.externalise(Varied(forward), {"x": torch.ones(2, 8)}, "inner")
