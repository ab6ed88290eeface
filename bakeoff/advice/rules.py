"""Advice from a profile: rules with a condition, a line of evidence, and an upper bound of what they could gain.

A rule is a function from Evidence to Advice and an entry of RULES. The rules are about what the device computes and
with which code, where it waits, the rate of units, and what disturbed them. A rule fires only on measurements. None
recommends fewer layers, a bigger batch or another GPU: those change what is computed or what it is for.
"""

from collections.abc import Iterator, Mapping

from bakeoff.advice.evidence import NOTICE, Advice, Evidence, Strength, strength
from bakeoff.models.words import counted

DEADBAND = 0.05
"""Share of a unit below which a possible gain is not reported."""
MOST_MEMORY = 0.90
FEWEST_FOR_TREND = 12
_SLOW_OF_BUSY, _LEAST_SHARE_OF_FLOOR, _LEAST_OF_UNIT = 0.05, 0.30, 0.20
_LEAST_TREND = 0.05
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
_MOVES = ("aten::copy_", "aten::cat", "aten::clone", "aten::_to_copy", "aten::contiguous", "Memcpy", "CatArrayBatched")
_STATES: Mapping[str, tuple[str, Strength]] = {
    "throttled": ("cool it, or compare at a locked clock", "strong"),
    "power-cap": ("raise the power limit if it may be, or compare at a locked clock", "strong"),
    "memory-grows": (
        "free what is kept from unit to unit: outputs in a list, caches, graphs of gradients; compare two snapshots of "
        "tracemalloc, on a GPU of torch.cuda.memory_snapshot",
        "notice",
    ),
}
"""What to do about a finding, by its code, and how strongly that is said."""
_OTHERS = {"contention", "busy-host", "gpu-shared"}


def _gain(facts: Evidence, code: str, where: str, gain_ms: float, evidence: str, says: str, source: str = "") -> Advice:
    return Advice(code, where, evidence, says, gain_ms, strength(gain_ms, facts.unit_ms), source)


def slow_kernel(facts: Evidence) -> Iterator[Advice]:
    """Advise on kernels that are known to be slow, and name what replaces them."""
    ran, busy = facts.ran, facts.busy_ms or sum(one.ms for one in facts.ran)
    for names, says, source in _SLOW_KERNELS:
        for phase in dict.fromkeys(one.line for one in ran):
            found = [one for one in ran if one.line == phase and any(name in one.name for name in names)]
            # An operator and the kernel that it launches both stand for the same time: the longer one counts.
            longest = max(found, key=lambda one: one.ms, default=None)
            if busy and longest is not None and longest.ms > _SLOW_OF_BUSY * busy:
                calls = counted(longest.calls, "call", form=".0f")
                evidence = f"{longest.name}: {longest.ms:.1f} of {busy:.1f} ms busy, {calls}"
                yield _gain(facts, "slow-kernel", phase, longest.ms, evidence, says, source)


def better_variant(facts: Evidence) -> Iterator[Advice]:
    """Advise if the records have a faster variant for a slot."""
    for one in facts.rivals:
        if one.rival_ms < one.now_ms:
            times = f"{one.now} {one.now_ms:.1f} ms, {one.rival} {one.rival_ms:.1f} ms a {facts.unit}"
            evidence, says = f"{times} ({', '.join(one.records)})", f"take {one.rival} for {one.slot}"
            yield _gain(facts, "better-variant", one.slot, one.now_ms - one.rival_ms, evidence, says)


def far_from_floor(facts: Evidence) -> Iterator[Advice]:
    """Advise if a program takes several times as long as the machine needs for it."""
    for one in facts.floors:
        if one.ms > _LEAST_OF_UNIT * facts.unit_ms and one.floor_ms < _LEAST_SHARE_OF_FLOOR * one.ms:
            says = (
                "sweep it: a compiler or a dtype that comes nearer may be there"
                if one.bound == "compute"
                else "fewer bytes: a smaller dtype of weights and state, or fused reads"
            )
            evidence = f"{one.ms:.1f} ms; the least by {one.bound} is {one.floor_ms:.1f} ms ({one.record})"
            yield _gain(facts, "far-from-floor", one.program, one.ms - one.floor_ms, evidence, says)


def of_the_loop(facts: Evidence) -> Iterator[Advice]:
    """Advise what a pipeline's own loop could gain, by the rules in its folder."""
    for code, phase, gain_ms, evidence, says in facts.own_gains:
        yield _gain(facts, code, phase, gain_ms, evidence, says)


def vram(facts: Evidence) -> Iterator[Advice]:
    """Advise if the device's memory is nearly full."""
    if facts.memory is not None and facts.memory[0] > MOST_MEMORY:
        says = (
            "weights take most of it: share them between programs, or take a smaller dtype, the largest model's first"
        )
        yield Advice("vram", "", facts.memory[1], says, None, "strong")


def launch_bound(facts: Evidence) -> Iterator[Advice]:
    """Advise if the host launches a phase's kernels more slowly than the device runs them."""
    for phase in facts.phases:
        waited = phase.host_wait_ms
        if waited is None or waited <= NOTICE * facts.unit_ms:
            continue
        busy, kernels = f"{phase.ms:.1f} ms", ""
        if phase.busy_ms is not None:
            busy = f"{phase.busy_ms:.1f} of {phase.ms:.1f} ms busy"
            if phase.launches:
                each_us = phase.busy_ms * 1000 / phase.launches
                kernels = f", {counted(phase.launches, 'kernel', form='.0f')} of {each_us:.1f} us each"
        evidence = f"{busy}; the device waits {waited:.1f} ms for the host{kernels}"
        says = "capture the calls (cudagraph, inductor[mode=reduce-overhead]) or compile them into fewer kernels"
        yield _gain(facts, "launch-bound", phase.name, waited, evidence, says)


def copies(facts: Evidence) -> Iterator[Advice]:
    """Advise if much of the device's busy time goes to moving data."""
    ran = [one for one in facts.ran if one.name.startswith(_MOVES)]
    moved, busy = sum(one.ms for one in ran), facts.busy_ms or sum(one.ms for one in facts.ran)
    if busy and moved > NOTICE * busy:
        names = ", ".join(f"{one.name} in {one.line} {one.ms:.1f} ms" for one in ran[:3])
        buffers = f"{facts.copied_mib:.1f} MiB between buffers a {facts.unit}"
        says = "bind state in place or swap its buffers; write parts of a result where they are needed"
        yield _gain(facts, "copies", "", moved, f"{moved:.1f} of {busy:.1f} ms busy: {names}; {buffers}", says)


def sync_inside(facts: Evidence) -> Iterator[Advice]:
    """Advise if the host waits for the device within a phase."""
    for phase in dict.fromkeys(one.line for one in facts.waits if one.line not in ("unattributed", "")):
        waits = [one for one in facts.waits if one.line == phase]
        waited, count = sum(one.ms for one in waits), counted(sum(one.calls for one in waits), "wait", form=".0f")
        says = "keep indices and flags on the device; read results once, at the end"
        evidence = f"{count} a {facts.unit} ({waits[0].name}), {waited:.2f} ms"
        yield _gain(facts, "sync-inside", phase, waited, evidence, says)


def glue(facts: Evidence) -> Iterator[Advice]:
    """Advise on time between the calls of programs."""
    between = facts.glue_ms + facts.unattributed_ms
    if between > NOTICE * facts.unit_ms:
        evidence = f"{facts.glue_ms:.2f} ms of glue and {facts.unattributed_ms:.2f} ms without a name"
        says = "compile the arithmetic between calls, or move it into a program"
        if not facts.glue_ms:
            says = "name what runs there with a phase; then compile it with its neighbours, or move it out of the unit"
        yield _gain(facts, "glue", "", between, evidence, says)


def compiling(facts: Evidence) -> Iterator[Advice]:
    """Advise if something is compiled while units run."""
    if facts.compiled:
        says = "build every shape before the first unit; a changing shape or number recompiles"
        yield Advice("compiling", "", facts.compiled, says, None, "strong")


def trend(facts: Evidence) -> Iterator[Advice]:
    """Advise if units become slower, and then on what else was observed, or have not stopped becoming faster."""
    if facts.slope_ms is None or facts.steady_units < FEWEST_FOR_TREND:
        return
    (slope, low, high), units = facts.slope_ms, facts.steady_units
    if low <= 0 <= high or abs(slope * units) < _LEAST_TREND * facts.unit_ms:
        return
    evidence = f"{slope:+.3f} ms from unit to unit [{low:+.3f}, {high:+.3f}], {slope * units:+.1f} ms over the run"
    disturbed = next((text for code, text in facts.device_findings if code in _OTHERS or code in _STATES), "")
    says = "run longer: it is still settling"
    if slope > 0 and disturbed:
        evidence, says = f"{evidence}; {disturbed}", "mend that first, and measure again"
    elif slope > 0:
        says = "run longer; if it goes on, look for growing memory"
    yield Advice("trend", "", evidence, says, None, "notice")


def too_slow(facts: Evidence) -> Iterator[Advice]:
    """Report a unit that takes longer than its frames last at the model's frame rate."""
    period = 1000 * facts.frames / facts.frame_rate if facts.frame_rate else 0.0
    if not period or facts.unit_ms <= period:
        return
    frames = "a frame" if facts.frames == 1 else f"{facts.frames:g} frames"
    evidence = f"{facts.unit_ms:.1f} ms for {frames} of {period:.1f} ms at {facts.frame_rate:g} a second"
    says = f"{1 - period / facts.unit_ms:.0%} less is needed"
    yield Advice("too-slow", "", evidence, says, None, "information")


def disturbances(facts: Evidence) -> Iterator[Advice]:
    """Advise if the GPU lowered its clock, or memory grows."""
    for code, text in facts.device_findings:
        if code in _STATES:
            says, strong = _STATES[code]
            yield Advice(code, "", text, says, None, strong)


def contention(facts: Evidence) -> Iterator[Advice]:
    """Advise if other processes took part of the machine."""
    texts = [text for code, text in facts.device_findings if code in _OTHERS]
    if texts:
        yield Advice("contention", "", "; ".join(texts), "stop what else runs, and measure again", None, "notice")


RULES = (
    launch_bound, slow_kernel, better_variant, far_from_floor, copies, sync_inside, glue, of_the_loop,
    compiling, trend, too_slow, vram, disturbances, contention,
)  # fmt: skip


def advise(facts: Evidence) -> tuple[Advice, ...]:
    """Return the rules' advice, the largest gain first, then advice without a bound; no gains below `DEADBAND`."""
    found = (one for rule in RULES for one in rule(facts))
    kept = [one for one in found if one.gain_ms is None or one.gain_ms >= DEADBAND * facts.unit_ms]
    return tuple(sorted(kept, key=lambda one: (one.gain_ms is None, -(one.gain_ms or 0.0), one.code)))
