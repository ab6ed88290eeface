"""How long plain eager takes at each size of a workload: what shows that an engine computes more than it was asked."""

import time
from statistics import median

from bakeoff.process.jobs import Subject
from bakeoff.worker.subject import LoadedSubject, cast_inputs, synchronise
from bakeoff.worker.torch_flags import flags

_WARM_UP, _ROUNDS = 2, 15
_SECONDS = 3.0
"""After which no round begins."""


def time_sizes(loaded: LoadedSubject, dtype: str, subject: Subject) -> tuple[int, ...]:
    """Nanoseconds of a call at the usual size and at each other one: medians over rounds that call each once.

    The module is in that dtype and on the subject's device already.
    """
    inputs = [
        tuple(cast_inputs(loaded.workload, given, dtype, subject.device).values())
        for given in (loaded.sets[0], *(sets[0] for sets in loaded.sized))
    ]
    samples: list[list[int]] = [[] for _ in inputs]
    began = time.monotonic()
    with flags(dtype, subject.threads, search=subject.device == "cuda"):
        for number in range(_WARM_UP + _ROUNDS):
            if number > _WARM_UP and time.monotonic() - began > _SECONDS:
                break
            for tensors, found in zip(inputs, samples, strict=True):
                synchronise(subject.device)
                started = time.perf_counter_ns()
                loaded.module(*tensors)
                synchronise(subject.device)
                if number >= _WARM_UP:
                    found.append(time.perf_counter_ns() - started)
    return tuple(round(median(found)) for found in samples)
