"""What recording costs a pipeline on this machine: `python tests/trials/session_overhead.py [--rounds N] [--units N]`.

Units of a toy without recording, with it, and with it and monitors, in random order in one process. Prints what each
costs a unit with its interval. Exits 1 if a whole interval is above `overhead_limit`. Takes half a minute with 21
rounds; 161 make the interval narrow. Run it alone on the machine.
"""

import argparse
import secrets
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from session_overhead import RANGES, measure_overhead

from bakeoff.profile.settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--unit-ms", type=float, default=20.0, help="milliseconds of a unit without recording")
    parser.add_argument("--rounds", type=int, default=21, help="blocks of each way")
    parser.add_argument("--units", type=int, default=12, help="units of a block")
    parser.add_argument("--settings", help="TOML or YAML file of a profiler (default: all monitors)")
    asked = parser.parse_args()
    settings = Settings.load(asked.settings) if asked.settings else Settings()
    seed = secrets.randbits(32)
    found = measure_overhead(settings, asked.unit_ms, asked.rounds, asked.units, seed)
    for cost in found.ways:
        print(f"{cost.way}: {cost.typical} of a unit of {found.off_ms:.2f} ms; by whole blocks {cost.whole}")
    print(f"{asked.rounds} rounds of {asked.units} units of each way in random order, seed {seed}")
    if found.range_ns is not None:
        share = RANGES * found.range_ns / (found.off_ms * 1e6)
        print(f"by a session's own account {RANGES} ranges of {found.range_ns / 1e3:.2f} us, {share:.2%} of a unit")
    if found.monitor is not None:
        print(f"the monitor's process took {found.monitor.sampling_share:.2%} of one core")
    for text in found.missing:
        print(f"not monitored: {text}")
    for way in found.too_dear():
        print(f"{way} costs more than overhead_limit, {found.limit:.2%}")
    return bool(found.too_dear())


if __name__ == "__main__":
    sys.exit(main())
