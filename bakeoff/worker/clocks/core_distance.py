"""How long a cache line takes from one CPU to another and back: what changes when a hypervisor moves virtual CPUs.

Two threads, pinned to two CPUs, take turns in writing one word. Between cores that share an L3 a round trip takes about
60 ns, between two core complexes of one socket about 300 ns. Pinning within a virtual machine does not fix the
distance, because the hypervisor decides where a virtual CPU runs.
"""

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from statistics import median

from bakeoff.machine.paths import cache_folder

MOST_PAIRS = 3
_BATCHES, _ROUND_TRIPS = 8, 100
_FOLDER = "instrument"
_COMPILE_S = 60.0
_SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define PATIENCE_NS 20000000LL

typedef struct { int cpu, batches, trips; double *batch_ns; } Side;

static _Alignas(128) atomic_int turn;
static _Alignas(128) atomic_int failed;

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set)) atomic_store(&failed, 1);
}

static int await(int value) {  /* 0 once it is this side's turn, 1 after an error or 20 ms */
    long long end = 0;
    for (unsigned spins = 1; atomic_load_explicit(&turn, memory_order_acquire) != value; spins++) {
        if (spins % 4096 == 0) {
            if (atomic_load(&failed)) return 1;
            if (!end) end = now() + PATIENCE_NS;
            else if (now() > end) { atomic_store(&failed, 1); return 1; }
        }
    }
    return 0;
}

static void *ask(void *argument) {
    Side *side = argument;
    pin(side->cpu);
    for (int batch = 0; batch <= side->batches && !atomic_load(&failed); batch++) {
        long long started = now();
        for (int i = 0; i < side->trips; i++) {
            atomic_store_explicit(&turn, 1, memory_order_release);
            if (await(0)) break;
        }
        if (batch) side->batch_ns[batch - 1] = (double)(now() - started) / side->trips;
    }
    return 0;
}

static void *answer(void *argument) {
    Side *side = argument;
    pin(side->cpu);
    for (int i = (side->batches + 1) * side->trips; i && !await(1); i--)
        atomic_store_explicit(&turn, 0, memory_order_release);
    return 0;
}

/* Nanoseconds of a round trip in each batch, after one batch that is not kept; returns 0, or 1 after an error.
   The caller's own thread is not pinned, so that it stays where the calls had it. */
int core_distance(int first, int second, int batches, int trips, double *batch_ns) {
    pthread_t asking, answering;
    Side one = {first, batches, trips, batch_ns}, other = {second, batches, trips, 0};
    atomic_store(&turn, 0);
    atomic_store(&failed, 0);
    if (pthread_create(&answering, 0, answer, &other)) return 1;
    if (pthread_create(&asking, 0, ask, &one)) atomic_store(&failed, 1);
    else pthread_join(asking, 0);
    pthread_join(answering, 0);
    return atomic_load(&failed);
}
"""


def core_distance_reader(device: str) -> Callable[[], float | None] | None:
    """A function that reads nanoseconds of a round trip, in less than a millisecond; None where it cannot be read.

    It reads between the first CPU of the affinity mask and each of up to three others, and returns the largest, or None
    after a reading that failed. There is no reader for CUDA, for one CPU, and without a C compiler ($CC, cc or gcc).
    """
    cpus = sorted(os.sched_getaffinity(0))
    if device != "cpu" or len(cpus) < 2:
        return None
    library = _library()
    if library is None:
        return None
    pairs = [(cpus[0], cpus[1 + number * (len(cpus) - 1) // MOST_PAIRS]) for number in range(MOST_PAIRS)]
    return lambda: _largest(library, sorted(set(pairs)))


def cores_moved(readings_ns: Sequence[float]) -> tuple[float, float] | None:
    """Typical small and large reading, where the larger third is over twice the smaller: CPUs moved meanwhile."""
    third = len(readings_ns) // 3
    if third < 2:
        return None
    ordered = sorted(readings_ns)
    low, high = median(ordered[:third]), median(ordered[-third:])
    return (low, high) if high > 2 * low else None


def _largest(library: ctypes.CDLL, pairs: Sequence[tuple[int, int]]) -> float | None:
    found = []
    for first, second in pairs:
        batches = (ctypes.c_double * _BATCHES)()
        if library.core_distance(first, second, _BATCHES, _ROUND_TRIPS, batches):
            return None
        found.append(median(batches))  # a batch in which a thread lost its CPU is an outlier
    return max(found)


@cache
def _library() -> ctypes.CDLL | None:
    command = shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or shutil.which("gcc") or ""]
    if not shutil.which(command[0]):
        return None
    text = f"{_SOURCE}{command}"
    path = cache_folder() / _FOLDER / f"core_distance-{hashlib.sha256(text.encode()).hexdigest()[:16]}.so"
    try:
        if not path.exists():
            _compile(command, path)
        library = ctypes.CDLL(str(path))
        library.core_distance.argtypes = [*[ctypes.c_int] * 4, ctypes.POINTER(ctypes.c_double)]
    except (OSError, subprocess.SubprocessError):
        return None
    return library


def _compile(command: Sequence[str], path: Path) -> None:
    """Compile into a temporary folder beside `path` and rename. Raises OSError or SubprocessError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".compiling-") as folder:
        source, built = Path(folder, "core_distance.c"), Path(folder, "core_distance.so")
        source.write_text(_SOURCE, encoding="utf-8")
        subprocess.run(
            [*command, "-std=gnu11", "-O2", "-shared", "-fPIC", "-pthread", "-o", str(built), str(source)],
            check=True,
            capture_output=True,
            timeout=_COMPILE_S,
        )
        built.rename(path)
