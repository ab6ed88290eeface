"""An AITune that measures nothing: its candidates' speeds and failures are given, and eager or inductor really runs.

It imitates what AITune 0.6.0 was seen to do on a CPU with TensorRT and modelopt stubbed, in the part that
bakeoff.backends.aitune uses:

- `Module(module, name, strategy)` is registered; `tune` calls it once on the collated samples, which records their
  shapes, and then tunes every registered module. One that was tuned before raises, and like any module whose tuning
  raises it is put back as it was (`state` is `passthrough`), without an error from `tune`.
- A strategy builds its candidates in order in this process. One that raises is noted with its message and left out;
  where all do, `MaxThroughputStrategy` and `MinLatencyStrategy` keep eager, or raise "No correct backend found" if they
  measured no eager; `FirstWinsStrategy` raises as well where none is 1 % faster than eager. Without
  `enable_performance_validation(True)` there are no `perf_validation_results`.
- Candidates for CUDA alone raise "Device cpu is not supported by the backend NAME" on a CPU, and inductor ahead of time
  "Incorrect device passed to aoti_runner_cpu", after it compiled.
- The tuned module's weights are moved to `config.device_after_tuning` where no selected backend builds just in time;
  `config.tuning_data_output_path` gets a report with an entry for each build.
"""

import enum
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

CPU_BACKENDS = ("TorchInductorJitBackend",)
FAILURES = {
    "TorchInductorAotBackend": "Incorrect device passed to aoti_runner_cpu",
    **{
        name: f"Device cpu is not supported by the backend {name}"
        for name in ("TensorRTBackend", "TorchTensorRTAotBackend", "ONNXRuntimeBackend")
    },
}


class State(enum.Enum):
    RECORDING = "recording"
    PASSTHROUGH = "passthrough"
    TUNED = "tuned"


class Registry:
    def __init__(self) -> None:
        self.modules: dict[str, Any] = {}

    def unregister(self, name: str) -> None:
        self.modules.pop(name, None)


class Fake:
    """The installed fake: what it was asked for, and what its candidates are to do."""

    def __init__(self) -> None:
        self.speeds: dict[str, float] = {}
        """Class of a candidate to its speed over eager; 1.5 for others."""
        self.compiler: Callable[[nn.Module], Callable[..., Any]] = torch.compile
        """What the candidate for inductor does with the module."""
        self.registry = Registry()
        self.config = SimpleNamespace(device_after_tuning="meta", tuning_data_output_path=Path("never-written"))
        self.asked: list[tuple[str, tuple[str, ...], bool]] = []
        """For each tuning: the strategy, its candidates, and whether it measured eager."""
        self.recorded: list[tuple[torch.Tensor, ...]] = []
        """The inputs of each recorded call."""


class FakeBackend:
    def __init__(self, fake: Fake) -> None:
        self.fake = fake
        self.call: Callable[..., Any] = lambda: None

    def describe(self) -> str:
        return f"{type(self).__name__}()"

    def build(self, module: nn.Module, samples: tuple[torch.Tensor, ...]) -> None:
        name = type(self).__name__
        if name in FAILURES:
            raise RuntimeError(f"{FAILURES[name]}\nand a second line")
        self.call = module.__call__ if name == "TorchEagerBackend" else self.fake.compiler(module)
        with torch.no_grad():
            self.call(*samples)


class FakeStrategy:
    def __init__(self, fake: Fake, defaults: tuple[type, ...], backends: list[Any] | None = None) -> None:
        self.fake = fake
        self.backends = [made() for made in defaults] if backends is None else backends
        self.against_eager = True
        self.perf_validation_results: list[Any] = []
        self.builds: list[dict[str, Any]] = []

    def enable_performance_validation(self, mode: bool) -> None:
        self.against_eager = mode

    def tune(self, module: nn.Module, samples: tuple[torch.Tensor, ...], eager: Any) -> Any:
        asked = tuple(type(one).__name__ for one in self.backends)
        self.fake.asked.append((type(self).__name__, asked, self.against_eager))
        built = []
        for one in self.backends:
            try:
                one.build(module, samples)
            except RuntimeError as error:
                self.builds.append({"backend": one.describe(), "exception": {"message": str(error)}})
                continue
            self.builds.append({"backend": one.describe(), "exception": None})
            built.append((self.fake.speeds.get(type(one).__name__, 1.5), one))
            if self.against_eager:
                result = SimpleNamespace(backend_description=one.describe(), speedup=built[-1][0])
                self.perf_validation_results.append(result)
        return self.select(built, eager)

    def select(self, built: list[Any], eager: Any) -> Any:
        best = max(built, key=lambda one: one[0], default=(0.0, None))
        if not self.against_eager and best[1] is None:
            raise RuntimeError("No correct backend found")
        return eager if self.against_eager and best[0] <= 1.0 else best[1]


class FirstWins(FakeStrategy):
    def select(self, built: list[Any], _eager: Any) -> Any:
        for speed, one in built:
            if not self.against_eager or speed >= 1.01:
                return one
        raise RuntimeError("There is no valid backend for a module")


class FakeModule:
    """The wrapper: it runs the module as it was, or the selected backend."""

    def __init__(self, fake: Fake, module: nn.Module, name: str, strategy: FakeStrategy) -> None:
        self.fake, self.original, self.name, self.strategy = fake, module, name, strategy
        self.state, self.samples = State.RECORDING, ()
        self.module = SimpleNamespace(backends={})
        fake.registry.modules[name] = self

    def __call__(self, *tensors: Any) -> Any:
        if self.state is State.RECORDING:
            self.samples = tensors
            self.fake.recorded.append(tensors)
        if self.state is not State.TUNED:
            return self.original(*tensors)
        (backend,) = self.module.backends.values()
        with torch.no_grad():
            return backend.call(*tensors)

    def tune(self, eager: Any) -> None:
        if self.state is State.TUNED:
            raise ValueError(f"Module: '{self.name}' has already been tuned. Reset it to do it again.")
        eager.build(self.original, self.samples)
        selected = self.strategy.tune(self.original, self.samples, eager)
        self.state = State.TUNED
        self.module.backends["graph"] = selected
        if type(selected).__name__ not in (*CPU_BACKENDS, "TorchEagerBackend"):
            self.original.to(self.fake.config.device_after_tuning)


def _tune(fake: Fake, eager: type, func: Any, loader: Any, batch_sizes: list[int], device: str) -> None:
    assert (batch_sizes, device) == ([1], "cpu")
    with torch.no_grad():
        func(*loader.collate_fn(list(loader.dataset)))
    reports = []
    for module in fake.registry.modules.values():
        exception = None
        try:
            module.tune(eager())
        except (RuntimeError, ValueError) as error:
            module.state, exception = State.PASSTHROUGH, {"message": str(error)}
        reports.append({"exception": exception, "graphs": [{"backend_builds": module.strategy.builds}]})
    fake.config.tuning_data_output_path.write_text(json.dumps({"modules": reports}), encoding="utf-8")


def install(patch: pytest.MonkeyPatch) -> Fake:
    """Put the fake in the place of AITune for one test."""
    fake = Fake()
    names = ("TensorRTBackend", "TorchInductorAotBackend", "TorchTensorRTAotBackend", "TorchInductorJitBackend")
    made: dict[str, Any] = {}
    for name in (*names, "ONNXRuntimeBackend", "TorchEagerBackend"):
        made[name] = type(name, (FakeBackend,), {"__init__": lambda self: FakeBackend.__init__(self, fake)})
    root, torch_part = ModuleType("aitune"), ModuleType("aitune.torch")
    backends, registry = ModuleType("aitune.torch.backend"), ModuleType("aitune.torch.module_registry")
    vars(backends).update(made)
    vars(registry)["MODULE_REGISTRY"] = fake.registry
    vars(root).update(__version__="0.6.0", torch=torch_part)
    vars(torch_part).update(
        backend=backends,
        config=fake.config,
        Module=lambda module, name, strategy: FakeModule(fake, module, name, strategy),
        DataLoaderFactory=lambda dataset, collate_fn: SimpleNamespace(dataset=dataset, collate_fn=collate_fn),
        tune=lambda func, loader, batch_sizes, device: _tune(
            fake, made["TorchEagerBackend"], func, loader, batch_sizes, device
        ),
    )
    for name, base in (
        ("MaxThroughputStrategy", FakeStrategy),
        ("MinLatencyStrategy", FakeStrategy),
        ("FirstWinsStrategy", FirstWins),
    ):
        kind = type(name, (base,), {})
        vars(torch_part)[name] = lambda kind=kind, **given: kind(fake, tuple(made[one] for one in names), **given)
    for part in (root, torch_part, backends, registry):
        patch.setitem(sys.modules, part.__name__, part)
    return fake
