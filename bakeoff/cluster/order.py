"""What a driver sends to a node: one subject's sweep, and what the node must have in common with the driver."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from bakeoff.bring.bring import is_brought, read_source
from bakeoff.machine import host
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.request import Request
from bakeoff.plan.rows import Key
from bakeoff.record.codec import encode
from bakeoff.record.source import code_hash, code_of
from bakeoff.record.store import Records

NODE = ("-P", "-m", "bakeoff.cluster.node")
"""Arguments of the Python that carries out an order."""
PLAN, FINAL = "plan", "final"
"""What the names of two kinds of parts begin with: those that only say which rows there are, and those that run a final
between rows that were measured on machines like the node's."""
_COMMON = ("bakeoff", "torch")
"""Libraries that have one version on all nodes of a run; records state those of others, and tables keep them apart."""


@dataclass(frozen=True, slots=True)
class Order:
    """A sweep that a node carries out."""

    request: Request
    """With the component as it was typed, since a model of a user is described where it runs."""
    sweep: str
    """The driver's id of it."""
    order_seed: int
    expected: dict[str, str]
    """`own_code` of the driver."""
    sizes: tuple[str, ...] = ()
    note: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """Of a model of a user's: its file first, and what that imports of its own folder, by names within it."""
    known: tuple[bytes, ...] = ()
    """The driver's records of this sweep and of ceilings; a node takes those of its own machine."""
    part: str = ""
    """Name of this part of a sweep that is spread; empty for the whole sweep."""
    only: tuple[Key, ...] = ()
    """Rows of the part."""


def own_code() -> dict[str, str]:
    """What decides here how rows are measured: versions, and the hash of this project's code."""
    found = host.read_versions()
    return {**{name: found.get(name, "none") for name in _COMMON}, "code": code_hash()}


def differences(expected: dict[str, str]) -> str:
    """Where this node differs from the driver, as in `torch 2.12.0 (the driver has 2.13.0)`; "" where it does not."""
    ours = own_code()
    return ", ".join(
        f"{name} {ours[name]} (the driver has {value})" for name, value in expected.items() if ours[name] != value
    )


def with_known(order: Order, held: Records) -> Order:
    """Return the order with what was measured of its sweep."""
    known = [encode(entry.record) for entry in held.current if entry.record.sweep == order.sweep]
    known += [encode(entry.record) for entry in held.comparisons if entry.record.sweep == order.sweep]
    return replace(order, known=tuple(known))


def files_of(component: str) -> dict[str, bytes]:
    """The files of a user's model, by their names in its folder, its own first; none of a component of this project.

    Raises BakeoffError where one cannot be read, and for a live module, which does not leave its machine.
    """
    if not is_brought(component):
        return {}
    source, _, _ = read_source(component)
    if source.kind == "live":
        raise BakeoffError(f"{component}: a live module stays on its machine; give mine.py:model", "cannot-travel")
    path = Path(source.path)
    others = dict(code_of(path)) if source.kind == "function" else {}
    return {path.name: path.read_bytes()} | {name: file.read_bytes() for name, file in others.items()}


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A row, as a node says it to the driver."""

    key: Key
    subject: str
    runs: bool
    """Whether it may run on the node's machine."""
    calibrates: bool
    """Whether it is the one by which machines are compared: eager fp32."""
