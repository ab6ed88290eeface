"""Finds how two records differ, times apart: source, versions, flags, threads, clocks, graph, operators, host."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from bakeoff.models.words import counted
from bakeoff.record.schema import KernelTime, ProofRecord, Record, TraceRecord

_MEASURED_STATE = {
    "core_distance_high_ns",  # the time of a cache line between two CPUs: published records have it, new ones do not
    "core_distance_low_ns",
    "cores_busy",
    "cpu_pressure",
    "driver_cpu_s",
    "energy_j",
    "gpu_readings",
    "gpu_watched_s",
    "helper_cores",
    "other_cpu_share",
    "power_cap_ns",
    "thermal_ns",
}
"""Device facts that vary from run to run."""
_UNITS = {"bytes": "MiB", "ns": "ns", "ms": "ms", "s": "s", "mhz": "MHz", "w": "W", "c": "C"}
"""Suffixes of the names of facts, and the units in which their values are printed."""
_HASH = re.compile(r"\b[0-9a-f]{16,}\b")


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that differs, with its value in both records as text; empty if a record lacks it."""

    kind: str
    """Kind of fact, as in `version of`; empty if there is only one fact of its kind."""
    name: str
    a: str
    b: str
    kinds: str = ""
    """The kind in the plural, as in `versions`."""

    @property
    def what(self) -> str:
        return f"{self.kind} {self.name}".lstrip()


def differences(a: Record, b: Record) -> tuple[Difference, ...]:
    """Return the facts that differ, in a fixed order; empty for two runs of the same configuration."""
    return tuple(pair for pair in _pairs(a, b) if pair.a != pair.b)


def _pairs(a: Record, b: Record) -> Iterator[Difference]:
    for name in ("subject", "backend", "dtype", "device"):
        yield _fact(name, getattr(a.variant, name), getattr(b.variant, name))
    for name in ("batch", "weight_seed", "input_seed", "checkpoint", "threads", "commit", "dirty", "code"):
        yield _fact(name, getattr(a, name), getattr(b, name))
    told = "id" if a.machine.id != b.machine.id else "key"  # clones of one id may have two processors
    yield _fact("machine", getattr(a.machine, told), getattr(b.machine, told))
    yield from _facts("source of", "sources", _sources(a), _sources(b))
    yield _fact("weights", a.measurement.weights, b.measurement.weights)
    yield from _facts("config", "values of the config", a.config, b.config)
    yield from _facts("host", "facts of the host", asdict(a.host), asdict(b.host))
    yield from _facts("version of", "versions", a.versions, b.versions)
    yield from _facts("environment", "environment variables", a.environment, b.environment)
    yield from _facts("policy", "times of sampling", a.policy.window, b.policy.window)
    yield from _facts("setting", "settings", a.measurement.settings, b.measurement.settings)
    yield from _facts("device", "facts of the device", _state(a), _state(b))
    yield from _proofs(a.measurement.proof or ProofRecord(), b.measurement.proof or ProofRecord())
    builds = (made.build for made in (a.measurement, b.measurement))
    yield _fact("cache of the build", *(build.cache if build is not None else None for build in builds))


def _proofs(a: ProofRecord, b: ProofRecord) -> Iterator[Difference]:
    for name in ("fell_back", "graphs", "graph_breaks", "recompiles", "graph_hash", "incomplete"):
        yield _fact(name, getattr(a, name), getattr(b, name))
    yield from _facts("proof", "facts of the proof", a.facts, b.facts)
    inside, outside = (a.operators_inside, b.operators_inside), (a.operators_outside, b.operators_outside)
    yield from _facts("operator inside", "operators inside", *inside, _farthest_first(*inside))
    yield from _facts("operator outside", "operators outside", *outside, _farthest_first(*outside))
    yield from _facts("quantised layer", "quantised layers", a.quantised, b.quantised)
    yield from _facts("layer not quantised", "layers not quantised", a.skipped, b.skipped)
    if a.trace is not None and b.trace is not None:
        yield from _kernels(a.trace, b.trace)
    else:
        traces = (counted(trace.kernel_count, "kernel") if trace is not None else None for trace in (a.trace, b.trace))
        yield _fact("traced call", *traces)


def _kernels(a: TraceRecord, b: TraceRecord) -> Iterator[Difference]:
    """Yield the kernels that two traced calls do not call equally often, the longest first; times are not compared.

    A record states only its longest kernels. If both calls ran the same number of kernels, a kernel that only one
    record states is not reported, because it may just be shorter in the other.
    """
    yield _fact("number of kernels", a.kernel_count, b.kernel_count)
    sides = [{kernel.name: kernel for kernel in trace.kernels} for trace in (a, b)]
    longest = sorted((*a.kernels, *b.kernels), key=lambda kernel: -kernel.ns)
    for name in dict.fromkeys(kernel.name for kernel in longest):
        left, right = (kernels.get(name) for kernels in sides)
        counts = (left.calls, right.calls) if left and right else (a.kernel_count, b.kernel_count)
        if len({*counts}) > 1:
            yield Difference("kernel", name, _kernel(left, a), _kernel(right, b), "kernels")


def _kernel(kernel: KernelTime | None, trace: TraceRecord) -> str:
    if kernel is None:
        return "" if trace.kernel_count == len(trace.kernels) else f"not among the {len(trace.kernels)} longest"
    return f"{counted(kernel.calls, 'call', form='g')}, {kernel.ns / 1e6:.4g} ms"


def _sources(record: Record) -> dict[str, str]:
    of = {name.removeprefix("the "): source for name, source in record.sources.items()}
    return {**of, "instrument": record.instrument}


def _state(record: Record) -> dict[str, object]:
    state = record.measurement.device_state
    return {name: value for name, value in state.items() if name not in _MEASURED_STATE}


def _farthest_first(a: Mapping[str, int], b: Mapping[str, int]) -> list[str]:
    return sorted({*a, *b}, key=lambda name: (-abs(a.get(name, 0) - b.get(name, 0)), name))


def _fact(name: str, a: object, b: object) -> Difference:
    return Difference("", name.replace("_", " "), _text(a), _text(b))


def _facts(
    kind: str, kinds: str, a: Mapping[str, object], b: Mapping[str, object], order: Iterable[str] = ()
) -> Iterator[Difference]:
    left, right = dict(_flat(a)), dict(_flat(b))
    for name in order or sorted({*left, *right}):
        stem, _, end = name.rpartition("_")
        unit = _UNITS.get(end, "") if stem else ""
        a_text, b_text = (_text(side.get(name), unit) for side in (left, right))
        yield Difference(kind, stem if unit else name, a_text, b_text, kinds)


def _flat(values: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    """Yield every nested value with its path. Mappings in a list are identified by their names, or else by their
    indices."""
    for key, value in values.items():
        path = f"{before}{key}"
        if isinstance(value, list | tuple) and value and all(isinstance(entry, dict) for entry in value):
            names = [str(entry.get("name", "")) for entry in value]
            named = all(names) and len({*names}) == len(names)
            value = dict(zip(names if named else map(str, range(len(value))), value, strict=True))
        if isinstance(value, dict):
            yield from _flat(value, f"{path} ")
        else:
            yield path, value


def _text(value: object, unit: str = "") -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_text(entry) for entry in value)
    if unit and isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value / (1 << 20):.0f} MiB" if unit == "MiB" else f"{value:.10g} {unit}"
    return "" if value is None else _HASH.sub(lambda found: found[0][:12], str(value))
