"""What a profile is of: a pipeline, a component's program, or one variant of it."""

from dataclasses import dataclass
from pathlib import Path

from bakeoff.models import component_names
from bakeoff.models.brought.about import read_about
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines import pipeline_names
from bakeoff.models.pipelines.single import PREFIX
from bakeoff.plan.brought import brought_reference
from bakeoff.variant import parse_variant


@dataclass(frozen=True, slots=True)
class ProfileSubject:
    """The parts of a request that a subject decides."""

    pipeline: str
    preset: str
    mixes: tuple[str, ...]
    options: tuple[str, ...]
    device: str = ""


def subject_of(text: str, preset: str, mixes: tuple[str, ...], options: tuple[str, ...]) -> ProfileSubject:
    """Read a pipeline's name, `component:preset.workload`, or a variant's string.

    Raises BakeoffError for a subject that is none of these, and where it is a variant and a mix is given as well.
    """
    if text in pipeline_names() or (":" in text and _is_module(text)):
        return ProfileSubject(text, preset, mixes, options)
    if "/" in text:
        return _variant(text, preset, mixes, options)
    component, colon, rest = text.partition(":")
    name, dot, workload = rest.partition(".")
    if not colon or not name or not dot or not workload:
        known = ", ".join(pipeline_names())
        example = text if text in component_names() else "wm"
        form = f"give a pipeline ({known}), or a component's program as in {example}:PRESET.WORKLOAD"
        raise BakeoffError(f"nothing to profile is called '{text}'; {form}", "unknown-name")
    if preset and preset != name:
        raise BakeoffError(f"--preset {preset}: the subject says {name}; leave one out", "bad-option")
    reference = brought_reference(component, name)
    return ProfileSubject(f"{PREFIX}{reference}", name, mixes, (*options, f"workload={workload}"))


def subject_of_brought(folder: str, preset: str, mixes: tuple[str, ...], options: tuple[str, ...]) -> ProfileSubject:
    """The first input set of the model that a folder describes. Raises BakeoffError for another preset than its own."""
    about = read_about(Path(folder))
    if preset not in ("", about.preset):
        raise BakeoffError(f"--preset {preset}: the model has {about.preset} alone; leave it out", "bad-option")
    return ProfileSubject(f"{PREFIX}{folder}", about.preset, mixes, (*options, f"workload={about.sets[0].name}"))


def _is_module(text: str) -> bool:
    """Whether it is package.module:ATTRIBUTE, whose attribute has no dot."""
    module, _, attribute = text.partition(":")
    return module not in component_names() and "." not in attribute and "/" not in text


def _variant(text: str, preset: str, mixes: tuple[str, ...], options: tuple[str, ...]) -> ProfileSubject:
    device = "" if "@" in text else "@cpu"
    variant = parse_variant(text + device)
    if mixes:
        raise BakeoffError(f"--mix {mixes[0]}: {text} names the variant already; leave one out", "bad-option")
    if preset and preset != variant.preset:
        raise BakeoffError(f"--preset {preset}: the subject says {variant.preset}; leave one out", "bad-option")
    backends = "+".join(str(use) for use in variant.backends)
    mix = f"{variant.component}={backends}/{variant.dtype}"
    return ProfileSubject(
        f"{PREFIX}{brought_reference(variant.component, variant.preset)}",
        variant.preset,
        (mix,),
        (*options, f"workload={variant.workload}"),
        variant.device if not device else "",
    )
