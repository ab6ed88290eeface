"""`bakeoff.apply`: puts exported programs into a live object, and takes them out again."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.export import Artifact, load, read_manifest
from bakeoff.export.manifest import MANIFEST, Manifest
from bakeoff.export.mix import is_mix, read_mix
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from bakeoff.tuned.module import Place, Tuned
    from bakeoff.tuned.program import TunedProgram
from typing import TYPE_CHECKING

import msgspec

from bakeoff.models.words import counted

if TYPE_CHECKING:
    from bakeoff.tuned.module import Tuned


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of a program's outputs with the original's, in the first call with given dtypes."""

    artifact: str
    program: str
    errors: Mapping[str, float]
    """Relative L2 error of each output; empty if the outputs could not be compared."""
    limits: Mapping[str, float]
    """Largest allowed errors."""
    refusal: str
    """Reason why the program is not used; "" if it is used."""


@dataclass(frozen=True, slots=True)
class PlaceReport:
    """Calls of one module or method since programs were applied to it."""

    place: str
    artifacts: tuple[str, ...]
    tuned: int
    """Calls that a program computed."""
    original: int
    """Calls that the original computed."""
    first_calls: tuple[Comparison, ...]

    @classmethod
    def of(cls, place: str, artifacts: tuple[str, ...], tuned: "Tuned") -> "PlaceReport":
        compared = tuple(
            Comparison(program.folder, program.program.about.name, one.errors, one.limits, one.refusal)
            for program in tuned.programs
            for one in program.first_calls.values()
        )
        return cls(place, artifacts, tuned.tuned, tuned.original_calls, compared)


@dataclass(frozen=True, slots=True)
class Report:
    places: tuple[PlaceReport, ...]

    def __str__(self) -> str:
        return "\n".join(line for place in self.places for line in _lines(place))

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def _lines(place: PlaceReport) -> list[str]:
    calls = f"{place.tuned} of {counted(place.tuned + place.original, 'call')} tuned"
    lines = [f"{place.place}: {calls} ({', '.join(place.artifacts)})"]
    for one in place.first_calls:
        if one.refusal:
            lines.append(f"  {one.program} is not used: {one.refusal}")
        elif one.errors:
            worst = max(one.errors, key=lambda name: one.errors[name] / one.limits[name])
            figure = f"{worst} {one.errors[worst]:.2e} relative L2, limit {one.limits[worst]:.2e}"
            lines.append(f"  {one.program} against the original in its first call: {figure}")
    return lines


_ABSENT = object()


def apply(
    pipe: object,
    folder: str | Path,
    where: Mapping[str, str | None] | None = None,
    *,
    strict: bool = False,
    any_weights: bool = False,
) -> "Applied":
    """Put the artifacts of a folder into a live object, such as a pipeline or one module; all of them or none.

    `folder` is an artifact, a mix, or contains several artifacts. `where` maps the name of an artifact's folder to the
    path of its module or method in `pipe` (`{"unet-aoti-bf16": "unet"}`), or to None to leave the artifact out.
    Without it, an artifact goes to the place that it names, or else to the only module with its weights. The module
    must have the weights that were exported, unless `any_weights` is set, which is meant for weights that differ by
    rounding. Calls that do not fit what was exported run the original and are counted; with `strict` they raise
    BakeoffError.

    Raises BakeoffError if the folder contains no artifact, or if an artifact is damaged, was made for another host, or
    has no place in `pipe`.
    """
    from bakeoff.tuned.module import Finder, Tuned

    found = {path.name: (path, read_manifest(path)) for path in _artifacts(Path(folder))}
    asked = dict(where or {})
    unknown = sorted(asked.keys() - found.keys())
    if unknown:
        raise BakeoffError(
            f"where= names '{unknown[0]}', which is no artifact in {folder}; it has {', '.join(found)}", "unknown-name"
        )
    finder = Finder(pipe)
    wanted: dict[tuple[int, str], tuple[Place, dict[str, Manifest]]] = {}
    for name, (_, manifest) in found.items():
        if name in asked and asked[name] is None:
            continue
        place = finder.place(name, manifest, asked.get(name), any_weights)
        wanted.setdefault((id(place.owner), place.name), (place, {}))[1][name] = manifest
    for place, manifests in wanted.values():
        _refuse_doubles(place, manifests)
    placed = []
    for place, manifests in wanted.values():
        programs = [one for name in manifests for one in _programs(place, load(found[name][0], threads=_threads()))]
        original = getattr(place.owner, place.name)
        tuned = Tuned(original, place.module, programs, strict)
        placed.append(_Placed(place, tuple(manifests), tuned, vars(place.owner).get(place.name, _ABSENT)))
    applied = Applied(placed)
    applied.install()
    return applied


@dataclass(frozen=True, slots=True)
class _Placed:
    place: "Place"
    artifacts: tuple[str, ...]
    tuned: "Tuned"
    before: object
    """The module's own attribute of that name before; `_ABSENT` if the function came from the class."""

    @property
    def current(self) -> object:
        return vars(self.place.owner).get(self.place.name, _ABSENT)

    def put(self, value: object) -> None:
        """Set or remove the attribute, bypassing the module's `__setattr__`, which may do more than set it."""
        if value is _ABSENT:
            vars(self.place.owner).pop(self.place.name, None)
        else:
            vars(self.place.owner)[self.place.name] = value


class Applied:
    """Programs that compute calls of a live object until `undo`, or until the end of a `with` block."""

    def __init__(self, placed: list[_Placed]) -> None:
        self._placed = placed
        self._undone = False

    def __enter__(self) -> "Applied":
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def install(self) -> None:
        """Send calls to the programs, as after `apply`. Raises BakeoffError after `undo`."""
        if self._undone:
            raise BakeoffError("install() after undo(): nothing is applied; call bakeoff.apply again", "bad-option")
        for one in self._placed:
            one.put(one.tuned)

    def suspend(self) -> None:
        """Send calls to the originals until `install`."""
        for one in self._placed:
            if one.current is one.tuned:
                one.put(one.before)

    def undo(self) -> None:
        """Restore every function and release the programs. A second call does nothing.

        Raises BakeoffError if other code has replaced a function meanwhile. That function is left as it is and all
        others are restored; remaining references to the tuned function call the original.
        """
        if self._undone:
            return
        self._undone = True
        lost = [one for one in self._placed if one.current is not one.tuned and one.current is not one.before]
        self.suspend()
        for one in self._placed:
            one.tuned.programs = ()
        if lost:
            place = lost[0].place
            function = f"{place}.forward" if place.name == "forward" else str(place)
            raise BakeoffError(
                f"{function} was replaced after apply(), so it is left as it is; it calls the original from now on",
                "unsupported",
            )

    def report(self) -> Report:
        """Return how many calls programs computed, how many ran the original, and what first calls showed."""
        return Report(tuple(PlaceReport.of(str(one.place), one.artifacts, one.tuned) for one in self._placed))


def _artifacts(folder: Path) -> list[Path]:
    """Return the folder itself if it is an artifact, else the artifacts in it, of a mix those that were exported.

    Raises BakeoffError if there is none.
    """
    folder = folder.absolute()
    if not folder.is_dir():
        raise BakeoffError(
            f"{folder}: no such folder; give an artifact's folder, or one that holds several", "bad-artifact"
        )
    if is_mix(folder):
        return [folder / name for name in read_mix(folder).digests]
    if (folder / MANIFEST).exists():
        return [folder]
    found = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}") if not path.parent.name.startswith("."))
    if not found:
        raise BakeoffError(f"{folder} holds no artifact; make one with: bakeoff export", "bad-artifact")
    return found


def _refuse_doubles(place: "Place", manifests: Mapping[str, Manifest]) -> None:
    """Raise BakeoffError if two artifacts for one place compute the same calls."""
    from bakeoff.tuned.program import call_of

    met: dict[str, str] = {}
    for name, manifest in manifests.items():
        for program in manifest.programs:
            call = str((call_of(program)[0], [(port.name, port.shape) for port in program.inputs]))
            other = met.setdefault(call, name)
            if other != name:
                text = f"{other} and {name} are both for {place}, and for the same calls; leave one out"
                raise BakeoffError(f'{text}, as in where={{"{name}": None}}', "bad-option")


def _programs(place: "Place", artifact: Artifact) -> "list[TunedProgram]":
    from bakeoff.tuned.program import TunedProgram, arguments_of, call_of, limits_in

    made = []
    for about in artifact.manifest.programs:
        call, result = call_of(about)
        function = getattr(place.module, place.name)
        made.append(
            TunedProgram(
                folder=artifact.folder.name,
                program=artifact.program(about.name),
                call=call,
                result=result,
                arguments=arguments_of(function, call),
                limits=limits_in(artifact.manifest, about),
            )
        )
    return made


def _threads() -> int:
    """Return the number of threads for programs with threads of their own: as many as torch uses in this process."""
    import torch

    return torch.get_num_threads()
