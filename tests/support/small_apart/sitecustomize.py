"""On the path of a worker: AOTInductor keeps all weights in separate files, as it does for 1 GB or more."""

from bakeoff.backends import aoti

aoti._SEPARATE_WEIGHTS_BYTES = 1
