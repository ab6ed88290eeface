"""The generated part of docs/gpu-plans.md: what sweeps would do on GPUs that this host only pretends to have.

    python tests/support/gpu_plans_page.py

writes it anew. Nothing runs: the planner is given a card's facts, no records, and every library.
"""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from tabulate import tabulate

from bakeoff.backends.backend import SUITES, Backend
from bakeoff.machine import host
from bakeoff.models import component_names
from bakeoff.plan.dry_run import estimate
from bakeoff.plan.history import history_of
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gpu-plans.md"
BEGIN, END = "<!-- plans: written by tests/support/gpu_plans_page.py -->", "<!-- end of plans -->"
COMPONENTS = tuple(name for name in component_names() if name != "toy")
_CONTEXT_BYTES = 1 << 30
"""Memory of a card that its driver and a display may use."""
_HOST_BYTES = 128 << 30


@dataclass(frozen=True)
class Card:
    """A card as `nvidia-smi --query-gpu=name,memory.total,compute_cap` states it."""

    label: str
    name: str
    mib: int
    capability: str


CARDS = (
    Card("H100", "NVIDIA H100 80GB HBM3", 81_559, "9.0"),
    Card("H200", "NVIDIA H200", 143_771, "9.0"),
    Card("B200", "NVIDIA B200", 183_359, "10.0"),
    Card("4080", "NVIDIA GeForce RTX 4080", 16_376, "8.9"),
    Card("4090", "NVIDIA GeForce RTX 4090", 24_564, "8.9"),
    Card("5090", "NVIDIA GeForce RTX 5090", 32_607, "12.0"),
)


@contextmanager
def pretended(card: Card) -> Iterator[None]:
    """Have the planner of this process see a host with this card alone, a torch built for it, and every library."""
    size = card.mib << 20
    facts = {"name": card.name, "uuid": "GPU-1", "memory_bytes": size, "compute_capability": card.capability}
    free = {"cuda": size - _CONTEXT_BYTES, "cpu": _HOST_BYTES}
    known, version = replace(host.read_host(), gpus=(facts,)), host._version
    host.read_versions()  # kept for the process, so with the real torch
    with ExitStack() as patches:
        for owner, name, value in (
            (host, "read_host", lambda: known),
            (host, "_version", lambda name: version(name).removesuffix("+cpu")),
            (host, "available_bytes", free.__getitem__),
            (Backend, "unavailable", lambda *_asked: None),
        ):
            patches.enter_context(mock.patch.object(owner, name, value))
        yield


def plans() -> dict[tuple[str, str, str], tuple[Plan, float]]:
    """The plan of each (card, component, suite), and its estimated hours."""
    found = {}
    for card in CARDS:
        with pretended(card):
            for component in COMPONENTS:
                for suite in SUITES:
                    plan = make_plan(Request(component, suite=suite))
                    found[card.label, component, suite] = plan, estimate(plan, history_of([])).seconds / 3600
    return found


def block() -> str:
    """The generated part of the page."""
    made = plans()
    return "\n\n".join((BEGIN, _sizes(made), _refusals(made), _rows(made), END))


def _table(rows: Sequence[Mapping[str, object]], numbers: int = 0) -> str:
    columns = len(rows[0])
    align = ("left",) * (columns - numbers) + ("right",) * numbers
    return tabulate(rows, headers="keys", tablefmt="pipe", colalign=align, disable_numparse=True)


def _of_cards(rows: Iterable[tuple[str, Mapping[str, object]]]) -> list[dict[str, object]]:
    """Join the cards of equal rows."""
    cards: dict[tuple[tuple[str, object], ...], list[str]] = {}
    for card, row in rows:
        cards.setdefault(tuple(row.items()), []).append(card)
    every = [card.label for card in CARDS]
    return [{"cards": "all" if of == every else ", ".join(of), **dict(row)} for row, of in cards.items()]


def _sizes(made: Mapping[tuple[str, str, str], tuple[Plan, float]]) -> str:
    rows = []
    for component in COMPONENTS:
        for card in CARDS:
            chosen = [made[card.label, component, suite] for suite in SUITES]
            usual, _ = chosen[SUITES.index("default")]
            able = [row for row in usual.rows if row.precheck is None]
            most = max(row.memory.device for row in able) / (1 << 30)
            rows.append(
                (
                    card.label,
                    {
                        "component": f"`{component}`",
                        **{f"rows, {suite}": len(plan.rows) for suite, (plan, _) in zip(SUITES, chosen, strict=True)},
                        "refused": len(usual.rows) - len(able),
                        "most memory": f"{most:.1f} GiB",
                        **{f"hours, {suite}": f"{hours:.1f}" for suite, (_, hours) in zip(SUITES, chosen, strict=True)},
                    },
                )
            )
    return f"## Rows, memory and hours\n\n{_table(_of_cards(rows), 8)}"


def _refusals(made: Mapping[tuple[str, str, str], tuple[Plan, float]]) -> str:
    """Each row of the default suite that a card refuses; those of the full suite as counts by reason."""
    rows = []
    for suite in ("default", "full"):
        for card in CARDS:
            reasons: dict[str, list[str]] = {}
            lacks: dict[str, list[str]] = {}
            for component in COMPONENTS:
                for row in made[card.label, component, suite][0].rows:
                    if row.precheck is not None:
                        free = f"the estimate is above {(card.mib << 20) - _CONTEXT_BYTES >> 20:,} MiB"
                        why = free if row.precheck.status == "oom" else row.precheck.reason
                        rule, _, dtype = why.rpartition(", not ")
                        name = f"{component}.{row.variant.workload}: {row.variant.backend}"
                        reasons.setdefault(rule or why, []).append(name)
                        if rule and dtype not in lacks.setdefault(rule, []):
                            lacks[rule].append(dtype)
            for why, names in reasons.items():
                which = _named(names) if suite == "default" else f"{len(names)} rows"
                why += f", not {', '.join(lacks[why])}" if why in lacks else ""
                rows.append((card.label, {"suite": suite, "refused": which, "why": why}))
    return f"## What is refused before it starts\n\n{_table(_of_cards(rows))}"


def _named(names: Sequence[str]) -> str:
    """Names, each with how many dtypes it has."""
    counted = Counter(names)
    return "<br>".join(f"`{name}`" + (f" ({count} dtypes)" if count > 1 else "") for name, count in counted.items())


def _rows(made: Mapping[tuple[str, str, str], tuple[Plan, float]]) -> str:
    """The rows of the default suite, by the components and cards that have them."""
    cells: dict[str, dict[str, list[str]]] = {}
    for card in CARDS:
        for component in COMPONENTS:
            for row in made[card.label, component, "default"][0].rows:
                name = f"`{row.variant.backend}` {row.variant.dtype}"
                cards = cells.setdefault(name, {}).setdefault(component, [])
                cards += [] if card.label in cards else [card.label]
    every = [card.label for card in CARDS]
    groups: dict[tuple[str, str], list[str]] = {}
    for name, of in cells.items():
        for able in sorted({tuple(cards) for cards in of.values()}):
            components = ", ".join(f"`{one}`" for one in COMPONENTS if tuple(of.get(one, ())) == able)
            on = "all cards" if list(able) == every else ", ".join(able)
            groups.setdefault((components, on), []).append(name)
    lines = (f"- {components}, on {on}: {', '.join(names)}" for (components, on), names in groups.items())
    wrapped = (textwrap.fill(line, 120, subsequent_indent="  ", break_on_hyphens=False) for line in lines)
    return "## The rows of the default suite\n\n" + "\n".join(wrapped)


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + block() + rest.partition(END)[2], encoding="utf-8")
