"""On the path of a worker: AOTInductor keeps all weights apart, as it does a gigabyte of them."""

from bakeoff.backends import aoti

aoti._SEPARATE_WEIGHTS_BYTES = 1
