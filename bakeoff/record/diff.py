"""Differences between two records except times: source, versions, flags, threads, clocks, graph, operators, host."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from bakeoff.record.basis import backends_of
from bakeoff.record.folders import machine_of
from bakeoff.record.schema import Record

_MEASURED_STATE = {
    "cores_busy",
    "cpu_pressure",
    "energy_j",
    "gpu_readings",
    "gpu_watched_s",
    "helper_cores",
    "other_cpu_share",
    "power_cap_ns",
    "thermal_ns",
}
"""Device facts that vary from run to run."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that differs, with its value in both records as text; empty where a record lacks it."""

    what: str
    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.what}: {self.a or 'none'} | {self.b or 'none'}"


def differences(a: Record, b: Record) -> tuple[Difference, ...]:
    """Each fact that differs, in a fixed order; empty for two runs of the same configuration."""
    return tuple(Difference(what, left, right) for what, left, right in _pairs(a, b) if left != right)


def _pairs(a: Record, b: Record) -> Iterator[tuple[str, str, str]]:
    yield "subject", a.variant.subject, b.variant.subject
    yield "backend", a.variant.backend, b.variant.backend
    yield "dtype", a.variant.dtype, b.variant.dtype
    yield "device", a.variant.device, b.variant.device
    for name in ("batch", "weight_seed", "input_seed", "checkpoint", "threads", "commit", "dirty", "code"):
        yield name.replace("_", " "), str(getattr(a, name)), str(getattr(b, name))
    yield "machine", machine_of(a).id, machine_of(b).id
    sources = (record.source for record in (a, b))
    yield from _mappings(
        "source of",
        *({"component": each.component, "instrument": each.instrument} if each is not None else {} for each in sources),
    )
    yield from _mappings("source of backend", backends_of(a), backends_of(b))
    yield "weights", a.measurement.weights, b.measurement.weights
    yield from _mappings("config", a.config, b.config)
    yield from _mappings("host", asdict(a.host), asdict(b.host))
    yield from _mappings("version of", a.versions, b.versions)
    yield from _mappings("environment", a.environment, b.environment)
    yield from _mappings("setting", a.measurement.settings, b.measurement.settings)
    states = (
        {name: value for name, value in made.device_state.items() if name not in _MEASURED_STATE}
        for made in (a.measurement, b.measurement)
    )
    yield from _mappings("device", *states)
    proofs = (made.proof for made in (a.measurement, b.measurement))
    yield from _mappings("proof", *(asdict(proof) if proof is not None else {} for proof in proofs))
    builds = (made.build for made in (a.measurement, b.measurement))
    yield from _mappings("build", *({"cache": build.cache} if build is not None else {} for build in builds))


def _mappings(what: str, a: Mapping[str, object], b: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    for name in sorted({*a, *b}):
        left, right = a.get(name), b.get(name)
        if isinstance(left or right, dict):
            yield from _mappings(f"{what} {name}", _mapping(left), _mapping(right))
        else:
            yield f"{what} {name}", _text(left), _text(right)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(str(entry) for entry in value)
    return "" if value is None else str(value)
