"""Settings of a profiler: a frozen dataclass, and how its TOML or YAML file is read.

The keys are those of Inferix' `ProfilingConfig`, which users know. Every key does what it says; an unknown key is
refused, so that a misspelt one is not ignored.
"""

import reprlib
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta

from bakeoff.machine.terminal import one_line
from bakeoff.models.errors import BakeoffError, meant
from bakeoff.models.plain_file import open_plain
from bakeoff.models.types import Scalar

Flag = Annotated[bool, Meta(description="true or false")]
Seconds = Annotated[float, Meta(ge=0.05, le=3600, description="a number from 0.05 to 3600")]
Points = Annotated[int, Meta(ge=2, le=1_000_000, description="a whole number from 2 to 1000000")]
Share = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
ReportFormat = Annotated[Literal["html", "json", "both"], Meta(description="html, json or both")]
Folder = Annotated[str, Meta(min_length=1, pattern="^[^\\0\ud800-\udfff]*$", description="text")]
Tags = Annotated[Mapping[str, Scalar], Meta(description="a table of tags")]
SECTION = "profiling"
"""Table of a file that contains the keys; they may also be at the top of the file."""
IGNORED = ("profile_inference_steps", "profile_vae_decode", "profile_text_encoding")
"""Keys of Inferix that nothing reads in Inferix either: they are accepted with a warning that they do nothing."""
MOST_TAGS, MOST_TAG_LETTERS = 64, 1024
_REPR = reprlib.Repr()
_REPR.maxlevel = 2
MOST_BYTES = 1 << 20
"""Largest size of a settings file."""
_INT64 = 1 << 63
"""Integers in a record's JSON have 64 bits."""
_GPU: Mapping[str, tuple[str, ...]] = {
    "monitor_gpu_memory": ("memory",),
    "monitor_gpu_utilization": ("busy", "sm_active"),
    "monitor_gpu_temperature": ("temperature",),
    "monitor_gpu_power": ("power", "clocks", "throttle"),
}
_CPU: Mapping[str, tuple[str, ...]] = {
    "monitor_cpu_usage": ("process", "load", "energy"),
    "monitor_system_memory": ("memory",),
}
"""Quantities of a monitor by key of the settings."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of what is recorded and shown. The defaults record nothing."""

    enabled: Flag = False
    real_time_display: Flag = False
    """Show the unit, shares of phases, rates and memory while a session runs."""
    display_interval: Seconds = 5.0
    """Seconds between refreshes of the display."""
    gpu_monitor_interval: Seconds = 0.5
    """Seconds between samples of a GPU."""
    cpu_monitor_interval: Seconds = 1.0
    monitor_gpu_memory: Flag = True
    monitor_gpu_utilization: Flag = True
    """Share of the last sample period in which any kernel ran, and SM activity if the GPU reports it."""
    monitor_gpu_temperature: Flag = True
    monitor_gpu_power: Flag = True
    """Power, energy, clocks and reasons for lower clocks."""
    monitor_cpu_usage: Flag = True
    """CPU time of the process and its descendants, the machine's load, and the CPU's energy if RAPL provides it."""
    monitor_system_memory: Flag = True
    generate_final_report: Flag = True
    """Write the page or JSON at the end of a session; the record is written in any case."""
    report_format: ReportFormat = "both"
    save_raw_data: Flag = False
    """Write every sample of the monitors beside the record."""
    output_dir: Folder = "profiles"
    max_data_points: Points = 2_000
    """Largest number of points of a series; neighbours merge beyond it."""
    profile_diffusion_steps: Flag = True
    """Record steps, the finest level."""
    profile_block_computation: Flag = True
    """Record units."""
    profile_model_parameters: Flag = True
    overhead_limit: Share = 0.01
    """Largest share of a session's time that recording may cost; above it the finest level is dropped, with a
    finding."""
    session_tags: Tags = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check all values. Raises BakeoffError, code bad-option, for a value that its key does not accept."""
        for key, kind in _kinds().items():
            value = getattr(self, key)
            if key == "session_tags" and isinstance(value, Mapping):
                check_tags(value)
                continue
            try:
                object.__setattr__(self, key, msgspec.convert(value, kind))
            except msgspec.ValidationError as error:
                text = f"{key} is {_short(value)}; give {kind.__metadata__[0].description}"
                raise BakeoffError(text, "bad-option") from error

    @classmethod
    def load(cls, path: str | Path) -> "Settings":
        """Read settings from a .toml, .yaml or .yml file.

        Raises BakeoffError if the file cannot be read, or has an unknown key or a wrong value.
        """
        return cls.from_mapping(_read(Path(path)), str(path))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], origin: str = "settings") -> "Settings":
        """Make settings from keys at the top of a mapping, or in its table `profiling`; `origin` names it in messages.

        Warns once of keys that do nothing (`IGNORED`). Raises BakeoffError as `load` does.
        """
        found = _keys(values, origin)
        idle = [key for key in IGNORED if key in found]
        if idle:
            found = {key: value for key, value in found.items() if key not in idle}
            text = f"{origin}: nothing reads {', '.join(idle)}, here or in Inferix; name stages in the code instead"
            warnings.warn(text, stacklevel=2)
        unknown = [key for key in found if key not in _kinds()]
        if unknown:
            first, known = unknown[0], sorted(_kinds())
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            text = f"{origin}: unknown key {_short(first)}{more}{meant(str(first), known)}; known: {', '.join(known)}"
            raise BakeoffError(text, "bad-option")
        try:
            return cls(**found)
        except BakeoffError as error:
            raise BakeoffError(f"{origin}: {error}", error.code) from error

    def quantities(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return what a monitor must read, of GPUs and of the CPU, by the names in a MonitorRequest."""

        def chosen(table: Mapping[str, tuple[str, ...]]) -> tuple[Any, ...]:
            return tuple(name for key, names in table.items() if getattr(self, key) for name in names)

        return chosen(_GPU), chosen(_CPU)

    def tagged(self, tags: Mapping[str, Scalar]) -> "Settings":
        """Return a copy with these tags added. Raises BakeoffError for tags that cannot be kept."""
        return replace(self, session_tags={**self.session_tags, **tags})


class ProfilingConfig:
    """Mutable settings with the defaults of Inferix; changes count from the next session on."""

    def __init__(self, **values: Any) -> None:
        """Set the given keys.

        Raises BakeoffError for an unknown key or a wrong value, and warns of keys that do nothing.
        """
        Settings.from_mapping(values, type(self).__name__)
        vars(self).update({**dict.fromkeys(IGNORED), **asdict(Settings()), **_INFERIX, **values})

    def settings(self) -> Settings:
        """Return the present values as Settings. Raises BakeoffError as the constructor does."""
        known = {name: value for name, value in vars(self).items() if name not in IGNORED}
        return Settings.from_mapping(known, type(self).__name__)


_INFERIX = {"real_time_display": True, "max_data_points": 10_000, "output_dir": "profiling_reports"}


@cache
def _kinds() -> Mapping[str, Any]:
    return get_type_hints(Settings, include_extras=True)


def check_tags(tags: Mapping[str, Any]) -> None:
    """Raise BakeoffError if there are too many tags, if one is too long, or if a value is no finite scalar."""
    if len(tags) > MOST_TAGS:
        raise BakeoffError(f"{len(tags)} tags; give at most {MOST_TAGS}", "bad-option")
    for key, value in tags.items():
        if not isinstance(key, str) or not isinstance(value, str | int | float | bool | None):
            text = f"tag {_short(key)} is of type {type(value).__name__}; give text, a number, a truth or nothing"
            raise BakeoffError(text, "bad-option")
        if isinstance(value, float) and not isfinite(value):
            raise BakeoffError(f"tag {_short(key)} is {value}; give a finite number", "bad-option")
        if isinstance(value, int) and not -_INT64 <= value < _INT64:
            raise BakeoffError(f"tag {_short(key)} is beyond 64 bits; give it as text", "bad-option")
        if max(len(key), len(str(value))) > MOST_TAG_LETTERS:
            raise BakeoffError(f"tag {_short(key)} is longer than {MOST_TAG_LETTERS} characters", "bad-option")
        if not _is_text(key) or not _is_text(str(value)):
            raise BakeoffError(f"tag {_short(key)} is no text that UTF-8 can hold; give other characters", "bad-option")


def _is_text(value: str) -> bool:
    """Return whether UTF-8 can encode the text, since YAML and JSON can spell half of a surrogate pair."""
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


def _short(value: object) -> str:
    try:
        return _REPR.repr(value)
    except ValueError:  # an int of more digits than Python prints
        return f"a huge {type(value).__name__}"


def _keys(values: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Return the keys of a mapping, or of its table `profiling`. Raises BakeoffError for keys beside that table."""
    found = dict(values)
    if SECTION not in found:
        return found
    inner = found.pop(SECTION)
    if found or not isinstance(inner, Mapping):
        stray = ", ".join(map(str, list(found)[:5])) or SECTION
        text = f"{origin}: {SECTION} must be a table, and all keys must be in it; move {stray}"
        raise BakeoffError(text, "bad-option")
    return dict(inner)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        with open_plain(path) as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        text = f"settings {path} cannot be read: {getattr(error, 'strerror', error)}; give a .toml or .yaml file"
        raise BakeoffError(text, "not-readable") from error
    if len(data) > MOST_BYTES:
        raise BakeoffError(f"settings {path} are larger than {MOST_BYTES >> 20} MiB; give a smaller file", "bad-option")
    kind, decode = "TOML", msgspec.toml.decode
    if path.suffix in (".yaml", ".yml"):
        kind, decode = "YAML", msgspec.yaml.decode
    try:
        found = decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise BakeoffError(f"settings {path} are no {kind}: {one_line(str(error))[:300]}", "bad-option") from error
    if isinstance(found, Mapping):
        return found
    raise BakeoffError(f"settings {path} hold no keys; write them as key: value", "bad-option")
