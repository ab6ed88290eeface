"""Components that fail before a backend is called; a sweep uses them as `broken:RAISES`."""

from dataclasses import replace

from bakeoff.models.toy.spec import SPEC

RAISES = replace(SPEC, network="broken.raises")
GREEDY = replace(SPEC, network="broken.greedy")
MISSHAPEN = replace(SPEC, network="broken.misshapen")
