"""Faults of the profile command, traces and advice."""

from source_faults.fault import Fault

FAULTS: tuple[Fault, ...] = ()
