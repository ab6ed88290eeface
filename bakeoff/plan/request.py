"""A user's request for a sweep, and the checks that need no backend."""

import os
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path

from bakeoff.backends.backend import Suite
from bakeoff.machine import host
from bakeoff.models.errors import BakeoffError
from bakeoff.models.types import Device, Dtype, parse_dtype
from bakeoff.record.objective import LATENCY, PERCENTILES, Objective
from bakeoff.record.policy import Policy
from bakeoff.record.statistics import samples_for_quantile
from bakeoff.variant import Variant

FINAL_S = 10.0
"""Seconds of calls in the final of a sweep, in seven sets of processes of at least eight rounds each."""
MOST_PROCESSES, MOST_BUILDS, MOST_THREADS, MOST_BATCHES = 100, 20, 1024, 20
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
    """Each size has rows and a final of its own."""
    weight_seed: int = 0
    input_seed: int = 0
    threads: int = 0
    checkpoint: str = ""
    processes: int = 1
    """Fresh processes in which each build of a variant is measured."""
    builds: int = 1
    """Fresh builds of each variant that is built at all."""
    policy: Policy = field(default_factory=Policy)
    final_s: float = FINAL_S
    """About how long the two best rows are measured against each other at the end; 0 for no final."""
    ceilings: bool = True
    """Measure this machine's ceilings where they are not known yet."""
    monitor: bool = False
    """Watch each measuring worker and its GPU with a monitor."""
    budget_s: float = 0.0
    """Seconds that the sweep may take; 0: no limit. No part of a plan's key: a sweep whose time was up is resumed with
    another budget or with none."""
    objective: Objective = LATENCY
    """Objective that the finals decide by, and the limits that a row must meet to be in one."""

    @property
    def user_code(self) -> bool:
        """Whether the component or a backend is a user's own: `package.module:ATTRIBUTE`, or a brought model."""
        return any(":" in reference or reference.startswith("/") for reference in (self.component, *self.backends))


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked parts of a request that do not depend on its component."""

    device: Device
    threads: int
    checkpoint: str
    """Absolute path of the weights file; "" for random weights."""
    dtypes: tuple[Dtype, ...]
    """Dtypes asked for; empty where none is."""


def request_of(variant: Variant) -> Request:
    """The request for exactly this variant."""
    return Request(
        component=variant.component,
        presets=(variant.preset,),
        workloads=(variant.workload,),
        backends=("+".join(str(use) if use.options else f"{use.name}[]" for use in variant.backends),),
        dtypes=(variant.dtype,),
        device=variant.device,
    )


def with_deadline(policy: Policy, seconds: float) -> Policy:
    """The policy with one deadline for builds of any size. Raises BakeoffError for an impossible number of seconds."""
    if not LEAST_DEADLINE_S <= seconds <= MOST_DEADLINE_S:
        text = f"--deadline {seconds:g}: give {LEAST_DEADLINE_S} to {MOST_DEADLINE_S} seconds"
        raise BakeoffError(text, "bad-option")
    return replace(policy, build_deadline_s=seconds, large_build_deadline_s=seconds)


def with_enough_samples(policy: Policy, objective: Objective) -> Policy:
    """The policy with as many samples as the percentiles of the objective need for an interval, time permitting."""
    shares = [PERCENTILES[limit.figure] for limit in objective.limits if limit.figure in PERCENTILES]
    return replace(policy, min_samples=max([policy.min_samples, *map(samples_for_quantile, shares)]))


def check_request(request: Request) -> Settings:
    """Check device, dtypes, counts and the weights file. Raises BakeoffError naming the option that is wrong."""
    device = host.usable_device(request.device)
    for batch in request.batches:
        if batch < 1:
            raise BakeoffError(f"--batch {batch}: a batch is at least 1", "bad-option")
    if len(request.batches) > MOST_BATCHES:
        text = f"--batch: {len(request.batches)} sizes; give at most {MOST_BATCHES}"
        raise BakeoffError(text, "bad-option")
    if not 1 <= request.processes <= MOST_PROCESSES:
        raise BakeoffError(f"--processes {request.processes}: give 1 to {MOST_PROCESSES}", "bad-option")
    if not 1 <= request.builds <= MOST_BUILDS:
        raise BakeoffError(f"--builds {request.builds}: give 1 to {MOST_BUILDS}", "bad-option")
    if not 0 <= request.threads <= MOST_THREADS:
        raise BakeoffError(f"--threads {request.threads}: give 0 for all cores, or 1 to {MOST_THREADS}", "bad-option")
    return Settings(
        device=device,
        threads=request.threads or host.usable_cores(),
        checkpoint=_checkpoint(request.checkpoint),
        dtypes=tuple(parse_dtype(dtype) for dtype in request.dtypes),
    )


def _checkpoint(asked: str) -> str:
    """The absolute path of a weights file that exists; a worker checks its content."""
    if not asked:
        return ""
    try:
        if not stat.S_ISREG(os.stat(asked).st_mode):
            raise BakeoffError(f"--checkpoint {asked}: not a file; give the weights file itself", "bad-checkpoint")
    except OSError as error:
        text = f"--checkpoint {asked}: {error.strerror}; give the path of the weights file"
        raise BakeoffError(text, "bad-checkpoint") from error
    return str(Path(asked).absolute())
