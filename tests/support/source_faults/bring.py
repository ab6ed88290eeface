"""Faults of users' own models: reading, describing, inspecting, applying."""

from source_faults.fault import Fault

FAULTS: tuple[Fault, ...] = ()
