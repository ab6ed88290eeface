"""States the status that each backend of the selftest must get, grouped into lanes that are swept as one."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from bakeoff.models.lookup import look_up
from bakeoff.process.environment import find_user_code
from bakeoff.record.policy import Policy
from bakeoff.record.schema import Status
from bakeoff.variant import split_outside_brackets

_FAULTY = "bakeoff.selftest.faulty"


@dataclass(frozen=True, slots=True)
class Expectation:
    """One backend of the selftest, with the status and, if any, the code of a finding that its row must have."""

    backend: str
    """As it is typed for a sweep."""
    status: Status
    finding: str = ""
    component: str = "toy"
    workload: str = ""
    """Workload of the component; empty for the lane's workload of the toy."""

    @property
    def name(self) -> str:
        """A short name for tables."""
        parts = split_outside_brackets(self.backend, "+")
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
    def subjects(self) -> tuple[tuple[str, str], ...]:
        """Components and workloads that the lane sweeps; "" stands for the lane's own workload of the toy."""
        return tuple(dict.fromkeys((entry.component, entry.workload) for entry in self.expectations))


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
            Expectation(f"{_FAULTY}:SEGFAULT", "crashed"),
            Expectation(f"{_FAULTY}:SEALS_ITSELF", "crashed"),
            Expectation(f"{_FAULTY}:HANG_C", "timeout"),
            Expectation(f"{_FAULTY}:HOST_OOM", "oom"),
        ),
    ),
    Lane(
        "wrong results",
        _policy(60.0, 0.25),
        (
            Expectation(f"{_FAULTY}:RETURNS_EARLY", "parity_failed"),
            Expectation(f"{_FAULTY}:NAN_AT_40", "parity_failed"),
            Expectation(f"{_FAULTY}:SILENT_EAGER", "fell_back"),
            Expectation(f"{_FAULTY}:RECOMPILES", "unstable", "recompiles"),
            Expectation(f"{_FAULTY}:THREADS_DRIFT", "unstable", "settings"),
            Expectation(f"{_FAULTY}:SLOWS_CLOCK", "unstable", "clock-span"),
        ),
    ),
    Lane(
        "compilers",
        _policy(180.0, 0.25),
        (
            Expectation(f"{_FAULTY}:DECOMPOSED_EAGER", "fell_back"),
            Expectation(f"{_FAULTY}:CLAIMS_LAYERS+eager", "fell_back"),
        ),
    ),
    Lane(
        "hot",
        _policy(60.0, 0.25),
        (
            Expectation(f"{_FAULTY}:TIERED_MEMO_PADDED", "unstable", "memoised"),
            Expectation(f"{_FAULTY}:GAP_PRECISION_PADDED", "parity_failed"),
        ),
        workload="picture",  # its calls take long enough for a padded one to lie between
    ),
    Lane(
        "slow",
        _policy(60.0, 1.0),
        (
            Expectation(f"{_FAULTY}:DRIFTS", "unstable", "drift"),
            Expectation(f"{_FAULTY}:LEAKS", "unstable", "leak"),
        ),
        alone=True,
        workload="picture",  # its outputs are large enough for the leak to show
    ),
    Lane(
        "correct",
        _policy(60.0, 0.3),
        (
            Expectation(f"{_FAULTY}:PLAIN_EAGER", "ok"),
            Expectation(f"{_FAULTY}:GRANDCHILD", "ok", "leftovers"),
        ),
        alone=True,
    ),
)
"""The selftest's lanes, with one backend a check."""
_CUDA_START_S = 30.0
"""Most seconds that starting CUDA and its libraries takes in a fresh process, if their files are not cached."""


def lanes(more: str, device: str) -> tuple[Lane, ...]:
    """Return the lanes with their policies for a device, and with what `more` adds to them.

    `more` is a user's `module:MORE` in the working folder, a mapping from lanes to expectations, or "". The deadline of
    a build counts from the loading of the weights on, so on CUDA it includes the start of CUDA. Raises BakeoffError if
    there is no such mapping.
    """
    find_user_code(os.getcwd() if more else "")
    added: Mapping[str, tuple[Expectation, ...]] = look_up(more, {}, dict, "mine.py:MORE") if more else {}
    start_s = _CUDA_START_S if device == "cuda" else 0.0
    return tuple(
        replace(
            lane,
            expectations=(*lane.expectations, *added.get(lane.name, ())),
            policy=replace(
                lane.policy,
                build_deadline_s=lane.policy.build_deadline_s + start_s,
                large_build_deadline_s=lane.policy.large_build_deadline_s + start_s,
            ),
        )
        for lane in LANES
    )
