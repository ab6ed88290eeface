"""The pages of `bakeoff list`: components with presets and workloads, and backends with why they cannot run here."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.machine import host
from bakeoff.models import component_names, resolve_component
from bakeoff.models.grouping import grouped
from bakeoff.models.types import DEVICES
from bakeoff.report.document import Block, Cell, Document, Heading, Section, Table, Text, blocks, listed, number, table
from bakeoff.variant import use_of


@dataclass(frozen=True, slots=True)
class BackendLine:
    """A backend on one device."""

    backend: str
    summary: str
    device: str
    why_not: str
    """Reason why it cannot run on `device` here; empty if it can."""
    option_sets: tuple[str, ...]


Listing = dict[str, Any]
"""Components, presets and backends as `--json` prints them, and what shows that a backend ran (`evidence`): a row
without it is `fell_back`."""


def read(component: str = "") -> Listing:
    """Return all components, or only `component`, and all backends. Raises BakeoffError for an unknown component."""
    found = [resolve_component(name) for name in ([component] if component else component_names())]
    return {
        "components": {
            entry.name: f"{entry.summary} ({entry.credit})" if entry.credit else entry.summary for entry in found
        },
        "presets": [
            {
                "component": entry.name,
                "preset": preset.name,
                "label": preset.label,
                "parameters": preset.parameters,
                "workloads": entry.workload_names(preset.config),
                "default_on": [device for device, name in entry.default_preset.items() if name == preset.name],
            }
            for entry in found
            for preset in entry.presets
        ],
        "backends": read_backends(),
        "evidence": {name: meaning for name in backend_names() if (meaning := resolve_backend(name).checks)},
    }


def read_backends() -> tuple[BackendLine, ...]:
    """Return a line for each backend on each device."""
    lines = []
    for name in backend_names():
        backend = resolve_backend(name)
        for device in DEVICES:
            why_not = "" if device in backend.devices else _never(device)
            defaults = [one for one in backend.defaults if device in one.devices]
            texts = ["+".join(filter(None, (str(use_of(backend, one.options)), one.then))) for one in defaults]
            options = defaults[0].options if defaults else backend.options()
            why_not = why_not or host.missing_device(device) or backend.unavailable(options, device) or ""
            sets = tuple(dict.fromkeys(texts))  # one may be listed for several dtypes
            lines.append(BackendLine(name, backend.summary, device, why_not, sets))
    return tuple(lines)


def page(listing: Listing) -> Document:
    """Return the page of all components and backends at a glance."""
    hint = Text("presets, workloads, evidence, all sets of options: bakeoff list COMPONENT", tone="faint")
    return Document("Components and backends", blocks(_components(listing), *backends(listing["backends"]), hint))


def page_of_component(listing: Listing) -> Document:
    """Return the page of a listing's only component, with presets and workloads, and of the backends in detail."""
    ((name, summary),) = listing["components"].items()
    presets = table(
        ("preset", number("parameters"), "default on", Heading("label", leaves=1)),
        [
            (one["preset"], f"{one['parameters']:,}", ", ".join(one["default_on"]), one["label"])
            for one in listing["presets"]
        ],
    )
    sets = [Text(", ".join(one.option_sets), f"{one.backend} on {one.device}") for one in listing["backends"]]
    summaries = {one.backend: one.summary for one in listing["backends"]}
    evidence = [
        Text("; it ran where ".join(filter(None, (summary, listing["evidence"].get(backend)))), backend)
        for backend, summary in summaries.items()
    ]
    return Document(
        name,
        blocks(
            Text(summary, name),
            presets,
            listed(Text(", ".join(one["workloads"]), "workloads") for one in listing["presets"]),
            *backends(listing["backends"], with_sets=False),
            listed([text for text in sets if text.text], "sets of options that sweeps take by themselves"),
            listed(evidence, "what each is, and the evidence that it ran; without it a row is fell_back"),
        ),
    )


def _components(listing: Listing) -> Table | None:
    """Return a table of components: what each is, and its default presets with their millions of parameters."""
    rows = []
    for name, summary in listing["components"].items():
        presets = [one for one in listing["presets"] if one["component"] == name]
        defaults = [
            ", ".join(
                f"{one['preset']}: {one['parameters'] / 1e6:,.4g} M" for one in presets if device in one["default_on"]
            )
            for device in DEVICES
        ]
        others = ", ".join(one["preset"] for one in presets if not one["default_on"])
        rows.append((name, *defaults, others, re.split("[:;]", summary)[0]))
    default = (Heading(f"default on {device}") for device in DEVICES)
    return table(("component", *default, "other presets", Heading("what it is", leaves=1)), rows)


def backends(lines: Sequence[BackendLine], with_sets: bool = True) -> tuple[Block | Section, ...]:
    """Return a table with a row for each backend, and below it each reason why some cannot run here."""
    made = table(
        ("backend", *DEVICES, "sets of options"),
        [
            (name, *map(_word, found), _some_sets(found) if with_sets else "")
            for name, found in grouped((line.backend, line) for line in lines).items()
        ],
    )
    return blocks(made, listed(_reasons(lines), "cannot run here"))


def _word(line: BackendLine) -> Cell:
    if not line.why_not:
        return Cell("yes", "yes", tone="good")
    return Cell("-", "", tone="faint") if line.why_not == _never(line.device) else Cell("no", "no", tone="bad")


def _never(device: str) -> str:
    return f"does not run on {device}"


def _some_sets(lines: Sequence[BackendLine]) -> str:
    """Return a backend's first set of options, if possible on a device where it runs here, and how many others."""
    ready = sorted(lines, key=lambda line: bool(line.why_not))
    sets = list(dict.fromkeys(text for line in ready for text in line.option_sets))
    return f"{sets[0]} and {len(sets) - 1} more" if len(sets) > 1 else "".join(sets)


def _reasons(lines: Sequence[BackendLine]) -> Iterator[Text]:
    """Yield each reason why backends cannot run on devices that they are made for."""
    made_for = [line for line in lines if line.why_not != _never(line.device)]
    having = grouped(((line.device, line.why_not), line.backend) for line in made_for if line.why_not)
    for (device, why_not), names in having.items():
        every = len(names) == sum(line.device == device for line in made_for)
        yield Text(why_not, f"all on {device}" if every else f"{', '.join(names)} on {device}")
