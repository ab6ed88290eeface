"""A session of any length: units of about 20 ms with steps, monitors on. Prints memory while it runs, then the files.

    python examples/profile/long_session.py 30 [FOLDER]

The argument is minutes. Resident memory must stay flat after the first minute, and the record must not grow with the
length of the run: 30 minutes are about 85,000 units and 340,000 steps. Needs bakeoff alone.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

from bakeoff.profile import Profiler, Settings

TIMESTEPS = (1000, 750, 500, 250)
STEP_S = 0.004
LINES = 12
"""Lines that are printed over the whole run."""


def resident_mib() -> float:
    """Resident memory of this process, MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def until(end_s: float) -> Iterator[int]:
    """Numbers of units until the monotonic clock has come to `end_s`."""
    index = 0
    while monotonic() < end_s:
        yield index
        index += 1


def main(minutes: float, folder: str) -> None:
    settings = Settings(enabled=True, output_dir=folder, gpu_monitor_interval=0.5, cpu_monitor_interval=0.5)
    started_s = monotonic()
    line_s = started_s
    with Profiler(settings).session("long session", tags={"minutes": minutes}) as session:
        for index in until(started_s + 60 * minutes):
            with session.unit(frames=12, latents=3):
                with session.phase("denoise"):
                    for place, timestep in enumerate(TIMESTEPS):
                        with session.step(index=place, timestep=timestep):
                            sleep(STEP_S)
                with session.phase("decode"):
                    sleep(STEP_S)
            session.sample("resident", resident_mib(), unit="MiB")
            if index % 1000 == 0:
                session.event("thousandth unit", index=index)
            if monotonic() >= line_s:
                line_s += 60 * minutes / LINES
                print(f"{monotonic() - started_s:8.1f} s {index:8} units {resident_mib():8.1f} MiB", flush=True)
    print(f"{monotonic() - started_s:8.1f} s after the session {resident_mib():8.1f} MiB")
    for path in session.files:
        print(f"{path.stat().st_size / 2**20:8.2f} MiB {path}")


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "profiles")
