"""Put on the path of a worker: AOTInductor stores all weights in a separate file, as it does from a gigabyte on."""

from bakeoff.backends import aoti

aoti._APART_BYTES = 1
