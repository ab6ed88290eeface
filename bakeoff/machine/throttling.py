"""Names of NVML's reasons for clocks below those asked for: bits of nvmlClocksEventReasons (nvml.h)."""

POWER_CAP = 0x04
SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Those that make measured times unstable."""
REASONS = {POWER_CAP: "power cap", **SLOWDOWNS}
