"""Rules about time in which the device could work and does not."""

from collections.abc import Iterator

from bakeoff.advice.evidence import NOTICE, Advice, Evidence, strength
from bakeoff.models.words import counted

_MOVES = ("aten::copy_", "aten::cat", "aten::clone", "aten::_to_copy", "aten::contiguous", "Memcpy", "CatArrayBatched")
_OUTSIDE = ("unattributed", "")


def launch_bound(facts: Evidence) -> Iterator[Advice]:
    """The host launches kernels more slowly than the device runs them."""
    for phase in facts.phases:
        waited = phase.host_wait_ms
        if waited is None or waited <= NOTICE * facts.unit_ms:
            continue
        kernels = ""
        if phase.launches and phase.busy_ms is not None:
            each_us = phase.busy_ms * 1000 / phase.launches
            kernels = f", {counted(phase.launches, 'kernel', form='.0f')} of {each_us:.1f} us each"
        busy = f"{phase.busy_ms:.1f} of {phase.ms:.1f} ms busy" if phase.busy_ms is not None else f"{phase.ms:.1f} ms"
        yield Advice(
            code="launch-bound",
            where=phase.name,
            evidence=f"{busy}; the device waits {waited:.1f} ms for the host{kernels}",
            says="capture the calls (cudagraph, inductor[mode=reduce-overhead]) or compile them into fewer kernels",
            gain_ms=waited,
            strength=strength(waited, facts.unit_ms),
        )


def copies(facts: Evidence) -> Iterator[Advice]:
    """Data is moved instead of computed with."""
    ran = [one for one in (facts.kernels or facts.operators) if one.name.startswith(_MOVES)]
    moved = sum(one.ms for one in ran)
    busy = facts.busy_ms or sum(one.ms for one in (facts.kernels or facts.operators))
    if not busy or moved <= NOTICE * busy:
        return
    names = ", ".join(f"{one.name} in {one.phase} {one.ms:.1f} ms" for one in ran[:3])
    yield Advice(
        code="copies",
        where="",
        evidence=f"{moved:.1f} of {busy:.1f} ms busy: {names}; "
        f"{facts.copied_mib:.1f} MiB between buffers a {facts.unit}",
        says="bind state in place or swap its buffers; write parts of a result where they are needed",
        gain_ms=moved,
        strength=strength(moved, facts.unit_ms),
    )


def sync_inside(facts: Evidence) -> Iterator[Advice]:
    """The host waits for the device within a phase."""
    by_phase: dict[str, list[tuple[str, float, float]]] = {}
    for one in facts.waits:
        if one.phase not in _OUTSIDE:
            by_phase.setdefault(one.phase, []).append((one.name, one.calls, one.ms))
    for phase, waits in by_phase.items():
        waited = sum(ms for _, _, ms in waits)
        count = sum(calls for _, calls, _ in waits)
        yield Advice(
            code="sync-inside",
            where=phase,
            evidence=f"{counted(count, 'wait', form='.0f')} a {facts.unit} ({waits[0][0]}), {waited:.2f} ms",
            says="keep indices and flags on the device; read results once, at the end",
            gain_ms=waited,
            strength=strength(waited, facts.unit_ms),
        )


def glue(facts: Evidence) -> Iterator[Advice]:
    """Time between the calls of programs."""
    between = facts.glue_ms + facts.unattributed_ms
    if between <= NOTICE * facts.unit_ms:
        return
    yield Advice(
        code="glue",
        where="",
        evidence=f"{facts.glue_ms:.2f} ms of glue and {facts.unattributed_ms:.2f} ms without a name",
        says="compile the arithmetic between calls, or move it into a program",
        gain_ms=between,
        strength=strength(between, facts.unit_ms),
    )
