"""`bakeoff.apply`: puts exported programs into a live object, and takes them out again."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.export import load, read_manifest
from bakeoff.export.manifest import MANIFEST, Manifest
from bakeoff.export.mix import is_mix, read_mix
from bakeoff.export.sample import limits_of
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted

if TYPE_CHECKING:
    from bakeoff.tuned.module import Place, Tuned
    from bakeoff.tuned.program import FirstCall, TunedProgram


@dataclass(frozen=True, slots=True)
class PlaceReport:
    """Calls of one module or method since programs were applied to it."""

    place: str
    artifacts: tuple[str, ...]
    tuned: int
    """Calls that a program computed."""
    original: int
    """Calls that the original computed."""
    outside: int | None
    """Calls of programs outside of what was checked; None if they are not counted."""
    first_calls: "tuple[FirstCall, ...]"

    def __str__(self) -> str:
        calls = f"{self.tuned} of {counted(self.tuned + self.original, 'call')} tuned"
        if self.outside is not None:
            calls += f", {self.outside} outside of what was checked"
        lines = [f"{self.place}: {calls} ({', '.join(self.artifacts)})"]
        for one in self.first_calls:
            if one.refusal:
                lines.append(f"  {one.program} is not used: {one.refusal}")
            elif one.errors:
                worst = max(one.errors, key=lambda name: one.errors[name] / one.limits[name])
                figure = f"{worst} {one.errors[worst]:.2e} relative L2, limit {one.limits[worst]:.2e}"
                lines.append(f"  {one.program} against the original in its first call: {figure}")
        return "\n".join(lines)


def apply(
    pipe: object,
    folder: str | Path,
    where: Mapping[str, str | None] | None = None,
    *,
    strict: bool = False,
    any_weights: bool = False,
    count_outside: bool = False,
) -> "Applied":
    """Put the artifacts of a folder into a live object, such as a pipeline or one module; all of them or none.

    `folder` is an artifact, a mix, or contains several artifacts. `where` maps the name of an artifact's folder to the
    path of its module or method in `pipe` (`{"unet-aoti-bf16": "unet"}`), or to None to leave the artifact out.
    Without it, an artifact goes to the place that it names, or else to `pipe` itself. The module must have the weights
    that were exported, unless `any_weights` is set, which is meant for weights that differ by rounding. Calls that do
    not fit what was exported run the original and are counted; with `strict` they raise BakeoffError. `count_outside`
    is that of `bakeoff.export.load`.

    Raises BakeoffError if the folder contains no artifact, or if an artifact is damaged, was made for another host, or
    has no place in `pipe`.
    """
    from bakeoff.tuned.module import Tuned, find_place

    found = {path.name: (path, read_manifest(path)) for path in _artifacts(Path(folder))}
    asked = dict(where or {})
    unknown = sorted(asked.keys() - found.keys())
    if unknown:
        raise BakeoffError(
            f"where= names '{unknown[0]}', which is no artifact in {folder}; it has {', '.join(found)}", "unknown-name"
        )
    fingerprints: dict[int, str] | None = None if any_weights else {}
    wanted: dict[tuple[int, str], tuple[Place, dict[str, Manifest]]] = {}
    for name, (_, manifest) in found.items():
        if name in asked and asked[name] is None:
            continue
        place = find_place(pipe, name, manifest, asked.get(name), fingerprints)
        wanted.setdefault((id(place.owner), place.name), (place, {}))[1][name] = manifest
    for place, manifests in wanted.values():
        _refuse_doubles(place, manifests)
    tuned = [
        Tuned(
            place,
            (*manifests,),
            [one for name in manifests for one in _programs(place, found[name][0], count_outside)],
            strict,
        )
        for place, manifests in wanted.values()
    ]
    for one in tuned:
        one.install()
    return Applied(tuned)


class Applied:
    """Programs that compute calls of a live object until `undo`, or until the end of a `with` block."""

    def __init__(self, tuned: "list[Tuned]") -> None:
        self._tuned = tuned

    def __enter__(self) -> "Applied":
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def undo(self) -> None:
        """Restore every function and release the programs. A second call does nothing.

        Raises BakeoffError if other code has replaced a function meanwhile. That function is left as it is and all
        others are restored; remaining references to the tuned function call the original.
        """
        lost = [one.place for one in self._tuned if one.programs and not one.remove()]
        if lost:
            function = f"{lost[0]}.forward" if lost[0].name == "forward" else str(lost[0])
            raise BakeoffError(
                f"{function} was replaced after apply(), so it is left as it is; it calls the original from now on",
                "unsupported",
            )

    @property
    def places(self) -> tuple[PlaceReport, ...]:
        """How many calls programs computed at each place, how many ran the original, and what first calls showed."""
        return tuple(
            PlaceReport(
                str(one.place),
                one.artifacts,
                one.tuned,
                one.original_calls,
                one.outside,
                tuple(first for program in one.programs for first in program.first_calls.values()),
            )
            for one in self._tuned
        )

    def report(self) -> str:
        """Return `places` as text."""
        return "\n".join(map(str, self.places))


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


def _programs(place: "Place", folder: Path, count_outside: bool) -> "list[TunedProgram]":
    """Return the programs of an artifact; those with threads of their own use as many as torch does in this process."""
    import torch

    from bakeoff.tuned.program import TunedProgram, arguments_of, call_of

    made, artifact = [], load(folder, threads=torch.get_num_threads(), count_outside=count_outside)
    for about in artifact.manifest.programs:
        call, result = call_of(about)
        function = getattr(place.module, place.name)
        made.append(
            TunedProgram(
                program=artifact.program(about.name),
                call=call,
                result=result,
                arguments=arguments_of(function, call),
                limits=limits_of(artifact.manifest, about.name),
            )
        )
    return made
