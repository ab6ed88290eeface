"""Ports in a loop: fed and carried values are what the next call computes from, whichever way the engine takes them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="inputs are tensors")

import torch
from fake_torch_tensorrt import pinned
from shared_headers import shared_headers
from torch import Tensor, nn
from toys import LIBRARY_WARNINGS

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import BuildContext, Engine, ModuleEngine, Outputs, Proof, make_alone
from bakeoff.backends.port import Port, ReplacingPort, SwappingPort
from bakeoff.backends.torch_compile import CompiledEngine, CompileLog
from bakeoff.backends.tracing import trace_operators
from bakeoff.models.errors import BakeoffError
from bakeoff.models.options import options_of
from bakeoff.variant import parse_use
from bakeoff.worker.torch_flags import flags

pytestmark = LIBRARY_WARNINGS
NAMES = ("y", "next_state", "same")
CARRIED = {"next_state": "state", "same": "other"}
REPLACING = ("eager", "torch.export", "inductor", "inductor[freezing]", "aoti")
SWAPPING = ("onnxruntime", "openvino")
BYTES = 4 * 8 * 16
"""Of each input and output."""


class Loop(nn.Module):
    """One output that is new, one state, and one input that is returned unchanged."""

    def forward(self, x: Tensor, state: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x * 2 + state + other, state * 0.5 + x, other


class NewOutputs(nn.Module):
    """As Loop, for ONNX, whose exporter cannot name an output that is an input."""

    def forward(self, x: Tensor, state: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x * 2 + state + other, state * 0.5 + x, other.clone()


class Reused(Engine):
    """Returns the same memory at each call, as a captured graph does; `same` is the input's buffer."""

    def bind(self, inputs: Mapping[str, Tensor]):
        x, state, other = inputs.values()
        kept = [torch.empty_like(x), torch.empty_like(x)]

        def call() -> Outputs:
            y, following, same = Loop()(x, state, other)
            return kept[0].copy_(y), kept[1].copy_(following), same

        return call


def drawn(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(8, 16, generator=generator) for name in ("x", "state", "other")}


def build(text: str, folder: Path) -> Engine:
    if text == "reused":
        return Reused()
    name, options = parse_use(text)
    backend = resolve_backend(name)
    missing = backend.unavailable(backend.options(), "cpu")
    if missing:
        pytest.skip(missing)
    share = shared_headers() if name in ("inductor", "aoti") else make_alone
    context = BuildContext("", "cpu", "fp32", 1, folder, folder / "cache", lambda _seed: {}, share=share)
    assert backend.build is not None
    module = NewOutputs() if name == "onnxruntime" else Loop()
    return backend.build(module.eval(), drawn(0), options_of(backend, options or {}), context)


def check_loop(port: Port, steps: int = 5) -> tuple[list[int], list[int]]:
    """Run the loop beside a plain one; return the bytes of each feed and of each advance."""
    start = drawn(0)
    state, other = start["state"], start["other"]
    fed, advanced, kept = [], [], []
    for step in range(steps):
        x = drawn(step)["x"]
        value = x.clone()
        fed.append(port.feed({"x": value}))
        if step == 2:  # a carried input may be fed too
            other = drawn(9)["other"]
            given = other.clone()
            port.feed({"other": given})
        port.call()
        value.fill_(float("nan"))
        if step == 2:
            given.fill_(float("nan"))
        y, state = x * 2 + state + other, state * 0.5 + x
        wanted = {"y": y, "next_state": state, "same": other}
        for name, output in port.outputs.items():
            torch.testing.assert_close(output, wanted[name], msg=f"{name} in step {step}")
        kept.append((port.outputs, wanted))
        advanced.append(port.advance())
        assert port.advance() == 0, "nothing is left to carry"
    if not port.reuses_outputs:  # each call returns new memory
        for outputs, wanted in kept:
            for name, output in outputs.items():
                torch.testing.assert_close(output, wanted[name])
    return fed, advanced


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))


@pytest.mark.parametrize("text", REPLACING)
def test_what_reads_given_tensors_copies_nothing_and_is_not_compiled_again(text: str, tmp_path: Path) -> None:
    with flags("fp32", 1):
        engine = build(text, tmp_path)
        assert engine.rebinds()
        engine.bind(drawn(0))()
        compilations = engine.compilations()
        assert compilations == (1 if text.startswith("inductor") else 0)
        port = engine.port(drawn(0), NAMES, CARRIED)
        assert isinstance(port, ReplacingPort)
        fed, advanced = check_loop(port)
        assert fed == [0] * 5
        assert advanced == [0, 0, BYTES, 0, 0], "only an output that is the caller's own tensor is copied"
        check_unlike_tensors(port)
        assert engine.compilations() == compilations
        assert not engine.prove().recompiles


@pytest.mark.parametrize(
    "text",
    [
        "tensorrt",
        "tensorrt[cudagraphs]",
        "tensorrt-aot",
        "tensorrt-aot[cudagraphs]",
    ],
)
def test_tensorrt_too(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the fake, to whose captures, as to the runtime's, addresses do not matter; dynamo returns an input itself."""
    monkeypatch.setattr("bakeoff.backends.backend.find_spec", bool)
    with pinned() as fake, flags("fp32", 1):
        engine = build(text, tmp_path)
        assert engine.copies_inputs() == ("cudagraphs" in text)
        engine.bind(drawn(0))()
        compilations = engine.compilations()
        port = engine.port(drawn(0), NAMES, CARRIED)
        assert isinstance(port, ReplacingPort)
        assert check_loop(port) == ([0] * 5, [0, 0, 0 if "aot" in text else BYTES, 0, 0])
        check_unlike_tensors(port)
        assert engine.compilations() == compilations
        assert fake.engines[-1].captures == [True] * engine.copies_inputs(), "one capture, after a call without"


def check_unlike_tensors(port: Port) -> None:
    """Tensors that dynamo would compile again for: copied, or passed as another object."""
    x, state, other = drawn(20).values()
    transposed = x.t().contiguous().t()
    with torch.inference_mode():
        inference = state + 0
    for value, copied in (
        (transposed, BYTES),
        (x[:0].new_empty(8 * 16 + 1)[1:].view(8, 16).copy_(x), BYTES),
        (torch.cat((x, x))[8:], 0),
        (nn.Parameter(x.clone()), 0),
    ):
        assert port.feed({"x": value}) == copied
        assert port.feed({"state": inference}) == BYTES
        port.feed({"other": other})
        port.call()
        torch.testing.assert_close(port.outputs["y"], x * 2 + inference + other)
    port.feed({"x": x})
    port.feed({"state": x})
    port.call()
    torch.testing.assert_close(port.outputs["y"], x * 3 + other)


@pytest.mark.parametrize("text", SWAPPING)
def test_what_binds_outputs_swaps_them(text: str, tmp_path: Path) -> None:
    with flags("fp32", 1):
        engine = build(text, tmp_path)
        port = engine.port(drawn(0), NAMES, CARRIED)
        assert isinstance(port, SwappingPort)
        before = port.inputs["state"].data_ptr()
        fed, advanced = check_loop(port)
        assert (fed, advanced) == ([BYTES] * 5, [0] * 5)
        assert port.inputs["state"].data_ptr() != before, "after an odd number of steps"
        assert port.outputs["next_state"].data_ptr() == port.inputs["state"].data_ptr()
        assert engine.compilations() == 0


def test_everything_else_copies(tmp_path: Path) -> None:
    port = build("reused", tmp_path).port(drawn(0), NAMES, CARRIED)
    assert type(port) is Port
    fed, advanced = check_loop(port)
    assert (fed, advanced) == ([BYTES] * 5, [BYTES] * 5), "the unchanged input is its own buffer"


def test_outputs_in_a_pool_of_all_engines_are_copied() -> None:
    """As with the CUDA graphs that torch captures: the second engine's call overwrites what the first returned."""
    pool = torch.empty(3, 8, 16)

    def run(*tensors: Tensor) -> Outputs:
        return tuple(place.copy_(output) for place, output in zip(pool, Loop()(*tensors), strict=True))

    def engine() -> CompiledEngine:
        return CompiledEngine(run, CompileLog(), Proof, trace_operators, freezing=False, copying=True, one_pool=True)

    first, second = (engine().port(drawn(seed), NAMES, CARRIED) for seed in (0, 1))
    for port in (first, second):
        port.call()
    start = drawn(0)
    torch.testing.assert_close(first.outputs["y"], start["x"] * 2 + start["state"] + start["other"])
    assert first.advance() == 5 * BYTES
    torch.testing.assert_close(first.inputs["state"], start["state"] * 0.5 + start["x"])
    fed, advanced = check_loop(engine().port(drawn(0), NAMES, CARRIED))
    assert (fed, advanced) == ([BYTES] * 5, [5 * BYTES] * 5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here")
@pytest.mark.parametrize(
    "text",
    ["eager", "inductor", "inductor[mode=reduce-overhead]", "inductor[graph]", "cudagraph", "aoti", "aoti[graph]"],
)
def test_a_gpu_loop(text: str, tmp_path: Path) -> None:
    name, options = parse_use(text)
    backend = resolve_backend(name)
    inputs = {key: tensor.cuda() for key, tensor in drawn(0).items()}
    context = BuildContext("", "cuda", "fp32", 1, tmp_path, tmp_path / "cache", lambda _seed: {})
    assert backend.build is not None
    with flags("fp32", 1):
        engine = backend.build(NewOutputs().cuda(), inputs, options_of(backend, options or {}), context)
        ports = [engine.port(inputs, NAMES, CARRIED) for _ in range(2)]
        wanted = [dict(inputs), dict(inputs)]
        for step in range(6):
            for port, values in zip(ports, wanted, strict=True):
                values["x"] = drawn(step)["x"].cuda()
                port.feed({"x": values["x"]})
                port.call()
            for port, values in zip(ports, wanted, strict=True):
                right = NewOutputs()(*values.values())
                for found, output in zip(port.outputs.values(), right, strict=True):
                    torch.testing.assert_close(found, output)
                port.advance()
                values |= {"state": right[1], "other": right[2]}


@pytest.mark.parametrize("text", ["reused", "eager", "onnxruntime"])
def test_a_call_may_be_repeated_before_its_outputs_are_carried(text: str, tmp_path: Path) -> None:
    port = build(text, tmp_path).port(drawn(0), NAMES, CARRIED)
    for _ in range(3):
        port.call()
    port.advance()
    port.call()
    start = drawn(0)
    following = start["state"] * 0.5 + start["x"]
    torch.testing.assert_close(port.outputs["next_state"], following * 0.5 + start["x"])


@pytest.mark.parametrize("rebinding", [True, False])
def test_outputs_that_are_views_of_inputs_are_carried_right(rebinding: bool) -> None:
    """A window that is moved by one, and two states that change places."""

    def moved(window: Tensor, one: Tensor, two: Tensor) -> Outputs:
        joined = torch.cat((window, one[None]))
        return joined[1:], two, one

    engine = ModuleEngine(moved, rebinding=rebinding)
    inputs = {"window": torch.arange(6.0).view(3, 2), "one": torch.ones(2), "two": torch.full((2,), 2.0)}
    port = engine.port(inputs, ("w", "o", "t"), {"w": "window", "o": "one", "t": "two"})
    for _ in range(3):
        port.call()
        port.advance()
    assert port.inputs["window"].tolist() == [[1, 1], [2, 2], [1, 1]]
    assert (port.inputs["one"].tolist(), port.inputs["two"].tolist()) == ([2, 2], [1, 1])
    assert inputs["one"].tolist() == [1, 1], "the caller's tensors stay as they are"


@pytest.mark.parametrize("text", ["reused", "eager", "onnxruntime", "openvino"])
def test_shared_ports_read_one_state_that_the_caller_updates(text: str, tmp_path: Path) -> None:
    with flags("fp32", 1):
        engine = build(text, tmp_path)
        inputs = drawn(0)
        one, two = (engine.port(inputs, NAMES, carried, shared=True) for carried in ({}, {"next_state": "state"}))
        inputs["state"].fill_(3.0)
        for port in (one, two):
            port.call()
            torch.testing.assert_close(port.outputs["y"], inputs["x"] * 2 + 3.0 + inputs["other"])
        same = one.outputs["same"].clone()
        assert two.advance() >= BYTES
        torch.testing.assert_close(inputs["state"], 1.5 + inputs["x"], msg="the caller's tensor is the state")
        one.call()
        torch.testing.assert_close(one.outputs["next_state"], inputs["state"] * 0.5 + inputs["x"])
        if isinstance(one, ReplacingPort):
            kept = one.outputs["same"]
            inputs["other"].zero_()
            assert torch.equal(kept, same)


@pytest.mark.parametrize("text", ["onnxruntime", "openvino"])
def test_a_shared_tensor_that_would_be_copied_is_refused(text: str, tmp_path: Path) -> None:
    class Wide(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            return (x * 2,)

    backend = resolve_backend(text)
    missing = backend.unavailable(backend.options(), "cpu")
    if missing:
        pytest.skip(missing)
    context = BuildContext("", "cpu", "fp32", 1, tmp_path, tmp_path / "cache", lambda _seed: {})
    inputs = {"x": torch.randn(3, 4).t()}
    assert backend.build is not None
    engine = backend.build(Wide().eval(), inputs, backend.options(), context)
    with pytest.raises(BakeoffError, match="contiguous") as refused:
        engine.port(inputs, ("y",), shared=True)
    assert refused.value.code == "bad-input"


@pytest.mark.parametrize("rebinding", [True, False])
def test_values_that_are_fed_together_are_those_before_any_was_written(rebinding: bool) -> None:
    """Two inputs that change places, and one that stays."""
    engine = ModuleEngine(lambda x, y, z: (x * 1, y * 1, z * 1), rebinding=rebinding)
    port = engine.port({name: torch.full((2,), float(number)) for number, name in enumerate("xyz")}, ("x", "y", "z"))
    one, two = port.inputs["x"], port.inputs["y"].view(2)
    copied = port.feed({"x": two, "y": one, "z": port.inputs["z"]})
    assert copied == (0 if rebinding else one.nbytes + two.nbytes)
    port.call()
    assert [value.tolist() for value in port.outputs.values()] == [[1, 1], [0, 0], [2, 2]]
    assert port.feed({}) == 0


def test_a_value_that_needs_a_gradient_leaves_none_in_the_buffer() -> None:
    port = ModuleEngine(lambda x, y: (x + y,)).port({"x": torch.zeros(2), "y": torch.zeros(2)}, ("z",))
    assert port.feed({"x": nn.Parameter(torch.ones(2)), "y": torch.ones(2)}) == 16
    port.call()
    assert port.outputs["z"].tolist() == [2, 2]
    assert not port.outputs["z"].requires_grad


def test_a_value_that_does_not_fit_leaves_all_as_they_were() -> None:
    port = ModuleEngine(lambda x, y: (x + y,)).port({"x": torch.zeros(2), "y": torch.zeros(2)}, ("z",))
    with pytest.raises(BakeoffError):
        port.feed({"x": torch.ones(2), "y": torch.ones(3)})
    port.call()
    assert port.outputs["z"].tolist() == [0, 0]


@pytest.mark.parametrize("rebinding", [True, False])
class TestRefusals:
    def port(self, rebinding: bool, carried: dict[str, str] | None = None) -> Port:
        engine = ModuleEngine(lambda x, state: (x, state[:1]), rebinding=rebinding)
        return engine.port({"x": torch.ones(2), "state": torch.ones(2)}, ("y", "short"), carried or {})

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("z", torch.ones(2)),
            ("x", torch.ones(3)),
            ("x", torch.ones(2, 1)),
            ("x", torch.ones(2, dtype=torch.float64)),
            ("x", torch.ones(2, device="meta")),
        ],
    )
    def test_values_that_do_not_fit(self, rebinding: bool, name: str, value: Tensor) -> None:
        port = self.port(rebinding)
        with pytest.raises(BakeoffError) as refused:
            port.feed({name: value})
        assert refused.value.code == "bad-input"
        assert name in str(refused.value)
        port.call()
        assert port.outputs["y"].tolist() == [1, 1], "the port still works"

    @pytest.mark.parametrize("carried", [{"z": "x"}, {"y": "z"}, {"y": "x", "short": "x"}])
    def test_carries_that_do_not_exist(self, rebinding: bool, carried: dict[str, str]) -> None:
        with pytest.raises(BakeoffError) as refused:
            self.port(rebinding, carried)
        assert refused.value.code == "bad-input"

    def test_a_carried_output_of_another_shape(self, rebinding: bool) -> None:
        port = self.port(rebinding, {"short": "state"})
        port.call()
        with pytest.raises(BakeoffError, match="short") as refused:
            port.advance()
        assert refused.value.code == "bad-input"

    def test_carrying_before_the_first_call(self, rebinding: bool) -> None:
        with pytest.raises(BakeoffError) as refused:
            self.port(rebinding, {"y": "x"}).advance()
        assert refused.value.code == "wrong-output"
