"""A mix: a pipeline with one variant for each slot, printed and parsed as one string that identifies it.

`pipeline:preset[options]/slot=backend[options](+backend[options])/dtype,...@device(/schedule)`, as in
`owl:200m[steps=10]/wm=inductor[freezing]/bf16,image=openvino/bf16,audio=aoti[freezing]/bf16@cpu`.
"""

import re
from dataclasses import dataclass

from bakeoff.models.errors import BakeoffError
from bakeoff.models.options import OptionValue, written_option
from bakeoff.models.pipelines import pipeline_names
from bakeoff.models.pipelines.schedule import parse_schedule
from bakeoff.models.types import Device, Dtype, parse_device, parse_dtype
from bakeoff.variant import BackendUse, parse_use, split_outside_brackets

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_MIX = re.compile(
    rf"(?P<pipeline>{_NAME}):(?P<preset>{_NAME})(?P<options>\[[A-Za-z0-9_.,:=+-]*\])?"
    rf"/(?P<slots>[^@]+)@(?P<device>{_NAME})(/(?P<schedule>.+))?"
)
_SLOT = re.compile(rf"(?P<slot>{_NAME})=(?P<backends>.+)/(?P<dtype>{_NAME})")
_FORM = "write pipeline:preset[options]/slot=backend[options]/dtype,...@device"


@dataclass(frozen=True, slots=True)
class SlotChoice:
    """The backends and dtype that fill one slot of a mix."""

    slot: str
    backends: tuple[BackendUse, ...]
    dtype: Dtype

    def __str__(self) -> str:
        return f"{self.slot}={self.backend}/{self.dtype}"

    @property
    def backend(self) -> str:
        return "+".join(str(use) for use in self.backends)


@dataclass(frozen=True, slots=True)
class Mix:
    """One way to run a pipeline. Two mixes with the same string are the same mix."""

    pipeline: str
    preset: str
    options: tuple[tuple[str, OptionValue], ...]
    """Options of the pipeline that differ from its defaults, in the order in which it declares them."""
    slots: tuple[SlotChoice, ...]
    """One variant for each slot, in the pipeline's order."""
    device: Device
    schedule: str = ""
    """With the threads of its lanes, as in `decode-behind:1+1`, or `one-graph`; "" if each call waits for the one
    before."""

    def __str__(self) -> str:
        schedule = f"/{self.schedule}" if self.schedule else ""
        return f"{self.subject}/{self.variants}@{self.device}{schedule}"

    @property
    def subject(self) -> str:
        """Pipeline, preset and options: what all mixes of one table compute."""
        options = ",".join(written_option(name, value) for name, value in self.options)
        return f"{self.pipeline}:{self.preset}" + (f"[{options}]" if options else "")

    @property
    def variants(self) -> str:
        """The slots with their backends and dtypes, as text."""
        return ",".join(str(slot) for slot in self.slots)

    @property
    def scheduled_variants(self) -> str:
        """The same, with the schedule."""
        return f"{self.variants} {self.schedule}".rstrip()

    @property
    def slug(self) -> str:
        """The mix as part of a file name, at most 120 characters long."""
        return re.sub(r"[^A-Za-z0-9.=-]+", "_", str(self)).strip("_")[:120]


def parse_mix(text: str) -> Mix:
    """Parse a mix's string. Names and options are not checked, and option values remain text.

    Raises BakeoffError for text in another form, a slot that is given twice, or an unknown dtype or device.
    """
    match = _MIX.fullmatch(text.strip())
    if match is None:
        raise BakeoffError(f"'{text}' is not a mix; {_FORM}", code="bad-variant")
    slots = parse_slots(match["slots"])
    _, options = parse_use(f"options{match['options'] or ''}")
    schedule = str(parse_schedule(match["schedule"])) if match["schedule"] else ""
    given = tuple((options or {}).items())
    return Mix(match["pipeline"], match["preset"], given, slots, parse_device(match["device"]), schedule)


def parse_subject(text: str) -> tuple[str, str, dict[str, OptionValue]]:
    """Return a pipeline as typed, its preset and its options, of `owl:200m[steps=10]` or `mine.py:Loop:large`.

    The preset is "" if none is given; option values remain text. Raises BakeoffError for wrong brackets.
    """
    name, options = parse_use(text) if text.endswith("]") else (text, None)
    pipeline, _, preset = name.rpartition(":")
    named = pipeline in pipeline_names() or (":" in pipeline and not pipeline.endswith(".py"))
    return (pipeline, preset, options or {}) if named else (name, "", options or {})


def parse_slots(text: str) -> tuple[SlotChoice, ...]:
    """Parse the slots of a mix, `slot=backend[options]/dtype,...`.

    Raises BakeoffError for text in another form, a slot that is given twice, or an unknown dtype.
    """
    slots = tuple(_parse_slot(part) for part in split_outside_brackets(text, ","))
    names = [slot.slot for slot in slots]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BakeoffError(f"'{text}': slot {twice} is given twice; keep one", code="bad-variant")
    return slots


def _parse_slot(text: str) -> SlotChoice:
    match = _SLOT.fullmatch(text)
    if match is None:
        raise BakeoffError(f"'{text}' does not fill a slot; {_FORM}", code="bad-variant")
    uses = []
    for part in split_outside_brackets(match["backends"], "+"):
        name, pairs = parse_use(part)
        uses.append(BackendUse(name, tuple((pairs or {}).items())))
    return SlotChoice(match["slot"], tuple(uses), parse_dtype(match["dtype"]))
