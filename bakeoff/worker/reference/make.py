"""Makes reference outputs of a subject, in fp64 if that is affordable, and measures eager's own error in each dtype."""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import TypeAlias

import msgspec
import torch
from safetensors.torch import save, save_file
from torch import Tensor

from bakeoff.backends.backend import Call
from bakeoff.machine.files import write_atomically
from bakeoff.models.component import Work
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import ReferenceJob, Subject
from bakeoff.record.policy import Policy
from bakeoff.worker.checks.dispatch import CallOperators, dispatched_by_eager
from bakeoff.worker.checks.outputs import digest
from bakeoff.worker.clocks.clock import TimingConfig, time_often
from bakeoff.worker.failures import first_line, is_out_of_memory
from bakeoff.worker.reference.error import MOST_NOISE, difference, expected_dtype
from bakeoff.worker.reference.files import ABOUT, About, Eager, ReferenceFiles, eager_file, set_name, sized_name
from bakeoff.worker.reference.precision import (
    Precision,
    in_first_that_fits,
    in_high_precision,
    other_order,
    reference_precisions,
)
from bakeoff.worker.reference.regimes import (
    FEW,
    NamedSets,
    counted_regimes,
    model_outputs,
    regime_differences,
    regime_file,
    regime_names,
    regime_sets,
)
from bakeoff.worker.reference.sensitivity import check_sensitivity, judges, least_difference
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import (
    CHANGES,
    SIZED_SETS,
    LoadedSubject,
    cast_inputs,
    changed_inputs,
    load_subject,
    plain_eager,
    same_values,
)
from bakeoff.worker.torch_flags import TORCH_DTYPES, flags

_ROUNDINGS = 16
"""Multiple of a given dtype's epsilon by which a network's outputs may differ from those in fp64."""
_SAME = 2**-23
"""Relative L2 error up to which eager's arithmetic counts as that of the reference: the rounding of an fp32 output."""
_REPEATED = 1e-3
"""Relative L2 distance up to which a module that was cast to another dtype and back counts as unchanged."""


def run_eager(
    loaded: LoadedSubject,
    dtype: str,
    device: str,
    threads: int,
    sets: NamedSets,
    search: bool = False,
    nudged: bool = False,
) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """Yield (name, outputs) of plain eager for named sets of inputs; the module stays cast.

    With `search`, convolution algorithms are searched as in measured rows, so that the error is that of the eager row.
    If `nudged`, each floating input is one rounding larger. Regimes that the model refuses are left out.
    """
    with flags(dtype, threads, search), plain_eager(loaded.component):
        module = loaded.cast(dtype, device)
        for name, given in sets:
            inputs = cast_inputs(loaded.workload, given, dtype, device)
            for value in inputs.values():
                if nudged and value.is_floating_point():
                    torch.nextafter(value, torch.full_like(value, math.inf), out=value)
            try:
                outputs = module(*inputs.values())
            except Exception as error:  # such as of a model that computes an index from a value
                if not name.startswith(model_outputs("")) or is_out_of_memory(error):
                    raise
                continue
            on_host = tuple(output.cpu() for output in outputs)
            del outputs  # before the next call, so that a GPU holds those of one
            yield name, on_host


def _changed_sets(loaded: LoadedSubject, change: float) -> NamedSets:
    for index in range(loaded.workload.changed_set_count):
        yield set_name(index, changed=True), changed_inputs(loaded, index, change)


def _all_sets(loaded: LoadedSubject, change: float, regimes: Sequence[str]) -> NamedSets:
    """Yield (name, values) of all sets, changed sets, sets of other sizes and regimes, made one at a time."""
    for index, inputs in enumerate(loaded.sets):
        yield set_name(index), inputs
    yield from _changed_sets(loaded, change)
    for size, sets in enumerate(loaded.sized):
        for index, inputs in enumerate(sets):
            yield sized_name(size, index), inputs
    yield from regime_sets(loaded, regimes)


def make_reference(job: ReferenceJob, report: Report) -> None:
    """Write the reference outputs and eager's errors that `job.folder` lacks, and those of the sweep's own values.

    reference.json is written after the outputs, and eager's errors after that. Raises BakeoffError for a wrong
    checkpoint, or if eager's outputs differ from the component's spec or from what the user's own call returned.
    """
    folder = Path(job.folder)
    subject = job.subject
    report("weights")
    loaded = load_subject(subject)
    if not (folder / ABOUT).exists():
        report("reference", "the work of a call")
        works = [loaded.work, *(size.work for size in loaded.workload.sizes)]
        tried, ways = regime_names(loaded) if job.regimes else (), _ways(loaded, subject, works, 0)
        regimes = next(  # all, the first or none: a range is worth less than references in fp64
            names
            for names in (tried, tried[:FEW], ())
            if not names or _ways(loaded, subject, works, len(names))[0] == ways[0]
        )
        report("reference", f"eager {ways[0].dtype} on {ways[0].device}")
        returned = loaded.source.returned() or _as_built(loaded, subject)

        def write(chosen: Precision) -> None:
            if chosen != ways[0]:
                report("reference", f"eager {chosen.dtype} on {chosen.device}")
            _write_reference(folder, loaded, chosen, subject, returned, regimes)

        in_first_that_fits(ways, write)
    files = ReferenceFiles(folder, None)
    about = files.about()
    if about.weights != loaded.weights:
        raise BakeoffError(
            f"The weights changed during the sweep: reference {folder.name} was made from others. Run the sweep again.",
            code="bad-checkpoint",
        )
    if job.own_folder and not (Path(job.own_folder) / ABOUT).exists():
        report("reference", "the sweep's own changed values")
        _write_own(Path(job.own_folder), loaded, files, about, job)
    missing = [dtype for dtype in job.dtypes if not (folder / eager_file(dtype)).exists()]
    rounded = loaded.given.rounds(about.dtype)
    for dtype in sorted(missing, key=_bytes, reverse=True):
        report("reference", f"noise floor of eager {dtype}")
        if rounded:
            loaded = load_subject(subject)
        eager = _eager(loaded, dtype, subject, files, about)
        rounded = loaded.given.rounds(dtype)
        write_atomically(folder / eager_file(dtype), msgspec.json.encode(eager))


def _ways(loaded: LoadedSubject, subject: Subject, works: Sequence[Work], regimes: int) -> tuple[Precision, ...]:
    """Return the ways in which references of all sets and so many regimes can be computed, best first.

    `works` are those of a call at the usual size and at each other one.
    """
    usual = len(loaded.sets) + loaded.workload.changed_set_count + regimes
    calls = [*zip(works, [usual, *[SIZED_SETS] * len(works[1:])], strict=True)]
    elements = max(work.io_elements for work in works)
    ways = reference_precisions(loaded.module, elements, calls, subject.device, loaded.component.runs_on_host)
    return ways if loaded.component.fp64 else ways[-1:]


def _bytes(dtype: str) -> int:
    """Return the bytes of a value in `dtype`; taken from the largest on, most dtypes share one load of the weights."""
    return 8 if dtype == "given" else TORCH_DTYPES[dtype].itemsize


def _as_built(loaded: LoadedSubject, subject: Subject) -> dict[str, Tensor]:
    """Return the outputs that the module computes for set 0 before any cast."""
    loaded.module.to(device=subject.device)  # without a dtype nothing is cast
    return _given_outputs(loaded, subject.device, subject.threads)


def _given_outputs(loaded: LoadedSubject, device: str, threads: int) -> dict[str, Tensor]:
    with flags("fp32", threads), plain_eager(loaded.component):
        outputs = loaded.module(*cast_inputs(loaded.workload, loaded.sets[0], "given", device).values())
    return {spec.name: output.cpu() for spec, output in zip(loaded.workload.outputs, outputs, strict=True)}


def _write_reference(
    folder: Path,
    loaded: LoadedSubject,
    chosen: Precision,
    subject: Subject,
    returned: Mapping[str, Tensor],
    tried: Sequence[str],
) -> None:
    """Run eager on every set and changed set, check its outputs, and write them.

    Values are changed by a larger factor if the model rounds inside, so that a small change would not show.
    """
    names = [spec.name for spec in loaded.workload.outputs]
    constant = {spec.name for spec in loaded.workload.outputs if spec.held}
    outputs: dict[str, tuple[Tensor, ...]] = {}
    sets_of: Callable[[float], NamedSets] = partial(_all_sets, loaded, regimes=tried)
    for change in CHANGES:
        dtype, found = in_high_precision(
            chosen.dtype,
            lambda dtype: dict(run_eager(loaded, dtype, chosen.device, subject.threads, sets_of(change))),  # noqa: B023
        )
        sets_of = partial(_changed_sets, loaded)
        outputs |= found
        sets = [outputs[set_name(index)] for index in range(len(loaded.sets))]
        changed_sets = [outputs[set_name(index, changed=True)] for index in range(loaded.workload.changed_set_count)]
        check_outputs(loaded, sets[0])
        given = list(zip(loaded.sets, sets, strict=True))
        changed = [(changed_inputs(loaded, index, change), one) for index, one in enumerate(changed_sets)]
        far = _of_other_inputs(combinations(given, 2)) or list(combinations(sets, 2))
        near = _of_other_inputs(zip(given, changed, strict=False)) or far
        sensitivity, small_sensitivity = (
            {name: apart for name, apart in least_difference(names, pairs).items() if name not in constant}
            for pairs in (far, near)
        )
        if judges(loaded, small_sensitivity):
            break
    check_sensitivity(loaded, sensitivity, small_sensitivity)
    check_given(loaded, dict(zip(names, sets[0], strict=True)), returned, subject)
    regimes = counted_regimes(loaded, outputs)
    unused = {model_outputs(name) for name in tried} - set(map(regime_file, regimes))
    folder.mkdir(parents=True, exist_ok=True)
    for inputs, tensors in outputs.items():
        if inputs not in unused:
            save_file(_copies(loaded, tensors), folder / f"{inputs}.safetensors")
    made = About(
        folder.name,
        dtype,
        chosen.device,
        loaded.weights,
        len(sets),
        len(changed_sets),
        sensitivity,
        small_sensitivity,
        change,
        regimes=regimes,
    )
    write_atomically(folder / ABOUT, msgspec.json.encode(made))


def _copies(loaded: LoadedSubject, outputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return outputs by name that share no memory, which safetensors does not store."""
    given = zip(loaded.workload.outputs, outputs, strict=True)
    return {spec.name: tensor.clone(memory_format=torch.contiguous_format) for spec, tensor in given}


def _write_own(folder: Path, loaded: LoadedSubject, files: ReferenceFiles, about: About, job: ReferenceJob) -> None:
    """Write the outputs for changed values of set 0 that no earlier sweep had, and `about` with their factor.

    The factor is 1.2 to 1.5 times as far from 1 as that of `about`, whose effect shows, so that eager's errors hold for
    it too. Where they might not, because indices are among the outputs, or where its effect does not show all the same,
    the factor stays None, and the cached outputs are used.
    """
    specs = loaded.workload.outputs
    change = 1 - random.Random(job.own_seed).uniform(1.2, 1.5) * (1 - about.change)

    def run(dtype: str) -> tuple[Tensor, ...]:
        return next(run_eager(loaded, dtype, about.device, job.subject.threads, _changed_sets(loaded, change)))[1]

    if all(spec.floating for spec in specs):
        outputs = in_high_precision(about.dtype, run)[1]
        check_outputs(loaded, outputs)
        names, former = [spec.name for spec in specs], files.outputs(set_name(0))
        if judges(loaded, least_difference(names, [(tuple(former[name] for name in names), outputs)])):
            write_atomically(folder / f"{set_name(0, changed=True)}.safetensors", save(_copies(loaded, outputs)))
            about = replace(about, own_change=change)
    write_atomically(folder / ABOUT, msgspec.json.encode(about))


_Given: TypeAlias = tuple[Mapping[str, Tensor], tuple[Tensor, ...]]
"""The values of a set, and its outputs."""


def _of_other_inputs(pairs: Iterable[tuple[_Given, _Given]]) -> list[tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]:
    """Return the outputs of each pair of sets whose inputs differ: values drawn from few may be the same again."""
    return [(one, other) for (x, one), (y, other) in pairs if not same_values(x, y)]


def check_given(
    loaded: LoadedSubject, reference: Mapping[str, Tensor], returned: Mapping[str, Tensor], subject: Subject
) -> None:
    """Compare the reference of the given inputs with what the module returned before anything was cast.

    Both come from one module and one input set, so if they differ by more than rounding, a cast made another function
    of the module. The given dtypes may round more than that; then the cast is undone, and the module must return what
    it returned before. Raises BakeoffError (`other-function`) naming the output.
    """
    for spec in loaded.workload.outputs:
        if not spec.floating or spec.name not in returned:
            continue  # indices may differ where two values are nearly equal
        own = returned[spec.name]
        limit = max(loaded.component.tolerance_fp32, _ROUNDINGS * torch.finfo(own.dtype).eps)
        apart = difference(own, reference[spec.name], own.dtype).rel_l2
        if apart > limit and not _cast_back(loaded, returned, subject):
            raise BakeoffError(
                f"{loaded.component.name}.{loaded.workload.name}: {spec.name} of the reference is {apart:.1e} "
                "(relative L2) off what the module returned as it was given, so that something in between changed it; "
                "nothing can be checked against it. Please report this model",
                code="other-function",
            )


def _cast_back(loaded: LoadedSubject, returned: Mapping[str, Tensor], subject: Subject) -> bool:
    """Return whether the module, cast back to the given dtypes, returns for set 0 what it returned before any cast."""
    loaded.cast("given", subject.device)
    again = _given_outputs(loaded, subject.device, subject.threads)
    return all(difference(again[name], own, own.dtype).rel_l2 <= _REPEATED for name, own in returned.items())


def _eager(loaded: LoadedSubject, dtype: str, subject: Subject, files: ReferenceFiles, about: About) -> Eager:
    """Return eager's own errors, operators and times in a dtype; if eager fails in this dtype, only the reason."""
    try:
        outputs, digests = _run_twice(loaded, dtype, subject, about)
        runs = _operators(loaded, dtype, subject)
    except Exception as error:
        if isinstance(error, BakeoffError) or is_out_of_memory(error):
            raise
        return Eager({}, CallOperators(), unmeasured=f"eager fails in {dtype}: {first_line(error)}")
    sized = [[sized_name(size, index) for index in range(SIZED_SETS)] for size in range(len(loaded.sized))]
    usual = [name for name in digests if not any(name in group for group in sized)]
    references = {name: files.outputs(name) for name in digests}
    noise, *size_noise = (_noise(loaded, outputs, references, dtype, group) for group in [usual, *sized])
    regime_noise = _noise_in_regimes(loaded, outputs, files, dtype)
    times = time_sizes(loaded, dtype, subject) if sized else ()
    floating = [spec.name for spec in loaded.workload.outputs if spec.floating]
    if min((noise[name] for name in floating), default=1.0) <= _SAME:
        unrounded = load_subject(subject) if loaded.given.rounds(dtype) else loaded
        again = _rounded_otherwise(unrounded, subject, about)
        for found, group in zip((noise, *size_noise), [usual, *sized], strict=True):
            other = _noise(loaded, again, references, about.dtype, group)
            same = [name for name in floating if found[name] <= _SAME and math.isfinite(other[name])]
            found |= {name: 2 * other[name] for name in same}  # two orders may err to either side
        for regime, other in _noise_in_regimes(loaded, again, files, about.dtype).items():
            found = regime_noise.get(regime, {})
            found |= {name: 2 * other[name] for name in found if found[name] <= _SAME}
    finite = {name: error for name, error in noise.items() if math.isfinite(error)}
    kept = {name: error for name, error in finite.items() if error <= MOST_NOISE}
    right = {name: found for name, found in regime_noise.items() if max(found.values()) <= MOST_NOISE}
    eager = Eager(kept, runs, tuple(size_noise), times, digests=digests, regime_noise=right)
    if finite and not kept:
        advice = "give it in fp32" if dtype == "given" else "use fp32"
        return replace(
            eager,
            not_survived=f"in {dtype} the model itself is another function: eager is {min(finite.values()):.1e} "
            f"(relative L2) off its reference; {advice}, or keep the inputs and parts that must not be rounded: "
            "bakeoff.Model(..., keep_fp32=(NAME, ...))",
        )
    texts = [f"{name} of eager is not finite in {dtype}" for name in noise if name not in finite]
    texts += [f"{name} of eager is {finite[name]:.1e} off in {dtype}" for name in finite if name not in kept]
    return replace(eager, unmeasured="; ".join(texts))


def _run_twice(
    loaded: LoadedSubject, dtype: str, subject: Subject, about: About
) -> tuple[dict[str, tuple[Tensor, ...]], dict[str, tuple[str, ...]]]:
    """Return eager's outputs in a dtype, also in regimes, and digests of the others, "" where a second run differs."""
    first, second = (
        run_eager(
            loaded,
            dtype,
            subject.device,
            subject.threads,
            _all_sets(loaded, about.change, regimes),
            search=subject.device == "cuda",
        )
        for regimes in (about.regimes, ())
    )
    outputs, digests = dict(first), {}
    for name, again in second:
        known = zip(map(digest, outputs[name]), map(digest, again), strict=True)
        digests[name] = tuple(one if one == other else "" for one, other in known)
    return outputs, digests


def _rounded_otherwise(loaded: LoadedSubject, subject: Subject, about: About) -> dict[str, tuple[Tensor, ...]]:
    """Return outputs of the reference's arithmetic with inputs that are one rounding larger and sums in another order.

    Where the model's code computes in that dtype itself, eager equals its reference and does not show what another
    order of the same sums may give. The module stays cast to the reference's dtype.
    """

    def run(dtype: str) -> dict[str, tuple[Tensor, ...]]:
        sets = _all_sets(loaded, about.change, about.regimes)
        return dict(run_eager(loaded, dtype, about.device, subject.threads, sets, nudged=True))

    with other_order():
        return in_high_precision(about.dtype, run)[1]


def _noise(
    loaded: LoadedSubject,
    outputs: Mapping[str, tuple[Tensor, ...]],
    references: Mapping[str, dict[str, Tensor]],
    dtype: str,
    names: Sequence[str],
) -> dict[str, float]:
    """Return the largest error of each output over the sets `names`; infinite if eager's output is not finite."""
    return {
        spec.name: max(
            difference(outputs[name][position], references[name][spec.name], expected_dtype(spec, dtype)).rel_l2
            for name in names
        )
        for position, spec in enumerate(loaded.workload.outputs)
    }


def _noise_in_regimes(
    loaded: LoadedSubject, outputs: Mapping[str, tuple[Tensor, ...]], files: ReferenceFiles, dtype: str
) -> dict[str, dict[str, float]]:
    """Return the error of each floating output by regime; the references of the others are not compared."""
    found = {}
    for name in files.about().regimes:
        if (key := model_outputs(name)) in outputs:
            wanted = files.outputs(regime_file(name))
            differences = regime_differences(loaded, name, outputs[key], wanted, dtype)
            found[name] = {output: one.rel_l2 for output, one in differences.items()}
    return found


def _operators(loaded: LoadedSubject, dtype: str, subject: Subject) -> CallOperators:
    """Return the operators that one call of the module dispatches; the module must be in `dtype` already."""
    inputs = cast_inputs(loaded.workload, loaded.sets[0], dtype, subject.device)
    with flags(dtype, subject.threads), plain_eager(loaded.component):
        return dispatched_by_eager(lambda: loaded.module(*inputs.values()))


def check_outputs(loaded: LoadedSubject, outputs: tuple[Tensor, ...]) -> None:
    """Raise BakeoffError if eager's outputs contain NaN or do not have the shapes that the component states."""
    specs = loaded.workload.outputs
    found, stated = [tuple(tensor.shape) for tensor in outputs], [spec.shape for spec in specs]
    if found != stated:
        raise BakeoffError(
            f"{loaded.component.name}.{loaded.workload.name} returns shapes {found}, but its spec states {stated}. "
            f"Correct the spec or the network.",
            code="wrong-output",
        )
    for spec, tensor in zip(specs, outputs, strict=True):
        if torch.isnan(tensor).any():
            raise BakeoffError(
                f"{loaded.component.name}.{loaded.workload.name}: {spec.name} is not a number in places of the "
                f"reference. Check the weights and the network.",
                code="wrong-output",
            )


_WARM_UP, _ROUNDS = 2, 15
_SECONDS = 3.0


def time_sizes(loaded: LoadedSubject, dtype: str, subject: Subject) -> tuple[int, ...]:
    """Return the nanoseconds of a call at the usual size and at each other one: medians over rounds of one call each.

    The module must be in `dtype` and on the subject's device already.
    """
    calls: list[Call] = [
        partial(loaded.module, *cast_inputs(loaded.workload, given, dtype, subject.device).values())
        for given in (loaded.sets[0], *(sets[0] for sets in loaded.sized))
    ]
    config, each = TimingConfig(subject.device, Policy(), lambda *_: None), len(calls)
    with flags(dtype, subject.threads, search=subject.device == "cuda"):
        time_often(calls, config, _WARM_UP * each, _WARM_UP * each, 0.0)
        samples = time_often(calls, config, each, _ROUNDS * each, _SECONDS)
    return tuple(round(median(samples[place::each])) for place in range(each))
