"""Faults of recorded sessions, their ranks, monitors and reports."""

from source_faults.fault import Fault

FAULTS: tuple[Fault, ...] = ()
