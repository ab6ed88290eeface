"""A user's request for a run of a pipeline, and the mixes that the words on the command line stand for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from bakeoff.mix import Mix, SlotChoice, parse_mix, parse_slots
from bakeoff.models import component_names
from bakeoff.models.brought.about import read_about
from bakeoff.models.errors import BakeoffError
from bakeoff.models.options import OptionValue
from bakeoff.models.pipelines import pipeline_names
from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.models.pipelines.single import PREFIX
from bakeoff.plan.brought import brought_reference
from bakeoff.process.jobs import ProfileOptions
from bakeoff.record.pipeline import Budget, Sustained
from bakeoff.record.policy import Policy
from bakeoff.variant import BackendUse

Role = Literal["", "eager", "best", "best-full"]
WORDS: tuple[Role, ...] = ("eager", "best", "best-full")
RequestedMix = Role | Mix | tuple[SlotChoice, ...]
"""A mix as a word, with pipeline and device, or as its named slots; its other slots are eager fp32."""
UNITS = 20
MOST_UNITS = 100_000
MINUTES = 10.0
"""Approximate time limit for the rounds of a run, all mixes together."""
MOST_MINUTES = 24 * 60.0
LEAST_FPS, MOST_FPS, MOST_BUFFER = 0.1, 1000.0, 1000
STARTS = 7
"""Fresh processes of each mix with each kind of caches: the fewest that bound a median with 95 % confidence are six."""
MOST_TRACED = 200
"""Largest number of traced units: the trace of more takes gigabytes."""


@dataclass(frozen=True, slots=True)
class PipelineRequest:
    """A request by a user; an empty field means the pipeline's or this host's default."""

    pipeline: str
    """Name in the table, FILE.py:CLASS or package.module:CLASS."""
    preset: str = ""
    mixes: tuple[str, ...] = ()
    """Mixes, each as a word of WORDS, a mix's string, or only its slots; empty: eager and best."""
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    """Options of the pipeline; their values may be text."""
    units: int = UNITS
    """Steady units of each mix."""
    minutes: float = MINUTES
    device: str = ""
    threads: int = 0
    weight_seed: int = 0
    input_seed: int = 0
    checkpoints: tuple[str, ...] = ()
    """Weights files, each in the form `wm=FILE`."""
    policy: Policy = field(default_factory=Policy)
    profile: ProfileOptions | None = None
    horizon_db: float | None = None
    """For a rollout, in which `units` are compared and none is timed: the threshold of its horizon. None: no rollout.
    """
    monitor: bool = False
    """Watch each worker and its GPU with a monitor."""
    budget: Budget | None = None
    """The budget whose candidates the mixes are."""
    sustained: Sustained | None = None
    """Run each mix by itself for `minutes`, however many units that takes; `fps` 0 is the rate of the pipeline."""
    cold: bool = False
    """Run each mix in fresh processes, which share the minutes, and count from their start."""
    schedules: tuple[str, ...] = ()
    """Schedules by name under each of which each mix runs, or `all` that the loop allows; empty: as the mixes say."""


def check_counts(request: PipelineRequest) -> None:
    """Raise BakeoffError for an impossible number of units, minutes or traced units."""
    if not 1 <= request.units <= MOST_UNITS:
        raise BakeoffError(f"--units {request.units}: give 1 to {MOST_UNITS}", "bad-option")
    if not 0 < request.minutes <= MOST_MINUTES:
        text = f"--minutes {request.minutes:g}: give more than 0 and at most {MOST_MINUTES:.0f}"
        raise BakeoffError(text, "bad-option")
    if (how := request.sustained) is not None:
        if how.fps and not LEAST_FPS <= how.fps <= MOST_FPS:
            raise BakeoffError(f"{how.fps:g} frames a second: give {LEAST_FPS:g} to {MOST_FPS:g}", "bad-option")
        if request.cold and (how.paced or how.buffer != 1):
            text = "--cold shows the first frame as soon as it is there; leave out --paced and --buffer"
            raise BakeoffError(text, "bad-option")
        if not 1 <= how.buffer <= MOST_BUFFER:
            raise BakeoffError(f"--buffer {how.buffer}: give 1 to {MOST_BUFFER} units", "bad-option")
    asked = request.profile
    limits = {"--level": (asked.level, 5), "--traced": (asked.units, MOST_TRACED)} if asked is not None else {}
    for option, (value, most) in limits.items():
        if not 1 <= value <= most:
            raise BakeoffError(f"{option} {value}: give 1 to {most}", "bad-option")


def requested_mixes(request: PipelineRequest) -> tuple[RequestedMix, ...]:
    """Return the requested mixes. Raises BakeoffError for text that is not a mix, or mixes of different subjects or
    devices."""
    asked = tuple(_asked(text) for text in request.mixes or ("eager", "best"))
    whole = [mix for mix in asked if isinstance(mix, Mix)]
    for other in whole[1:]:
        if (other.subject, other.device) != (whole[0].subject, whole[0].device):
            text = f"{whole[0]} and {other} do not compute the same on the same device; run them one after the other"
            raise BakeoffError(text, "not-comparable")
    return asked


def check_mixes(asked: Sequence[RequestedMix], loop: Loop) -> None:
    """Raise BakeoffError for a mix of another pipeline or an unknown slot."""
    for mix in asked:
        if isinstance(mix, Mix) and mix.pipeline != loop.name:
            raise BakeoffError(f"{mix} is a mix of {mix.pipeline}, not of {loop.name}", "bad-variant")
        for choice in named_slots(mix):
            loop.slot(choice.slot)


def named_slots(mix: RequestedMix) -> tuple[SlotChoice, ...]:
    """Return the slots that a requested mix names; none for a word."""
    return mix.slots if isinstance(mix, Mix) else () if isinstance(mix, str) else mix


def _asked(text: str) -> RequestedMix:
    for word in WORDS:
        if text == word:
            return word
    if "@" in text:
        return parse_mix(text)
    if "=" in text:
        return parse_slots(text)
    text = f"--mix '{text}': give {', '.join(WORDS)}, or slots as in wm=inductor/bf16"
    raise BakeoffError(text, "bad-variant")


def filled(named: Sequence[SlotChoice], loop: Loop) -> tuple[SlotChoice, ...]:
    """Return a variant for every slot of the pipeline, in its order: the named ones, and eager fp32 for the others."""
    by_name = {slot.slot: slot for slot in named}
    eager = (BackendUse("eager"),)
    return tuple(by_name.get(slot.name, SlotChoice(slot.name, eager, "fp32")) for slot in loop.slots)


def chosen_options(request: PipelineRequest, whole: Mix | None) -> Mapping[str, OptionValue]:
    """Return the pipeline's options, of a complete mix or of the request. Raises BakeoffError if both have some."""
    if whole is None:
        return request.options
    if request.options:
        text = f"options {', '.join(request.options)}: the mix {whole} has its own; leave one out"
        raise BakeoffError(text, "bad-option")
    return dict(whole.options)


def checkpoint_files(request: PipelineRequest, loop: Loop) -> Mapping[str, str]:
    """Return each slot's weights file as typed. Raises BakeoffError for text in another form, or an unknown or repeated
    slot."""
    found: dict[str, str] = {}
    for text in request.checkpoints:
        slot, equals, file = text.partition("=")
        if not equals or not file:
            raise BakeoffError(f"--checkpoint '{text}': give SLOT=FILE, as in wm=weights.safetensors", "bad-option")
        loop.slot(slot)
        if slot in found:
            raise BakeoffError(f"--checkpoint: slot {slot} is given twice; keep one", "bad-option")
        found[slot] = file
    return found


def agreed(option: str, given: str, in_mix: str) -> str:
    """Return the value of an option, from the command line or from a complete mix. Raises BakeoffError if the two
    differ."""
    if given and in_mix and given != in_mix:
        raise BakeoffError(f"{option} {given}: the mix says {in_mix}; leave one out", "bad-option")
    return given or in_mix


def subject_of(request: PipelineRequest) -> PipelineRequest:
    """Return the request with its `pipeline` resolved: a pipeline's name, or `component:preset.workload`.

    Raises BakeoffError for any other text, or if it contradicts the rest of the request.
    """
    text = request.pipeline
    component, _, rest = text.partition(":")
    if text in pipeline_names() or (rest and component not in component_names() and not set("./") & set(rest)):
        return request
    program, _, variant = text.partition("/")
    if variant:
        typed = f"{program} --mix {component}={variant.partition('@')[0]}"
        raise BakeoffError(f"{text} is a variant; give the program and how it is built: {typed}", "bad-variant")
    name, _, workload = rest.partition(".")
    if not name or not workload:
        known = ", ".join(pipeline_names())
        example = text if text in component_names() else "wm"
        form = f"give a pipeline ({known}), or a component's program as in {example}:PRESET.WORKLOAD"
        raise BakeoffError(f"nothing to profile is called '{text}'; {form}", "unknown-name")
    return _call(request, brought_reference(component, name), name, workload)


def subject_of_brought(request: PipelineRequest, folder: str) -> PipelineRequest:
    """Return the request changed to run the first input set of the brought model that `folder` describes."""
    about = read_about(Path(folder))
    return _call(request, folder, about.preset, about.sets[0].name)


def _call(request: PipelineRequest, component: str, preset: str, workload: str) -> PipelineRequest:
    """Return the request for a loop whose unit is one call of a program. Raises BakeoffError if it names another
    preset."""
    if request.preset not in ("", preset):
        raise BakeoffError(f"preset {request.preset}: the subject says {preset}; leave one out", "bad-option")
    options = {**request.options, "workload": workload}
    return replace(request, pipeline=f"{PREFIX}{component}", preset=preset, options=options)
