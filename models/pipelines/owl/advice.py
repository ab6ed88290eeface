"""What owl's own loop could save, by the times of its phases; without torch."""

from collections.abc import Iterator, Mapping

_LEAST_AUDIO = 0.10
"""Share of a unit above which the audio's decoder is worth a word."""


def gains(
    unit: str, unit_ms: float, phases_ms: Mapping[str, float], sizes: Mapping[str, int]
) -> Iterator[tuple[str, str, float, str, str]]:
    """Yield code, phase, most milliseconds a unit that can be gained, evidence, and what to do."""
    window, audio_ms = sizes.get("audio window", 0), phases_ms.get("audio", 0.0)
    if window > 1 and audio_ms > _LEAST_AUDIO * unit_ms:
        evidence = f"{window} latents are decoded for the samples of one, {audio_ms:.1f} ms"
        says = f"decode every k frames: k = 2 saves {audio_ms / 2:.1f} ms a {unit} and delays sound by a frame"
        yield "audio-window", "audio", audio_ms * (1 - 1 / window), evidence, says
