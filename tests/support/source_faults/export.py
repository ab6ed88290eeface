"""Faults of exported artifacts, their check and their use."""

from source_faults.fault import Fault

FAULTS: tuple[Fault, ...] = ()
