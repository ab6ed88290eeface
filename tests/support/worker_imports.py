"""Imported by the fork server: what most workers import in their first call of it; throughput blocks are short."""

import scipy.special  # noqa: F401

import bakeoff.models.toy.network
import bakeoff.models.toy.spec
import bakeoff.worker.work  # noqa: F401
from bakeoff.machine import host
from bakeoff.worker.clocks import timing

host.read_versions()
timing._BLOCK_S = 0.01
