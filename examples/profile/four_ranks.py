"""Four ranks that make one video together, of which one is slow; the report of all names it and its phase.

    torchrun --nproc-per-node 4 examples/profile/four_ranks.py
    python examples/profile/four_ranks.py            # the same; it starts the four processes itself

Each rank writes its own record. They lie in one folder, which `bakeoff session aggregate` reads too.
"""

import argparse
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

RANKS = 4
SLOW_RANK, SLOW_S = 2, 0.020
DENOISE_S, DECODE_S = 0.006, 0.003
STEPS, FRAMES = 4, 12


def pipeline(folder: str, units: int) -> Path:
    """Run this rank's part of a toy pipeline; returns the folder of all ranks' records."""
    import torch
    import torch.distributed as dist

    from bakeoff.profile import Profiler, Settings

    rank = dist.get_rank()
    # Four processes of one small machine: no monitors, which would be four more.
    settings = Settings(
        enabled=True,
        output_dir=folder,
        monitor_gpu_memory=False,
        monitor_gpu_utilization=False,
        monitor_gpu_temperature=False,
        monitor_gpu_power=False,
        monitor_cpu_usage=False,
        monitor_system_memory=False,
    )
    profiler = Profiler(settings, device="cpu", parallelism="model")
    latent = torch.randn(64, 64)
    weight = torch.randn(64, 64) / 8
    with profiler.session("four-ranks") as session:
        for index in range(units):
            with session.unit(frames=FRAMES, latents=3, kind="steady" if index else "opening"):
                with session.phase("denoise"):
                    for step in range(STEPS):
                        with session.step(index=step):
                            latent = torch.tanh(latent @ weight)
                            time.sleep(DENOISE_S / STEPS)
                    if rank == SLOW_RANK:
                        time.sleep(SLOW_S)
                with session.collective("all_reduce"):
                    dist.all_reduce(latent)
                with session.phase("decode"):
                    latent = latent / dist.get_world_size()
                    time.sleep(DECODE_S)
    return session.files[0].parent


def run_rank(folder: str, units: int) -> None:
    """One rank, in a process that has the variables of a launcher."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        records = pipeline(folder, units)
        dist.barrier()  # all ranks have written theirs
        if dist.get_rank() == 0:
            report(records)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def report(records: Path) -> None:
    from bakeoff.profile.ranks.aggregate import aggregate
    from bakeoff.report.pages.ranks import document
    from bakeoff.report.render import terminal

    found = aggregate(records)
    print(terminal.render(document([found])))
    if found.straggler is not None:
        print(f"\nstraggler: rank {found.straggler.rank}, cause: {found.straggler.cause or 'no one phase'}")


def start_ranks(arguments: list[str]) -> int:
    """What torchrun does: one process for each rank, with its variables; returns the first exit code that is not 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(RANKS),
        "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, *arguments],
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(RANKS)
    ]
    try:
        while True:
            codes = [process.poll() for process in processes]
            if any(codes) or None not in codes:
                return next((code for code in codes if code), 0)
            time.sleep(0.05)
    finally:
        for process in processes:
            process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", default="profiles", help="where the records go")
    parser.add_argument("--units", type=int, default=20)
    asked = parser.parse_args()
    if "RANK" not in os.environ:
        return start_ranks(sys.argv[1:])
    run_rank(asked.folder, asked.units)
    return 0


if __name__ == "__main__":
    sys.exit(main())
