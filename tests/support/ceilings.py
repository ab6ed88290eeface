"""Ceilings of a machine that tests can compute with by hand."""

from bakeoff.machine.floors import Ceiling

MIB = 1 << 20
CEILINGS = (
    Ceiling("copy", "fp32", MIB, 80e9, 70e9),
    Ceiling("read", "fp32", MIB, 90e9, 70e9),
    Ceiling("copy", "fp32", 512 * MIB, 10e9, 9e9),
    Ceiling("read", "fp32", 512 * MIB, 15e9, 14e9),
    Ceiling("product", "fp32", 10**9, 100e9, 90e9),
    Ceiling("convolution", "fp32", 10**9, 150e9, 90e9),
    Ceiling("product", "bf16", 10**9, 300e9, 250e9),
)
