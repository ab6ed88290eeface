"""What a user asks of a pipeline's run, and the mixes that the words on the command line stand for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bakeoff.mix import Mix, SlotVariant, parse_mix, parse_slots
from bakeoff.models import component_names
from bakeoff.models.brought.about import read_about
from bakeoff.models.errors import BakeoffError, meant
from bakeoff.models.pipelines import pipeline_names
from bakeoff.models.pipelines.pipeline import Pipeline
from bakeoff.models.pipelines.single import PREFIX
from bakeoff.plan.brought import brought_reference
from bakeoff.record.policy import Policy
from bakeoff.variant import BackendUse, OptionValue, options_of, parse_variant

Role = Literal["", "eager", "best", "best-full"]
WORDS: tuple[Role, ...] = ("eager", "best", "best-full")
UNITS = 20
MOST_UNITS = 100_000
MINUTES = 10.0
"""About how long the rounds of a run take at most, all mixes together."""
MOST_MINUTES = 24 * 60.0
MOST_TRACED = 200
"""Units: the trace of more takes gigabytes."""


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """What is to be seen in a traced pass after the timed units."""

    level: int = 3
    """1 to 5, as bakeoff.trace.tags describes them."""
    units: int = 5
    """Traced ones."""
    top: int = 20
    """Kernels and operators that are listed."""
    memory: bool = False
    """Record allocations, and on CUDA a memory snapshot."""
    compiler: bool = False
    """Build all programs once more with the compiler's log."""
    capture: bool = False
    """Leave the tracing to Nsight."""


@dataclass(frozen=True, slots=True)
class PipelineRequest:
    """What a user asked for; an empty field means the pipeline's or this host's default."""

    pipeline: str
    """Name in the table or package.module:PIPELINE."""
    preset: str = ""
    mixes: tuple[str, ...] = ()
    """Each a word of WORDS, a mix, or the slots' part of one; empty: eager and best."""
    options: tuple[str, ...] = ()
    """Of the pipeline, each as in `steps=10`."""
    units: int = UNITS
    """Steady units of each mix."""
    minutes: float = MINUTES
    device: str = ""
    threads: int = 0
    weight_seed: int = 0
    input_seed: int = 0
    checkpoints: tuple[str, ...] = ()
    """Each as in `wm=FILE`."""
    policy: Policy = field(default_factory=Policy)
    profile: ProfileOptions | None = None
    monitor: bool = False
    """Watch each worker and its GPU with a monitor."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One mix as it was asked for."""

    role: Role
    slots: tuple[SlotVariant, ...] = ()
    """Those named; the others are eager fp32. Of `best` and `best-full` none: the records say."""
    whole: Mix | None = None
    """The mix that it was typed as, if it was typed with its subject and device."""


def check_counts(request: PipelineRequest) -> None:
    """Raises BakeoffError for an impossible number of units or minutes, or of what is to be traced."""
    if not 1 <= request.units <= MOST_UNITS:
        raise BakeoffError(f"--units {request.units}: give 1 to {MOST_UNITS}", "bad-option")
    if not 0 < request.minutes <= MOST_MINUTES:
        text = f"--minutes {request.minutes:g}: give more than 0 and at most {MOST_MINUTES:.0f}"
        raise BakeoffError(text, "bad-option")
    asked = request.profile
    if asked is None:
        return
    limits = {"--level": (asked.level, 1, 5), "--traced": (asked.units, 1, MOST_TRACED), "--top": (asked.top, 1, 1000)}
    for option, (value, least, most) in limits.items():
        if not least <= value <= most:
            raise BakeoffError(f"{option} {value}: give {least} to {most}", "bad-option")


def asked_mixes(request: PipelineRequest, pipeline: Pipeline) -> tuple[Asked, ...]:
    """The mixes asked for. Raises BakeoffError for text that is none, another pipeline's mix or an unknown slot."""
    asked = tuple(_asked(text, pipeline) for text in request.mixes or ("eager", "best"))
    whole = [mix.whole for mix in asked if mix.whole is not None]
    for other in whole[1:]:
        if (other.subject, other.device) != (whole[0].subject, whole[0].device):
            text = f"{whole[0]} and {other} do not compute the same on the same device; run them one after the other"
            raise BakeoffError(text, "not-comparable")
    return asked


def _asked(text: str, pipeline: Pipeline) -> Asked:
    for word in WORDS:
        if text == word:
            return Asked(word)
    if "@" in text:
        mix = parse_mix(text)
        if mix.pipeline != pipeline.name:
            raise BakeoffError(f"{mix} is a mix of {mix.pipeline}, not of {pipeline.name}", "bad-variant")
        asked = Asked("", mix.slots, mix)
    elif "=" in text:
        asked = Asked("", parse_slots(text))
    else:
        names = ", ".join(WORDS)
        text = f"--mix '{text}': give {names}, or slots as in {pipeline.slots[0].name}=inductor/bf16"
        raise BakeoffError(text, "bad-variant")
    for slot in asked.slots:
        check_slot(slot.slot, pipeline)
    return asked


def check_slot(name: str, pipeline: Pipeline) -> None:
    """Raises BakeoffError for a slot that the pipeline does not have."""
    known = [slot.name for slot in pipeline.slots]
    if name not in known:
        text = f"{pipeline.name} has no slot '{name}'{meant(name, known)}; it has {', '.join(known)}"
        raise BakeoffError(text, "unknown-name")


def filled(named: Sequence[SlotVariant], pipeline: Pipeline) -> tuple[SlotVariant, ...]:
    """Every slot of the pipeline in its order; those that are not named are eager fp32."""
    by_name = {slot.slot: slot for slot in named}
    eager = (BackendUse("eager"),)
    return tuple(by_name.get(slot.name, SlotVariant(slot.name, eager, "fp32")) for slot in pipeline.slots)


def chosen_options(request: PipelineRequest, pipeline: Pipeline, whole: Mix | None) -> Any:
    """The pipeline's options dataclass, from a whole mix or from options given apart; where both are, they must agree.

    Raises BakeoffError for an unknown option, a value of the wrong type, or an option with two values.
    """
    given: dict[str, OptionValue] = {}
    for text in request.options:
        name, equals, value = text.partition("=")
        if not name:
            raise BakeoffError(f"--option '{text}': give it as in steps=10", "bad-option")
        if name in given:
            raise BakeoffError(f"--option {name} is given twice; keep one", "bad-option")
        given[name] = value if equals else True
    if whole is None:
        return options_of(pipeline, given)
    stated = options_of(pipeline, dict(whole.options))
    if options_of(pipeline, {**dict(whole.options), **given}) != stated:
        text = f"--option {' '.join(request.options)}: the mix {whole} says otherwise; leave one out"
        raise BakeoffError(text, "bad-option")
    return stated


def checkpoint_files(request: PipelineRequest, pipeline: Pipeline) -> Mapping[str, str]:
    """Slot to its weights file as typed. Raises BakeoffError for another form, or a slot that does not exist."""
    found: dict[str, str] = {}
    for text in request.checkpoints:
        slot, equals, file = text.partition("=")
        if not equals or not file:
            raise BakeoffError(f"--checkpoint '{text}': give SLOT=FILE, as in wm=weights.safetensors", "bad-option")
        check_slot(slot, pipeline)
        if slot in found:
            raise BakeoffError(f"--checkpoint: slot {slot} is given twice; keep one", "bad-option")
        found[slot] = file
    return found


def agreed(option: str, given: str, in_mix: str) -> str:
    """What an option and a whole mix say. Raises BakeoffError where they differ."""
    if given and in_mix and given != in_mix:
        raise BakeoffError(f"{option} {given}: the mix says {in_mix}; leave one out", "bad-option")
    return given or in_mix


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
