"""Finds what was changed between two records: kinds of facts, an earlier one of which often brings later ones."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from bakeoff.record.schema import ProofRecord, Record

_UNITS = {"bytes": "MiB", "s": "s", "mhz": "MHz"}
"""Suffixes of the names of facts, and the units in which their values are printed."""
_HASH = re.compile(r"\b[0-9a-f]{16,}\b")


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that differs, with its value in both records as text; empty if a record lacks it."""

    kind: str
    """Kind of fact in the plural, as in `versions`; the fact itself if there is only one of its kind."""
    what: str
    """The fact, as in `version of torch`."""
    name: str
    a: str
    b: str


def differences(a: Record, b: Record) -> Iterator[Difference]:
    """Yield the facts that differ, by kind; nothing for two runs of the same configuration."""
    yield from (pair for pair in _pairs(a, b) if pair.a != pair.b)


def _pairs(a: Record, b: Record) -> Iterator[Difference]:
    for name in ("subject", "backend", "dtype", "device"):
        yield _fact(name, getattr(a.variant, name), getattr(b.variant, name))
    key = "id" if a.machine.id != b.machine.id else "key"  # clones of one id may have two processors
    yield _fact("machine", getattr(a.machine, key), getattr(b.machine, key))
    if a.objective.goal == b.objective.goal:
        yield _fact("objective", a.objective, b.objective)
    for name in ("threads", "batch", "checkpoint", "weight_seed", "input_seed"):
        yield _fact(name, getattr(a, name), getattr(b, name))
    yield from _facts("environment variables", "environment", a.environment, b.environment)
    yield from _facts("settings", "setting", a.measurement.settings, b.measurement.settings)
    yield from _facts("versions", "version of", a.versions, b.versions)
    yield from _facts("values of the config", "config", a.config, b.config)
    yield from _graphs(a.measurement.proof or ProofRecord(), b.measurement.proof or ProofRecord())
    yield from _facts("sources", "source of", _sources(a), _sources(b))
    yield _fact("weights", a.measurement.weights, b.measurement.weights)
    yield from _facts("facts of the host", "host", asdict(a.host), asdict(b.host))
    builds = (made.build for made in (a.measurement, b.measurement))
    yield _fact("cache of the build", *(build.cache if build is not None else None for build in builds))
    yield from _facts("times of sampling", "policy", a.policy.window, b.policy.window)


def _graphs(a: ProofRecord, b: ProofRecord) -> Iterator[Difference]:
    for name in ("graphs", "graph_breaks", "graph_hash"):
        yield _fact(name, getattr(a, name), getattr(b, name), "graph")
    yield from _facts("graph", "operator inside", a.operators_inside, b.operators_inside)
    yield from _facts("graph", "operator outside", a.operators_outside, b.operators_outside)
    if a.trace is not None and b.trace is not None:
        yield _fact("number of kernels", a.trace.kernel_count, b.trace.kernel_count, "graph")


def _sources(record: Record) -> dict[str, str]:
    of = {name.removeprefix("the "): source for name, source in record.sources.items()}
    return {**of, "instrument": record.instrument}


def _fact(name: str, a: object, b: object, kind: str = "") -> Difference:
    name = name.replace("_", " ")
    return Difference(kind or name, name, name, _text(a), _text(b))


def _facts(kind: str, one: str, a: Mapping[str, object], b: Mapping[str, object]) -> Iterator[Difference]:
    left, right = dict(_flat(a)), dict(_flat(b))
    for name in sorted({*left, *right}):
        stem, _, end = name.rpartition("_")
        unit = _UNITS.get(end, "") if stem else ""
        a_text, b_text = (_text(side.get(name), unit) for side in (left, right))
        name = stem if unit else name
        yield Difference(kind, f"{one} {name}", name, a_text, b_text)


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
