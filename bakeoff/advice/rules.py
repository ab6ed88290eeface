"""Advice from a profile: rules with a condition, a line of evidence, and an upper bound of what they could gain.

A rule is a function from Evidence to Advice and an entry of RULES. The rules are about what the device computes and
with which code, where it waits, the rate of units, and what disturbed them. A rule fires only on measurements. None
recommends fewer layers, a bigger batch or another GPU: those change what is computed or what it is for.
"""

from collections.abc import Iterable, Iterator

from bakeoff.advice.evidence import NOTICE, Advice, Evidence, strength
from bakeoff.models.words import counted

_LEAST_SHARE_OF_FLOOR, _LEAST_OF_UNIT, _AUDIO_OF_UNIT = 0.30, 0.20, 0.10
_SLOW_OF_BUSY, MOST_MEMORY = 0.05, 0.90
_SLOW_KERNELS = (
    (
        ("slow_conv_dilated", "vol2col", "col2vol"),
        "a convolution that no library takes; change its layout or dtype, or give it all frames in one pass",
        "aten/src/ATen/native/NaiveDilatedConvolution.cpp",
    ),
    (
        ("im2col", "slow_conv2d", "slow_conv3d", "thnn_conv"),
        "a convolution by im2col; change its layout or dtype so that cuDNN or oneDNN takes it",
        "aten/src/ATen/native/ConvolutionMM2d.cpp",
    ),
    (
        ("_scaled_dot_product_attention_math", "softmax_warp_forward"),
        "attention without a fused kernel; give it a mask, a head size and strides that one supports",
        "torch.nn.functional.scaled_dot_product_attention",
    ),
    (("dgemm", "f64f64", "double, double"), "products in fp64; cast before them", ""),
)


def slow_kernel(facts: Evidence) -> Iterator[Advice]:
    """Advise on kernels that are known to be slow, and name what replaces them."""
    ran = facts.kernels or facts.operators
    busy = facts.busy_ms or sum(one.ms for one in ran)
    for names, says, source in _SLOW_KERNELS:
        for phase in dict.fromkeys(one.phase for one in ran):
            found = [one for one in ran if one.phase == phase and any(name in one.name for name in names)]
            # An operator and the kernel that it launches both stand for the same time: the longer one counts.
            took = max((one.ms for one in found), default=0.0)
            if not busy or took <= _SLOW_OF_BUSY * busy:
                continue
            longest = max(found, key=lambda one: one.ms)
            yield Advice(
                code="slow-kernel",
                where=phase,
                evidence=f"{longest.name}: {took:.1f} of {busy:.1f} ms busy, "
                f"{counted(longest.calls, 'call', form='.0f')}",
                says=says,
                gain_ms=took,
                strength=strength(took, facts.unit_ms),
                source=source,
            )


def better_variant(facts: Evidence) -> Iterator[Advice]:
    """Advise if the records have a faster variant for a slot."""
    for rival in facts.rivals:
        gain = rival.now_ms - rival.rival_ms
        if gain <= 0:
            continue
        yield Advice(
            code="better-variant",
            where=rival.slot,
            evidence=f"{rival.now} {rival.now_ms:.1f} ms, {rival.rival} {rival.rival_ms:.1f} ms a {facts.unit} "
            f"({', '.join(rival.records)})",
            says=f"take {rival.rival} for {rival.slot}",
            gain_ms=gain,
            strength=strength(gain, facts.unit_ms),
        )


def far_from_floor(facts: Evidence) -> Iterator[Advice]:
    """Advise if a program takes several times as long as the machine needs for it."""
    for fact in facts.floors:
        if fact.ms <= _LEAST_OF_UNIT * facts.unit_ms or fact.floor_ms >= _LEAST_SHARE_OF_FLOOR * fact.ms:
            continue
        gain = fact.ms - fact.floor_ms
        yield Advice(
            code="far-from-floor",
            where=fact.program,
            evidence=f"{fact.ms:.1f} ms; the least by {fact.bound} is {fact.floor_ms:.1f} ms ({fact.record})",
            says="sweep it: a compiler or a dtype that comes nearer may be there"
            if fact.bound == "compute"
            else "fewer bytes: a smaller dtype of weights and state, or fused reads",
            gain_ms=gain,
            strength=strength(gain, facts.unit_ms),
        )


def audio_window(facts: Evidence) -> Iterator[Advice]:
    """Advise if a whole window of latents is decoded for the samples of its last one."""
    window = facts.size("audio window")
    for phase in facts.phases:
        if phase.name != "audio" or window is None or window <= 1 or phase.ms <= _AUDIO_OF_UNIT * facts.unit_ms:
            continue
        gain = phase.ms * (1 - 1 / window)
        yield Advice(
            code="audio-window",
            where=phase.name,
            evidence=f"{window} latents are decoded for the samples of one, {phase.ms:.1f} ms",
            says=f"decode every k frames: k = 2 saves {phase.ms / 2:.1f} ms a {facts.unit} and delays sound by a frame",
            gain_ms=gain,
            strength=strength(gain, facts.unit_ms),
        )


def context_head(facts: Evidence) -> Iterator[Advice]:
    """Advise if the pass that only fills the cache also computes its last layer and its head, which nothing uses."""
    by_name = {phase.name: phase for phase in facts.phases}
    context, denoise = by_name.get("context"), by_name.get("denoise")
    layers = dict(facts.layers).get(context.slot) if context is not None else None
    if context is None or denoise is None or not layers or not context.calls or not denoise.calls:
        return
    each, full = context.ms / context.calls, denoise.ms / denoise.calls
    if each < full:
        return
    gain = each / layers
    yield Advice(
        code="context-head",
        where="context",
        evidence=f"a context pass takes {each:.1f} ms, a denoising pass {full:.1f} ms, of {counted(layers, 'layer')}",
        says="stop the pass at the last layer's keys and values",
        gain_ms=gain,
        strength=strength(gain, facts.unit_ms),
    )


def vram(facts: Evidence) -> Iterator[Advice]:
    """Advise if the device's memory is nearly full."""
    if facts.memory_share is None or facts.memory_share <= MOST_MEMORY:
        return
    yield Advice(
        code="vram",
        where="",
        evidence=f"{facts.memory_share:.0%} of the device's memory at the peak",
        says="weights take most of it: share them between programs, or take a smaller dtype for the largest slot",
        gain_ms=None,
        strength="strong",
    )


_MOVES = ("aten::copy_", "aten::cat", "aten::clone", "aten::_to_copy", "aten::contiguous", "Memcpy", "CatArrayBatched")
_OUTSIDE = ("unattributed", "")


def launch_bound(facts: Evidence) -> Iterator[Advice]:
    """Advise if the host launches a phase's kernels more slowly than the device runs them."""
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
    """Advise if much of the device's busy time goes to moving data."""
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
    """Advise if the host waits for the device within a phase."""
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
    """Advise on time between the calls of programs."""
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


_SLOW_RESPONSE_MS = 250.0
_LEAST_TREND = 0.05
"""Least change over all steady units that is reported, as a share of a unit's time."""
FEWEST_FOR_TREND = 12
LOOK_FOR_MEMORY = "run longer; if it goes on, look for growing memory"
"""Advice on units that become slower if nothing shows why."""
_CLOCK = {"throttled", "power-cap"}
_OTHERS = {"contention", "busy-host", "gpu-shared"}


def compiling(facts: Evidence) -> Iterator[Advice]:
    """Advise if something is compiled while units run."""
    if not facts.compiled:
        return
    yield Advice(
        code="compiling",
        where="",
        evidence=f"{counted(len(facts.compiled), 'event')} of a compiler in steady units: "
        f"{', '.join(facts.compiled[:3])}",
        says="build every shape before the first unit; a changing shape or number recompiles",
        gain_ms=None,
        strength="strong",
    )


def trend(facts: Evidence) -> Iterator[Advice]:
    """Advise if units become slower, or have not stopped becoming faster."""
    disturbed = next((text for code, text in facts.device_findings if code in _OTHERS | _CLOCK), "")
    slower = (disturbed, "mend that first, and measure again") if disturbed else ("", LOOK_FOR_MEMORY)
    yield from trend_of(facts.slope_ms, facts.steady_units, facts.unit_ms, slower)


def trend_of(
    slope_ms: tuple[float, float, float] | None, units: int, unit_ms: float, slower: tuple[str, str]
) -> Iterator[Advice]:
    """Advise as `trend` does, given a slope with its interval, the number of units and their mean time.

    `slower` is for units that become slower: what else was observed, "" for nothing, and the recommended action.
    """
    if slope_ms is None or units < FEWEST_FOR_TREND:
        return
    slope, low, high = slope_ms
    change = slope * units
    if low <= 0 <= high or abs(change) < _LEAST_TREND * unit_ms:
        return
    seen, says = slower if slope > 0 else ("", "run longer: it is still settling")
    evidence = f"{slope:+.3f} ms from unit to unit [{low:+.3f}, {high:+.3f}], {change:+.1f} ms over the run"
    yield Advice(
        code="trend",
        where="",
        evidence=f"{evidence}; {seen}" if seen else evidence,
        says=says,
        gain_ms=None,
        strength="notice",
    )


def too_slow(facts: Evidence) -> Iterator[Advice]:
    """Report a unit that takes longer than its frames last at the model's frame rate."""
    if not facts.frame_rate or not facts.frames:
        return
    period = 1000 * facts.frames / facts.frame_rate
    if facts.unit_ms <= period:
        return
    frames = "a frame" if facts.frames == 1 else f"{facts.frames} frames"
    known = "no mix in the records is faster"
    if facts.best_mix is not None and facts.best_mix[1] < facts.unit_ms:
        mix, ms, record = facts.best_mix
        known = f"the fastest in the records takes {ms:.1f} ms: {mix} ({record})"
    yield Advice(
        code="too-slow",
        where="",
        evidence=f"{facts.unit_ms:.1f} ms for {frames} of {period:.1f} ms at {facts.frame_rate:g} a second",
        says=f"{1 - period / facts.unit_ms:.0%} less is needed; {known}",
        gain_ms=None,
        strength="information",
    )


def response(facts: Evidence) -> Iterator[Advice]:
    """Report how much later the effect of an action is seen, if that is late."""
    if facts.unit == "call" or 2 * facts.unit_ms <= _SLOW_RESPONSE_MS:
        return
    yield Advice(
        code="response",
        where="",
        evidence=f"an action is seen one to two {facts.unit}s later: {facts.unit_ms:.0f} to {2 * facts.unit_ms:.0f} ms",
        says="only a shorter unit changes that",
        gain_ms=None,
        strength="information",
    )


def slow_clock(facts: Evidence) -> Iterator[Advice]:
    """Advise if the GPU lowered its clock."""
    for code, text in facts.device_findings:
        if code in _CLOCK:
            yield Advice(code, "", text, "cool it, or compare at a locked clock", None, "strong")


def contention(facts: Evidence) -> Iterator[Advice]:
    """Advise if other processes took part of the machine."""
    for code, text in facts.device_findings:
        if code in _OTHERS:
            yield Advice("contention", "", text, "stop what else runs, and measure again", None, "notice")


DEADBAND = 0.05
"""Share of a unit below which a possible gain is not reported."""
RULES = (
    launch_bound,
    slow_kernel,
    better_variant,
    far_from_floor,
    copies,
    sync_inside,
    glue,
    audio_window,
    context_head,
    compiling,
    trend,
    too_slow,
    response,
    vram,
    slow_clock,
    contention,
)


def advise(evidence: Evidence) -> tuple[Advice, ...]:
    """Return the rules' advice, the largest gain first, then advice without a bound; no gains below `DEADBAND`."""
    return worth_saying([one for rule in RULES for one in rule(evidence)], evidence.unit_ms)


def worth_saying(found: Iterable[Advice], unit_ms: float) -> tuple[Advice, ...]:
    """Return the advice without gains below `DEADBAND` of `unit_ms`, in the order of `advise`."""
    least = DEADBAND * unit_ms
    kept = [one for one in found if one.gain_ms is None or one.gain_ms >= least]
    return tuple(sorted(kept, key=lambda one: (one.gain_ms is None, -(one.gain_ms or 0.0), one.code)))
