"""What NVIDIA AITune says of one lie: `python aitune_lies.py LIE THREADS DEVICE [RUNS]`, which prints one JSON line.

Without arguments it prints AITune's version and what was stubbed. A process for each lie, because a candidate may end
it. The module is the toy's `picture`, as the lab sweeps it; a lie of tests/support/lies.py becomes a backend of AITune
by its public class `Backend`. AITune's strategy is its default, MaxThroughputStrategy, with its default settings.
"""

import json
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()
_FOLDER = tempfile.mkdtemp(prefix="aitune-lies-")
os.environ["AITUNE_CACHE_DIR"] = _FOLDER  # read when aitune is imported
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{_FOLDER}/inductor")

import lies  # noqa: E402
from aitune_stubs import stub_missing  # noqa: E402

STUBBED = stub_missing()
warnings.simplefilter("ignore")

import aitune  # noqa: E402
import aitune.torch as ait  # noqa: E402
import aitune.torch.backend as candidates  # noqa: E402
import torch  # noqa: E402
from aitune.torch.module_registry import MODULE_REGISTRY  # noqa: E402

from bakeoff.models.toy.network import build  # noqa: E402
from bakeoff.models.toy.spec import Config  # noqa: E402

WORKLOAD, CONFIG = "picture", Config(width=64, length=32)
"""As `toy:small.picture`."""
BATCHES = [2**power for power in range(5)]
"""Up to the largest batch at which the lab sweeps `slow_first`."""


class Candidate(candidates.Backend):
    """A lie as a backend of AITune."""

    _execution_modes = frozenset({candidates.ExecutionMode.SINGLE_GPU})
    _build_mode = candidates.BuildMode.JUST_IN_TIME

    def __init__(self, lie: lies.Lie) -> None:
        super().__init__()
        self._lie = lie
        self._module: Any = None
        self._call: Any = None

    def key(self) -> str:
        return self._lie.__name__

    def describe(self) -> str:
        return f"Candidate({self._lie.__name__})"

    def to_dict(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def from_dict(cls, module: Any, state_dict: Any) -> "Candidate":
        raise NotImplementedError

    def _build(self, module: Any, _graph_spec: Any, _samples: Any, _cache_dir: Path) -> "Candidate":
        self._module = module
        self._activate()
        return self

    def _activate(self) -> None:
        self._call = self._call or self._lie(self._module)

    def _deactivate(self) -> None:
        pass

    def _deploy(self) -> None:
        self._activate()

    def _infer(self, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return self._call(*args, **kwargs)


def backend_of(lie: str) -> Any:
    """The candidate that AITune is given for a lie."""
    if lie in ("inductor", "disabled_in_parts"):
        return candidates.TorchInductorJitBackend()
    if lie == "disabled":
        return candidates.TorchInductorJitBackend(candidates.TorchInductorJitBackendConfig(fullgraph=True))
    if lie.endswith("_provider"):
        provider = candidates.ONNXExecutionProvider(lie.partition("_")[0])
        return candidates.ONNXRuntimeBackend(candidates.ONNXRuntimeBackendConfig(execution_provider=provider))
    return Candidate(getattr(lies, lie.removesuffix("_batches")))


def tune(lie: str, device: str) -> dict[str, Any]:
    """Tune the toy with one candidate and return what AITune said, and what the tuned module computes."""
    torch.manual_seed(0)
    module = build(CONFIG, WORKLOAD).to(device)
    shape = (CONFIG.width, CONFIG.length, CONFIG.length)
    unseen = torch.randn(1, *shape, device=device)
    with torch.no_grad():
        (expected,) = module(unseen)
    if lie.startswith("disabled"):
        lies.disable(module)
    strategy = ait.MaxThroughputStrategy(backends=[backend_of(lie)])
    wrapped = ait.Module(module, f"toy-{lie}-{time.perf_counter_ns()}", strategy=strategy)
    samples = [torch.randn(*shape, device=device)]
    ait.tune(wrapped, samples, batch_sizes=BATCHES if lie.endswith("_batches") else [1], device=device)
    report = json.loads(ait.config.tuning_data_output_path.read_bytes())
    (tuned,) = report["modules"]
    (graph,) = tuned["graphs"]
    errors = [build["exception"] for build in graph["backend_builds"]] + [tuned["exception"]]
    failed = [error["message"].partition("\n")[0] for error in errors if error]
    results = graph["strategy_results"] or [{}]
    judged = strategy.perf_validation_results
    with torch.no_grad():
        (found,) = wrapped(unseen)
    return {
        "state": wrapped.state.value,
        "success": results[0].get("success"),
        "speedup": float(judged[0].speedup) if judged else None,
        "faster": bool(judged[0].passed) if judged else None,
        "selected": graph["selected_backend"],
        "batch": results[0].get("selected_batch_size"),
        "exception": failed[0] if failed else None,
        "error": float((found.double() - expected.double()).norm() / expected.double().norm()),
    }


def main() -> int:
    if len(sys.argv) == 1:
        print(json.dumps({"version": aitune.__version__, "stubbed": STUBBED}))
        return 0
    lie, threads, device = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(threads)
    runs = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    found = []
    for _ in range(runs):
        found.append(tune(lie, device))
        MODULE_REGISTRY.clear()  # it would tune each of them again
    print(json.dumps({"runs": found, "seconds": time.perf_counter() - STARTED}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
