"""Records of the programs of `loops:Small`, of this machine and code."""

from dataclasses import replace
from functools import cache
from typing import Any

from records import measurement, record

from bakeoff.machine import host
from bakeoff.machine.identity import this_machine
from bakeoff.record.schema import Record, Source
from bakeoff.record.source import backend_source, component_hash, instrument_hash
from bakeoff.variant import BackendUse, parse_variant

EAGER, COMPILED = "toy:tiny.world/eager/fp32@cpu", "toy:tiny.world/inductor[freezing]/bf16@cpu"
PICTURE = "toy:tiny.picture/eager/fp32@cpu"
QUANTISED = "toy:tiny.world/int8+inductor/bf16@cpu"


COMPONENT, INSTRUMENT = component_hash("toy"), instrument_hash()
of_backend = cache(backend_source)


def own(variant: str, ms: float, status: str = "ok", **changes: Any) -> Record:
    """A record of this machine and code, with one thread."""
    parsed = parse_variant(variant)
    uses = tuple(BackendUse(use.name, tuple((n, v) for n, v in use.options)) for use in parsed.backends)
    source = Source(COMPONENT, tuple(of_backend(use.name) for use in parsed.backends), INSTRUMENT)
    return replace(
        record(made=measurement([ms] * 5, status)),
        **{
            "variant": replace(parsed, backends=uses),
            "threads": 1,
            "source": source,
            "machine": this_machine("cpu"),
            "versions": host.read_versions(),
            **changes,
        },
    )
