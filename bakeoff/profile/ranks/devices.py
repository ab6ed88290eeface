"""Memory and energy by device: what belongs to a GPU counts once, however many ranks run on it or see it."""

from collections.abc import Sequence

from bakeoff.profile.ranks.reading import RankFile
from bakeoff.record.ranks import DeviceMemory, RanksEnergy

MEMORY = "gpu.memory"


def memory_of(files: Sequence[RankFile]) -> tuple[DeviceMemory, ...]:
    """The most memory in use on each GPU, by device."""
    most: dict[str, tuple[float, int]] = {}
    for file in files:
        for curve in file.record.monitored.series if file.record.monitored else ():
            greatest = curve.greatest
            if curve.name == MEMORY and greatest is not None and greatest > most.get(curve.source, (-1.0, 0))[0]:
                most[curve.source] = (greatest, file.facts.rank)
    return tuple(
        DeviceMemory(device, mib, rank, ranks_on(files, device)) for device, (mib, rank) in sorted(most.items())
    )


def energy_of(files: Sequence[RankFile]) -> tuple[RanksEnergy, ...]:
    """The energy of each device by the rank that saw most of it, which watched it longest.

    GPUs have names of their own; a CPU's package has the same name on each host.
    """
    gpus = {file.facts.device for file in files} - {""}
    most: dict[tuple[str, str], tuple[float, int]] = {}
    for file in files:
        for energy in file.record.monitored.energy if file.record.monitored else ():
            is_gpu = energy.device in gpus or energy.device.startswith(("GPU-", "MIG-"))
            key = (energy.device, "" if is_gpu else file.facts.host)
            if energy.mj is not None and energy.mj > most.get(key, (-1.0, 0))[0]:
                most[key] = (energy.mj, file.facts.rank)
    hosts = {file.facts.rank: file.facts.host for file in files}
    return tuple(
        RanksEnergy(device, hosts[rank], mj, rank, ranks_on(files, device))
        for (device, _), (mj, rank) in sorted(most.items())
    )


def gpu_energy_mj(files: Sequence[RankFile], energy: Sequence[RanksEnergy]) -> float | None:
    """Of the GPUs that ranks run on, together; None where there is none, or one of them has no figure."""
    gpus = {file.facts.device for file in files} - {""}
    known = {each.device: each.mj for each in energy if each.device in gpus}
    return sum(known.values()) if gpus and len(known) == len(gpus) else None


def ranks_on(files: Sequence[RankFile], device: str) -> tuple[int, ...]:
    return tuple(sorted(file.facts.rank for file in files if device and file.facts.device == device))
