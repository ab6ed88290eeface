"""An image and an audio decoder like the tiny presets, with as many latent channels as the tiny world model."""

from dataclasses import replace

from bakeoff.models.audio.spec import SPEC as _AUDIO
from bakeoff.models.component import Component
from bakeoff.models.image.spec import SPEC as _IMAGE


def _fit(component: Component, channels: int) -> Component:
    tiny = component.preset("tiny")
    return replace(component, presets=(replace(tiny, config=replace(tiny.config, latent_channels=channels)),))


IMAGE = _fit(_IMAGE, 8)
AUDIO = _fit(_AUDIO, 6)
