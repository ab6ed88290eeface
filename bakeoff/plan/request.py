"""A user's request for a sweep, and the checks of a request that need no backend."""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import fsum
from pathlib import Path
from typing import Any, Final

from bakeoff.backends.backend import Suite
from bakeoff.machine import host
from bakeoff.models.errors import BakeoffError
from bakeoff.models.types import Device, Dtype, parse_dtype
from bakeoff.record.objective import LATENCY, PERCENTILES, Objective
from bakeoff.record.policy import Policy
from bakeoff.record.schema import Calibration
from bakeoff.record.statistics import samples_for_quantile
from bakeoff.variant import Variant

FINAL_S = 10.0
"""Seconds of timed calls in the final of a sweep, in seven sets of processes of at least eight rounds each."""
MOST_PROCESSES, MOST_THREADS, MOST_BATCHES = 100, 1024, 20
LEAST_DEADLINE_S, MOST_DEADLINE_S = 1, 86_400


@dataclass(frozen=True, slots=True)
class Request:
    """A request by a user; an empty field means this host's default."""

    component: str
    presets: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    device: str = ""
    suite: Suite = "default"
    batches: tuple[int, ...] = (1,)
    """Batch sizes, each with rows and a final of its own."""
    weight_seed: int = 0
    input_seed: int = 0
    threads: int = 0
    checkpoint: str = ""
    processes: int = 1
    """Fresh processes in which each variant is measured."""
    build_for: tuple[str, ...] = ()
    """Architectures of GPUs that need not be here, such as sm89, for which engines are built and not run."""
    policy: Policy = field(default_factory=Policy)
    final_s: float = FINAL_S
    """Approximate seconds of timed calls in the final between the two best rows; 0 for no final."""
    ceilings: bool = True
    """Measure ceilings of this machine that are not known yet."""
    monitor: bool = False
    """Watch each measuring worker and its GPU with a monitor."""
    next_slot: str = ""
    """The component that follows in the loop whose modules are swept; "" if they are of no loop."""
    time_limit_s: float = 0.0
    """Seconds that the sweep may take; 0: no limit. Not in the plan's key, so a sweep whose time was up can be resumed
    with another limit or none."""
    objective: Objective = LATENCY
    """Objective by which finals decide, with the limits that a row must meet to be in a final."""
    python: str = ""
    """Interpreter of its workers, with libraries of its own; "" for the one of this lab."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """The named suite that it comes from, as it was resolved; empty without one. It decides nothing by itself."""

    calibrations: tuple[Calibration, ...] = ()
    """Of the machines over which the rows are spread; a row states the one that includes its machine."""

    @property
    def user_code(self) -> bool:
        """Whether the component or a backend is the user's own: `package.module:ATTRIBUTE`, or a brought model."""
        return any(":" in reference or reference.startswith("/") for reference in (self.component, *self.backends))


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked parts of a request that do not depend on the component."""

    device: Device
    threads: int
    checkpoint: str
    """Absolute path of the weights file; "" for random weights."""
    dtypes: tuple[Dtype, ...]
    """Requested dtypes; empty if none is requested."""


MOST_TIME_LIMIT_S: Final = 7 * 86_400.0
GRACE_SHARE, MOST_GRACE_S = 0.05, 10.0
EXAMPLES: Final = "give a time such as 90s, 3m or 1h30m; a number alone is seconds"
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "": 1.0}
_TIME = re.compile(r"(?:(?P<h>[0-9.]+)h)? ?(?:(?P<m>[0-9.]+)m)? ?(?:(?P<s>[0-9.]+)s?)?", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,3})?")
_SHOWN = 40
"""Characters of the user's text that an error message repeats."""


def request_of(variant: Variant) -> Request:
    """Return the request for exactly this variant."""
    return Request(
        component=variant.component,
        presets=(variant.preset,),
        workloads=(variant.workload,),
        backends=("+".join(str(use) if use.options else f"{use.name}[]" for use in variant.backends),),
        dtypes=(variant.dtype,),
        device=variant.device,
    )


def with_deadline(policy: Policy, seconds: float) -> Policy:
    """Return the policy with one deadline for builds of any size. Raises BakeoffError for an impossible number of
    seconds."""
    if not LEAST_DEADLINE_S <= seconds <= MOST_DEADLINE_S:
        text = f"--row-timeout {seconds:g}: give {LEAST_DEADLINE_S} to {MOST_DEADLINE_S} seconds"
        raise BakeoffError(text, "bad-option")
    return replace(policy, build_deadline_s=seconds, large_build_deadline_s=seconds)


def with_enough_samples(policy: Policy, objective: Objective) -> Policy:
    """Return the policy with enough samples, time permitting, for an interval of each percentile that the objective
    limits."""
    shares = [PERCENTILES[limit.figure] for limit in objective.limits if limit.figure in PERCENTILES]
    return replace(policy, min_samples=max([policy.min_samples, *map(samples_for_quantile, shares)]))


def check_request(request: Request) -> Settings:
    """Check the device, dtypes, counts and weights file. Raises BakeoffError that names the wrong option."""
    device = host.usable_device(request.device)
    for batch in request.batches:
        if batch < 1:
            raise BakeoffError(f"--batch {batch}: a batch is at least 1", "bad-option")
    if len(request.batches) > MOST_BATCHES:
        text = f"--batch: {len(request.batches)} sizes; give at most {MOST_BATCHES}"
        raise BakeoffError(text, "bad-option")
    if not 1 <= request.processes <= MOST_PROCESSES:
        raise BakeoffError(f"--processes {request.processes}: give 1 to {MOST_PROCESSES}", "bad-option")
    if not 0 <= request.threads <= MOST_THREADS:
        raise BakeoffError(f"--threads {request.threads}: give 0 for all cores, or 1 to {MOST_THREADS}", "bad-option")
    return Settings(
        device=device,
        threads=request.threads or host.usable_cores(),
        checkpoint=_checkpoint(request.checkpoint),
        dtypes=tuple(parse_dtype(dtype) for dtype in request.dtypes),
    )


def _checkpoint(asked: str) -> str:
    """Return the absolute path of a weights file that exists, "" for none; a worker checks its content.

    Raises BakeoffError if there is no such file.
    """
    if not asked:
        return ""
    try:
        if not stat.S_ISREG(os.stat(asked).st_mode):
            raise BakeoffError(f"--checkpoint {asked}: not a file; give the weights file itself", "bad-checkpoint")
    except OSError as error:
        text = f"--checkpoint {asked}: {error.strerror}; give the path of the weights file"
        raise BakeoffError(text, "bad-checkpoint") from error
    return str(Path(asked).absolute())


def parse_time_limit(text: str) -> float:
    """Return the seconds of `3m`, `90s`, `1h30m`, `1.5h` or `180` (seconds). Raises BakeoffError for other text and for
    0."""
    typed = text.strip(" ")
    match = _TIME.fullmatch(typed)
    parts = {unit: part for unit, part in match.groupdict().items() if part} if match else {}
    if not parts or not all(_NUMBER.fullmatch(part) for part in parts.values()):
        shown = typed if len(typed) <= _SHOWN else f"{typed[:_SHOWN]}..."
        raise BakeoffError(f"--time-limit '{shown}': {EXAMPLES}", "bad-option")
    seconds = fsum(float(part) * _UNITS[unit] for unit, part in parts.items())
    if not 0 < seconds <= MOST_TIME_LIMIT_S:
        text = f"--time-limit {typed}: give more than 0 and at most {MOST_TIME_LIMIT_S / 3600:.0f}h"
        raise BakeoffError(text, "bad-option")
    return seconds


def time_limit_text(seconds: float) -> str:
    """Return a time limit in the form in which it is typed: `90s`, `3m`, `1h30m`."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{hours:.0f}h" if hours else "", f"{minutes:.0f}m" if minutes else "", f"{rest:g}s" if rest else ""]
    return "".join(parts)


def grace_s(time_limit_s: float) -> float:
    """Return the seconds that work may go on after the time limit: 5 % of it, at most 10 s."""
    return min(GRACE_SHARE * time_limit_s, MOST_GRACE_S)
