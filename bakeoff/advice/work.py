"""Rules about what the device computes, and with which code."""

from collections.abc import Iterator

from bakeoff.advice.evidence import Advice, Evidence, strength
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
    """Kernels that are known to be slow, and what replaces them."""
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
    """The records hold a faster variant for a slot."""
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
    """A program takes several times as long as the machine needs."""
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
    """A window of latents is decoded for the samples of the last one."""
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
    """The pass that only fills the cache computes its last layer and its head for nothing."""
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
    """The device's memory is nearly full."""
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
