"""`bakeoff list`: components with presets and workloads, and backends with why they cannot run here."""

from dataclasses import dataclass

from tabulate import tabulate

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.machine import host
from bakeoff.models import component_names, resolve_component
from bakeoff.models.types import DEVICES
from bakeoff.variant import use_of


@dataclass(frozen=True, slots=True)
class PresetLine:
    component: str
    preset: str
    label: str
    parameters: int
    workloads: tuple[str, ...]
    default_on: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BackendLine:
    backend: str
    summary: str
    device: str
    why_not: str
    """Why it cannot run on `device` here; empty if it can."""
    option_sets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    components: dict[str, str]
    presets: tuple[PresetLine, ...]
    backends: tuple[BackendLine, ...]
    evidence: dict[str, str]
    """For each backend, the evidence that it ran; without it a row is `fell_back`."""


def read(component: str = "") -> Listing:
    """Raises BakeoffError for an unknown component."""
    found = [resolve_component(name) for name in ([component] if component else component_names())]
    return Listing(
        components={
            entry.name: f"{entry.summary} ({entry.credit})" if entry.credit else entry.summary for entry in found
        },
        presets=tuple(
            PresetLine(
                entry.name,
                preset.name,
                preset.label,
                entry.parameters(preset.config),
                entry.workload_names(preset.config),
                tuple(device for device, name in entry.default_preset.items() if name == preset.name),
            )
            for entry in found
            for preset in entry.presets
        ),
        backends=read_backends(),
        evidence={name: meaning for name in backend_names() if (meaning := resolve_backend(name).evidence.checks)},
    )


def read_backends() -> tuple[BackendLine, ...]:
    """Each backend on each device."""
    lines = []
    for name in backend_names():
        backend = resolve_backend(name)
        for device in DEVICES:
            why_not = "" if device in backend.capability.devices else f"does not run on {device}"
            defaults = [one for one in backend.defaults if device in one.devices]
            texts = ["+".join(filter(None, (str(use_of(backend, one.options)), one.then))) for one in defaults]
            options = defaults[0].options if defaults else backend.options()
            why_not = why_not or host.missing_device(device) or backend.unavailable(options, device) or ""
            sets = tuple(dict.fromkeys(texts))  # one may be listed for several dtypes
            lines.append(BackendLine(name, backend.summary, device, why_not, sets))
    return tuple(lines)


def render(listing: Listing) -> str:
    parts = [f"{name}: {summary}" for name, summary in listing.components.items()]
    parts += [
        "",
        tabulate(
            [
                [
                    line.component,
                    line.preset,
                    f"{line.parameters:,}",
                    ", ".join(line.workloads),
                    "default on " + ", ".join(line.default_on) if line.default_on else "",
                    line.label,
                ]
                for line in listing.presets
            ],
            headers=("component", "preset", "parameters", "workloads", "", "label"),
            disable_numparse=True,
            colalign=("left", "left", "right", "left", "left", "left"),
        ),
        "",
        tabulate(
            [
                [line.backend, line.device, line.why_not or "yes", ", ".join(line.option_sets)]
                for line in listing.backends
            ],
            headers=("backend", "device", "runs here", "option sets"),
            disable_numparse=True,
        ),
        "",
        "evidence that a backend ran; without it a row is `fell_back`:",
        *(f"{name}: {meaning}" for name, meaning in listing.evidence.items()),
    ]
    return "\n".join(parts)
