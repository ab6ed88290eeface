"""Several engines in one process: each proves only its own graphs, and settings of one build do not affect the next."""

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="inductor is a part of torch")

import torch
from torch import Tensor
from toys import LIBRARY_WARNINGS, NEEDS_COMPILER, Toy, build_toy

from bakeoff import backends
from bakeoff.backends import resolve_backend, torch_compile
from bakeoff.backends.torch_internals import snapshot
from bakeoff.worker.torch_flags import Flags, apply_flags, flags, read_flags

pytestmark = [
    LIBRARY_WARNINGS,
    NEEDS_COMPILER,
]


@pytest.fixture(scope="module")
def inductor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of the tests that do not count what is found there."""
    return tmp_path_factory.mktemp("inductor")


@pytest.fixture(autouse=True)
def _alone(inductor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(inductor))


@pytest.fixture
def _nothing_cached(_alone: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))


def numbers(toy: Toy) -> dict[str, Any]:
    """What a proof counts."""
    proof = toy.proof
    facts = {name: proof.facts[name] for name in ("kernels_generated", "graph_cache_hits")}
    return {
        "graphs": (proof.fell_back, proof.graphs, proof.graph_breaks, proof.recompiles, proof.graph_hash),
        "inside": dict(proof.operators_inside),
        "outside": dict(proof.operators_outside),
        **facts,
    }


def test_two_engines_of_different_graphs_prove_their_own(tmp_path: Path) -> None:
    world = build_toy("world/inductor/fp32", tmp_path)
    before = numbers(world)
    picture = build_toy("picture/inductor/fp32", tmp_path)
    assert numbers(world) == before
    mine, theirs = numbers(world), numbers(picture)
    assert mine["graphs"][:4] == theirs["graphs"][:4] == ("", 1, 0, ())
    assert mine["graphs"][4] != theirs["graphs"][4]
    assert "scaled_dot_product_attention" in mine["inside"]
    assert "scaled_dot_product_attention" not in theirs["inside"]
    assert not any("attention" in name for name in theirs["outside"])
    assert mine["kernels_generated"] > 0
    assert theirs["kernels_generated"] > 0
    assert (world.error(), picture.error()) < (1e-5, 1e-5)


@pytest.mark.usefixtures("_nothing_cached")
def test_two_engines_of_one_graph_prove_the_same_and_no_recompilation(tmp_path: Path) -> None:
    """Dynamo calls the second a recompilation, since both share the code of their class."""
    first, second = (numbers(build_toy("world/inductor/fp32", tmp_path)) for _ in range(2))
    assert (first.pop("graph_cache_hits"), second.pop("graph_cache_hits")) == (0, 1)
    assert first == second


def test_a_compiler_that_compiles_nothing_is_found_after_one_that_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_toy("world/inductor/fp32", tmp_path)
    monkeypatch.setattr("bakeoff.backends.inductor.compile_with_inductor", lambda graph, _inputs, _settings: graph)
    assert build_toy("picture/inductor/fp32", tmp_path).proof.fell_back.startswith("the captured graph")


def test_a_module_that_dynamo_never_saw_is_found_after_one_that_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_toy("world/inductor/fp32", tmp_path)
    monkeypatch.setattr("bakeoff.backends.inductor.compile_whole", lambda module, _compiler: module)
    assert build_toy("picture/inductor/fp32", tmp_path).proof.fell_back.startswith("eager")


def test_falling_to_inductor_is_found_after_inductor_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(backends._TABLE, "falls", "selftest_backends.compiler_faults:FALLS_TO_INDUCTOR")
    assert build_toy("world/inductor/fp32", tmp_path).built.fallback is None
    assert "1 graph" in build_toy("picture/falls/fp32", tmp_path).built.fallback
    assert "1 graph" in build_toy("sound/falls/fp32", tmp_path).built.fallback
    eager = build_toy("stream/eager/fp32", tmp_path)
    assert (eager.built.fallback, eager.proof.graphs) == (None, None)


def test_only_the_engine_that_was_compiled_again_counts_and_proves_it(tmp_path: Path) -> None:
    world, sound = (build_toy(f"{name}/inductor/fp32", tmp_path) for name in ("world", "sound"))
    assert (world.engine.compilations(), sound.engine.compilations()) == (1, 1)
    before = dict(world.engine.activity())
    (z,) = sound.sets[0].values()
    with flags("fp32", 1):
        sound.engine.bind({"z": z[..., :-1].contiguous()})()
        for call in world.built.calls:
            call()
    assert (world.engine.compilations(), sound.engine.compilations()) == (1, 2)
    assert world.engine.activity() != before, "torch's counters are the whole process's"
    assert world.engine.activity() == sound.engine.activity()
    assert world.proof.recompiles == ()
    (reason,) = sound.proof.recompiles
    assert str(z.shape[-1]) in reason
    assert sound.proof.graphs == 2


def test_engines_of_other_dtypes_in_turn_are_not_compiled_again_under_their_own_flags(tmp_path: Path) -> None:
    made: list[tuple[Toy, Flags]] = []
    for dtype in ("fp32", "tf32"):
        toy = build_toy(f"world/inductor/{dtype}", tmp_path)
        with flags(dtype, 1):
            made.append((toy, read_flags()))
    before = read_flags()
    with torch.no_grad():
        for _ in range(3):
            for toy, own in made:
                apply_flags(own)
                for call in toy.built.calls:
                    call()
        counts = [toy.engine.compilations() for toy, _ in made]
        apply_flags(made[1][1])  # of tf32
        made[0][0].built.calls[0]()
    apply_flags(before)
    assert counts == [1, 1]
    assert made[0][0].engine.compilations() == 2, "without its own flags"


@pytest.mark.skipif("isolate_recompiles" not in signature(torch.compile).parameters, reason="this torch keeps eight")
def test_a_process_holds_many_engines_of_one_class() -> None:
    """Dynamo keeps eight compilations of a function, and with fullgraph=True it raises at the ninth."""
    compiled: list[int] = []

    def build(width: int) -> Callable[..., Any]:
        def compiler(graph: torch.fx.GraphModule, _inputs: list[Tensor]) -> Any:
            compiled.append(width)
            return graph.forward

        return torch_compile.compile_whole(torch.nn.Sequential(torch.nn.Linear(width, width)), compiler)

    with torch.no_grad():
        engines = {width: build(width) for width in range(1, 13)}
        for _ in range(2):
            for width, call in engines.items():
                assert call(torch.ones(1, width)).shape == (1, width)
    assert compiled == list(engines)


@pytest.mark.usefixtures("_nothing_cached")
def test_engines_of_all_compilers_in_one_process_prove_their_own_and_stay_compiled(tmp_path: Path) -> None:
    """Each is built after the others were, and none resets what an earlier one compiled."""
    texts = ("inductor/fp32", "inductor[freezing]/bf16", "aoti/fp32", "openvino/fp32", "onnxruntime/fp32")
    alone: dict[str, Any] = {}
    together: list[tuple[str, Toy]] = []
    for text in texts:
        backend = resolve_backend(text.partition("/")[0].partition("[")[0])
        if backend.unavailable(backend.options(), "cpu") is None:
            toy = build_toy(f"world/{text}", tmp_path)
            assert toy.built.fallback is None
            alone[text] = replace(toy.proof, recompiles=())
            together.append((text, toy))
    captured = snapshot().captured
    for text, toy in (*together, *reversed(together)):
        assert toy.error() < (1e-2 if text.endswith("bf16") else 1e-5)
        assert toy.proof.recompiles == ()
        assert replace(toy.proof, recompiles=()) == alone[text], "as when it was the newest"
        assert toy.engine.compilations() == (1 if text.startswith("inductor") else 0)
        assert toy.proof.graphs == 1
        assert sum("scaled_dot_product_attention" in name for name in toy.proof.operators_inside) <= 1
    assert snapshot().captured == captured
    found = dict(together)
    plain, frozen = found["inductor/fp32"].proof, found["inductor[freezing]/bf16"].proof
    assert plain.facts["kernels_generated"] > 0 < frozen.facts["kernels_generated"]
    assert (plain.facts["graph_cache_hits"], frozen.facts["graph_cache_hits"]) == (0, 0)


class TestFreezing:
    def test_constants_are_folded_and_the_setting_is_restored(self, tmp_path: Path) -> None:
        from torch._inductor import config

        frozen = build_toy("world/inductor[freezing]/fp32", tmp_path)
        assert config.freezing is False
        assert frozen.error() < 1e-5
        before = frozen.expected[0][0]
        for parameter in frozen.module.parameters():
            parameter.data.zero_()
        with flags("fp32", 1):
            assert torch.allclose(frozen.built.calls[0]()[0], before, atol=1e-5), "its weights are constants of its own"

    def test_the_next_engine_is_not_frozen(self, tmp_path: Path) -> None:
        build_toy("world/inductor[freezing]/fp32", tmp_path)
        plain = build_toy("world/inductor/fp32", tmp_path)
        for parameter in plain.module.parameters():
            parameter.data.zero_()
        with flags("fp32", 1):
            changed = plain.built.calls[0]()[0]
        assert not torch.allclose(changed, plain.expected[0][0], atol=1e-5)

    def test_the_setting_is_restored_where_the_first_call_fails(self) -> None:
        from torch._inductor import config

        def fail(*_tensors: Tensor) -> Any:
            assert config.freezing is True
            raise RuntimeError("no kernel for this operator")

        engine = torch_compile.CompiledEngine(
            fail, torch_compile.CompileLog(), lambda: None, lambda _call: None, freezing=True
        )
        with pytest.raises(RuntimeError, match="no kernel"):
            engine.bind({})()
        assert config.freezing is False
