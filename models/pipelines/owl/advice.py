"""What owl's own loop could save, by the times of its phases; without torch."""

from collections.abc import Iterator, Mapping

from bakeoff.models.words import counted

_LEAST_AUDIO = 0.10
"""Share of a unit above which the audio's decoder is worth a word."""


def gains(
    unit: str,
    unit_ms: float,
    phases: Mapping[str, tuple[int | None, float]],
    sizes: Mapping[str, int],
    config: Mapping[str, object],
) -> Iterator[tuple[str, str, float, str, str]]:
    """Yield code, phase, most milliseconds a unit that can be gained, evidence, and what to do.

    `phases` has calls and milliseconds a unit; `config` is that of the world model.
    """
    window, (_, audio_ms) = sizes.get("audio window", 0), phases.get("audio", (None, 0.0))
    if window > 1 and audio_ms > _LEAST_AUDIO * unit_ms:
        evidence = f"{window} latents are decoded for the samples of one, {audio_ms:.1f} ms"
        says = f"decode every k frames: k = 2 saves {audio_ms / 2:.1f} ms a {unit} and delays sound by a frame"
        yield "audio-window", "audio", audio_ms * (1 - 1 / window), evidence, says
    (contexts, context_ms), (denoised, denoise_ms) = (phases.get(name, (0, 0.0)) for name in ("context", "denoise"))
    layers = config.get("n_layers")
    if contexts and denoised and type(layers) is int and context_ms / contexts >= denoise_ms / denoised:
        # The pass that only fills the cache also computes its last layer and its head, which nothing uses.
        each_ms = context_ms / contexts
        passes = f"a context pass takes {each_ms:.1f} ms, a denoising pass {denoise_ms / denoised:.1f} ms"
        says = "stop the pass at the last layer's keys and values"
        yield "context-head", "context", each_ms / layers, f"{passes}, of {counted(layers, 'layer')}", says
