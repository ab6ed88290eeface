"""Imported by the fork server: what most workers import in their first call of it. What they repeat is short."""

import scipy.special  # noqa: F401

import bakeoff.models.toy.network
import bakeoff.models.toy.spec
import bakeoff.worker.work  # noqa: F401
from bakeoff.machine import host
from bakeoff.worker.clocks import in_loop, timing
from bakeoff.worker.pipeline import promise

host.read_versions()
timing._BLOCK_S = 0.01
in_loop._LONGEST_NS = promise._UNITS_NS = 100_000_000
