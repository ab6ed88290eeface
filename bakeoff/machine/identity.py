"""Identifies the machine: an anonymous id of this host and device, and the class of machines that are alike.

A machine is its class, on which compiled code and times depend: hosts of one class stand on one page. The id tells such
hosts apart, but alone it says nothing: cloned virtual machines share it, whatever processor they run on.
"""

import contextlib
import os
import re
import socket
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bakeoff.machine import host
from bakeoff.machine.files import digest
from bakeoff.machine.host import Host

VARIABLE = "BAKEOFF_MACHINE"
"""Environment variable that takes the place of this host's own identity: any text, of which only a hash is stored. For
containers, which get another host name with each start."""
_HOST_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id", "/sys/class/dmi/id/product_uuid")
"""Files with an id of the host (machine-id(5)); the last one is readable by root only."""
_LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class Machine:
    """A host and one device of it, as records store them."""

    id: str
    """Hash of the host's own id and, on CUDA, the GPU's UUID, which cannot be turned back into them."""
    machine_class: str
    """Hash of what compiled code depends on: CPU model with stepping and flags, memory, hypervisor, GPU, driver."""
    name: str
    """For people: the GPU, or the CPU and its cores."""

    @property
    def key(self) -> str:
        """Equal for hosts of one class; without a recorded class, for the records of one host that lack it too."""
        return self.machine_class or f"?{self.id}"

    @property
    def host(self) -> str:
        """Equal for records of one host of one class."""
        return f"{self.key} {self.id}"

    @property
    def tag(self) -> str:
        """Characters that tell machines of one name apart: of the class or, if none was recorded, of the id."""
        return (self.machine_class or self.id)[:6]

    @property
    def folder(self) -> str:
        """Name of the folder of its records: readable, and unique by the class."""
        return folder_name(self.name, self.tag)


def same_machine(one: Machine, other: Machine) -> bool:
    """Return whether records of the two may stand together. Their times are compared only on one `host` too."""
    return one.key == other.key


def folder_name(name: str, tag: str) -> str:
    """Make a folder's name from a machine's name and tag: lower-case letters, digits and dashes."""
    slug = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)", "", name.lower())).strip("-")[:_LONGEST_NAME].strip("-")
    return f"{slug or 'machine'}-{tag[:6]}"


@cache
def this_machine(device: str) -> Machine:
    """Return this host with `device`; on CUDA, with the GPU that is measured."""
    facts = host.read_host()
    return Machine(_machine_id(facts, device), machine_class(facts, device), facts.name(device))


def machine_class(facts: Host, device: str) -> str:
    """Return a hash of the parts of a machine that decide which compiled code fits it and how fast it is."""
    gpu = facts.gpus[0] if device == "cuda" and facts.gpus else {}
    parts = [facts.cpu, facts.cpu_stepping, facts.cpu_flags, facts.all_flags, facts.cores, facts.logical_cores]
    memory_gib = round(facts.memory_bytes / 2**30)  # the kernel's share differs by some MiB between boots
    return digest([*parts, memory_gib, facts.hypervisor, gpu.get("name", ""), gpu.get("driver", "")])[:12]


def _machine_id(facts: Host, device: str) -> str:
    gpu = str(facts.gpus[0]["uuid"]) if device == "cuda" and facts.gpus else ""
    return digest([_host_identity(), facts.cpu, gpu])[:12]


def _host_identity() -> list[str]:
    """Return the texts that distinguish this host: $BAKEOFF_MACHINE, else its ids, else its name and network address.

    Where no network card has an address, uuid.getnode() returns a random one in each process (RFC 4122, section 4.5:
    the multicast bit is set); that says nothing.
    """
    asked = os.environ.get(VARIABLE, "")
    if asked:
        return [asked]
    found = []
    for path in _HOST_FILES:
        with contextlib.suppress(OSError):
            found.append(Path(path).read_text().strip())
    node = uuid.getnode()
    address = [] if node >> 40 & 1 else [f"{node:x}"]
    return [text for text in found if text] or [socket.gethostname(), *address]
