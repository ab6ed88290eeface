"""States the status that each backend of the selftest must get, grouped into lanes that are swept as one."""

from dataclasses import dataclass, replace

from bakeoff.record.policy import Policy
from bakeoff.record.schema import Status
from bakeoff.variant import split_outside_brackets

_PACKAGE = "bakeoff.selftest"
LEFT_TO_TORCH = f"{_PACKAGE}.left_to_torch:SPEC"


@dataclass(frozen=True, slots=True)
class Expectation:
    """One backend of the selftest, with the status and, if any, the code of a finding that its row must have."""

    canary: str
    """module:CONSTANT within bakeoff.selftest, or a registered backend as typed; a+b for a composition."""
    status: Status
    finding: str = ""
    quick: bool = False
    """Part of the quick selftest."""
    workload: str = ""
    """Workload of the component left_to_torch; empty for the lane's workload of the toy component."""

    @property
    def reference(self) -> str:
        """The backend as it is typed for a sweep."""
        parts = split_outside_brackets(self.canary, "+")
        return "+".join(f"{_PACKAGE}.{part}" if ":" in part else part for part in parts)

    @property
    def name(self) -> str:
        """A short name for tables."""
        parts = split_outside_brackets(self.canary, "+")
        names = "+".join(part.partition(":")[2].lower().replace("_", "-") or part.removesuffix("[]") for part in parts)
        return f"{names}, {self.workload}" if self.workload else names


@dataclass(frozen=True, slots=True)
class Lane:
    """Backends that are swept one after another. Lanes run at the same time, except those with `alone`, whose checks
    depend on timing."""

    name: str
    policy: Policy
    expectations: tuple[Expectation, ...]
    alone: bool = False
    workload: str = "world"
    """Workload of the toy component."""

    @property
    def workloads(self) -> tuple[str, ...]:
        """Workloads of left_to_torch that the lane sweeps; "" stands for the lane's own workload of the toy."""
        return tuple(dict.fromkeys(entry.workload for entry in self.expectations))


def _policy(build_deadline_s: float, min_s: float) -> Policy:
    """Return a policy of short clocks in which contention is never a finding, because lanes share the host."""
    return Policy(
        warmup_s=0.05,
        warmup_cap_s=0.5,
        min_samples=5,
        min_s=min_s,
        full_s=min_s,
        cap_s=1.5 * min_s,
        throughput_s=0.1,
        contention=100.0,
        unsteady_ratio=1e6,
        trace=False,
        build_deadline_s=build_deadline_s,
        large_build_deadline_s=build_deadline_s,
        phase_deadline_s=60.0,
    )


LANES = (
    Lane(
        "crashes",
        _policy(4.0, 0.2),
        (
            Expectation("faulty:SEGFAULT", "crashed", quick=True),
            Expectation("faulty:KILLED", "crashed"),
            Expectation("faulty:EXITS_SILENTLY", "crashed"),
            Expectation("faulty:PARTIAL_RESULT", "crashed"),
            Expectation("faulty:HOSTILE_RESULT", "crashed"),
            Expectation("faulty:HANG", "timeout"),
            Expectation("faulty:HANG_C", "timeout", quick=True),
            Expectation("faulty:HOST_OOM", "oom"),
            Expectation("faulty:RAISES_AT_BUILD", "build_failed"),
            Expectation("faulty:RAISES_AT_CALL", "call_failed"),
        ),
    ),
    Lane(
        "wrong results",
        _policy(60.0, 0.25),
        (
            Expectation("faulty:RETURNS_EARLY", "parity_failed", quick=True),
            Expectation("faulty:HALF_PRECISION", "parity_failed"),
            Expectation("faulty:CACHED_OUTPUT", "parity_failed"),
            Expectation("faulty:NAN", "parity_failed"),
            Expectation("faulty:NAN_AT_40", "parity_failed", quick=True),
            Expectation("faulty:WRONG_SHAPE", "parity_failed"),
            Expectation("faulty:SILENT_EAGER", "fell_back", quick=True),
            Expectation("faulty:UNCHANGED_GRAPH", "fell_back"),
            Expectation("faulty:RECOMPILES", "unstable", "recompiles"),
            Expectation("subtle:LAZY", "parity_failed"),
            Expectation("subtle:STEP_CACHE", "parity_failed", "memoised"),
            Expectation("subtle:FOLDS_INPUTS", "unstable", "memoised"),
            Expectation("subtle:RING_WRAP", "parity_failed"),
            Expectation("subtle:CHANGES_WEIGHTS", "parity_failed"),
            Expectation("subtle:THREADS_DRIFT", "unstable", "settings"),
            Expectation("subtle:LATE_FALLBACK", "fell_back"),
            Expectation("subtle:TRACED_ONLY", "fell_back"),
            Expectation("subtle:DONATES_INPUT", "parity_failed"),
            Expectation("tampering:REWRITES_LIMITS", "parity_failed", "tampered"),
            Expectation("tampering:SLOWS_CLOCK", "unstable", "clock-span", quick=True),
            Expectation("tampering:EDITS_RESULT", "crashed"),
            Expectation("tampering:SEALS_ITSELF", "crashed"),
        ),
    ),
    Lane(
        "compilers",
        _policy(180.0, 0.25),
        (
            Expectation("compiler_faults:DECOMPOSED_EAGER", "fell_back", quick=True),
            Expectation("compiler_faults:THREADED_EAGER", "fell_back"),
            Expectation("compiler_faults:LOST_PROVIDER", "unavailable"),
            Expectation("compiler_faults:CLAIMS_NOTHING+eager", "fell_back"),
            Expectation("compiler_faults:CLAIMS_LAYERS+eager", "fell_back"),
            Expectation("compiler_faults:SHRINKS_UNUSED+eager", "fell_back"),
            Expectation("compiler_faults:KEEPS_FULL+eager", "fell_back"),
            Expectation("compiler_faults:FALLS_TO_INDUCTOR", "fell_back"),
            Expectation("compiler_faults:FALLS_AGAIN", "fell_back"),
            Expectation("compiler_faults:HIDES_INDUCTOR", "fell_back"),
            Expectation("compiler_faults:HALF_ENGINE", "parity_failed"),
            Expectation("inductor[]", "ok"),
            Expectation("onnxruntime[]", "ok"),
            Expectation("openvino[]", "ok"),
            Expectation("faulty:DROPS_IMAGINARY", "parity_failed", workload="waves"),
            Expectation("compiler_faults:HIDES_IN_COMPLEX", "fell_back", workload="waves"),
            Expectation("inductor[]", "ok", "left-to-aten", workload="waves"),
            Expectation("compiler_faults:COMPILES_RNN", "ok", "left-to-aten", workload="memory"),
        ),
    ),
    Lane(
        "hot",
        _policy(60.0, 0.25),
        (
            Expectation("hot:TIERED_MEMO", "unstable", "memoised"),
            Expectation("hot:TIERED_MEMO_PADDED", "unstable", "memoised", quick=True),
            Expectation("hot:GAP_STALE", "parity_failed"),
            Expectation("hot:GAP_STALE_PADDED", "parity_failed"),
            Expectation("hot:GAP_PRECISION", "parity_failed", quick=True),
            Expectation("hot:GAP_PRECISION_PADDED", "parity_failed"),
            Expectation("hot:EVERY_THIRD", "parity_failed"),
            Expectation("hot:EVERY_THIRD_PADDED", "parity_failed"),
            Expectation("hot:CONTENT_HASH", "unstable", "memoised"),
            Expectation("hot:CONTENT_HASH_PADDED", "unstable", "memoised"),
        ),
        workload="picture",  # its calls take long enough for a padded one to lie between
    ),
    Lane(
        "slow",
        _policy(60.0, 1.0),
        (
            Expectation("faulty:DRIFTS", "unstable", "drift"),
            Expectation("faulty:LEAKS", "unstable", "leak", quick=True),
            Expectation("subtle:KEEPS_OUTPUTS", "unstable", "leak"),
        ),
        alone=True,
        workload="picture",  # its outputs are large enough for the leak to show
    ),
    Lane(
        "correct",
        _policy(60.0, 0.3),
        (
            Expectation("faulty:PLAIN_EAGER", "ok", quick=True),
            Expectation("faulty:GRANDCHILD", "ok", "leftovers", quick=True),
            Expectation("faulty:NOISY", "ok", "log"),
            Expectation("unusual:POOLED", "ok"),
            Expectation("unusual:STRIDED", "ok"),
            Expectation("unusual:COPIES_OUT", "ok"),
            Expectation("unusual:DELEGATES", "ok"),
            Expectation("unusual:REUSES_OUTPUT", "ok"),
            Expectation("unusual:RING", "ok"),
            Expectation("unusual:STATIC_BUFFERS", "ok"),
            Expectation("unusual:COPIES_AT_BIND", "ok"),
            Expectation("unusual:COPIES_WITHOUT_PORT", "ok"),
            Expectation("unusual:SERVER", "ok", "helpers"),
        ),
        alone=True,
    ),
)


def lanes(quick: bool) -> tuple[Lane, ...]:
    """Return all lanes; with `quick`, only with their quick backends."""
    if not quick:
        return LANES
    return tuple(
        replace(lane, expectations=tuple(entry for entry in lane.expectations if entry.quick)) for lane in LANES
    )


_CUDA_START_S = 30.0
"""Most seconds that starting CUDA and its libraries takes in a fresh process, if their files are not cached."""


def lane_named(name: str, quick: bool, device: str) -> Lane:
    """Return the lane of `lanes(quick)` with this name, with the policy for a device.

    The deadline of a build counts from the loading of the weights on, so on CUDA it includes the start of CUDA.
    """
    lane = next(lane for lane in lanes(quick) if lane.name == name)
    if device != "cuda":
        return lane
    limits = lane.policy.build_deadline_s + _CUDA_START_S, lane.policy.large_build_deadline_s + _CUDA_START_S
    return replace(lane, policy=replace(lane.policy, build_deadline_s=limits[0], large_build_deadline_s=limits[1]))
