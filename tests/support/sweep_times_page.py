"""docs/trials/sweep-times.md from tests/trials/sweep_times.json."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
RECORD, PAGE = ROOT / "tests" / "trials" / "sweep_times.json", ROOT / "docs" / "trials" / "sweep-times.md"
_KINDS = ("cold", "warm")


def page(found: dict[str, Any]) -> str:
    """The page of a record."""
    sections = [
        "# How long a sweep takes\n\n"
        "Written by `tests/trials/sweep_times.py` from what it recorded in tests/trials/sweep_times.json; do not edit. "
        "Each sweep is `bakeoff sweep NAME` at the default suite, final included, from the command to the table: cold "
        "with an empty cache folder, warm with the one that the cold sweep left. Nothing else ran on the machine. Only "
        "times of one day on one machine can be compared: hosts like this one differ twofold. The limit of a cold "
        "sweep, where recorded: CPU seconds of its builds over the cores and 8 s of samples a row; until "
        "November 2026 its references too."
    ]
    for label, entry in found.items():
        sections.append(f"## {label}\n\n{_about(entry)}")
        if any(kind in kinds for kinds in _components(entry).values() for kind in _KINDS):
            sections.append(_times(entry))
        budgets = list(_budgets(entry, found))
        if budgets:
            headers = ["component", "took", "rows", "best row in time", "best row of the full sweep", "same"]
            sections.append(tabulate(budgets, headers=headers, tablefmt="github"))
    return "\n\n".join(sections) + "\n"


def _about(entry: dict[str, Any]) -> str:
    runs = [made for kinds in _components(entry).values() for made in kinds.values()]
    loads = [made["load_before"] for made in runs]
    commits = " and ".join(sorted({made["commit"] for made in runs}))
    host = entry["host"]
    return (
        f"Recorded {entry['recorded']} at commit {commits} on {host['cpu']}, {host['cores']} cores, no GPU. Load "
        f"average before a sweep: {min(loads):.1f} to {max(loads):.1f}, of which each earlier sweep is a part."
    )


def _components(entry: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: kinds for name, kinds in entry.items() if name not in ("host", "recorded")}


def _times(entry: dict[str, Any]) -> str:
    rows = []
    for name, kinds in _components(entry).items():
        for kind in _KINDS:
            if kind in kinds:
                made = kinds[kind]
                measured = sum(row["median_ms"] is not None for row in made["rows"].values())
                finals = "; ".join(_final(one) for one in made["finals"])
                row = {"component": name, "caches": kind, "took": minutes(made["seconds"])}
                row |= {"limit": _limit(kind, made)} if "limit_s" in made else {}
                row |= {"rows ready": minutes(made["ranked_s"])} if "ranked_s" in made else {}
                row |= {"AITune": _peer(made["aitune"])} if "aitune" in made else {}
                rows.append(row | {"rows measured": measured, "of this": _parts(made), "final": finals})
    return tabulate(rows, headers="keys", tablefmt="github")


def minutes(seconds: float) -> str:
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def _limit(kind: str, made: dict[str, Any]) -> str:
    """The limit of a cold sweep, and how many times that it took; "" for another one."""
    return f"{minutes(made['limit_s'])} ({made['seconds'] / made['limit_s']:.1f}x)" if kind == "cold" else ""


def _peer(answer: dict[str, Any]) -> str:
    return f"{minutes(answer['seconds'])} ({answer['selected']})"


def _parts(made: dict[str, Any]) -> str:
    total = sum(made["spent_s"].values())
    shares = [f"{part} {seconds / total:.0%}" for part, seconds in made["spent_s"].items() if seconds / total >= 0.01]
    return ", ".join(shares) or made["errors"][-200:]


def _final(one: dict[str, Any]) -> str:
    first, second = one["sides"][:2]
    ratio = f"{one['ratio']:.2f}x [{one['low']:.2f}, {one['high']:.2f}], {one['sets']} pairs"
    if one["word"] == "no difference shown":
        return f"{first}, {second}: {one['word']}, {ratio}"
    return f"{first} {one['word']} than {second}, {ratio}"


def _budgets(entry: dict[str, Any], found: dict[str, Any]) -> Iterator[list[Any]]:
    for name, kinds in _components(entry).items():
        full, recorded = _full(name, entry, found)
        if "budget" in kinds and full:
            soon, best = _best(kinds["budget"]), _best(full)
            measured = sum(row["median_ms"] is not None for row in kinds["budget"]["rows"].values())
            same = "yes" if soon[:1] == best[:1] else "no"
            took = minutes(kinds["budget"]["seconds"])
            yield [name, took, measured, " ".join(soon), " ".join(best) + recorded, same]


def _full(name: str, entry: dict[str, Any], found: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The component's cold sweep of the entry, or else the newest one on a CPU of that name and when it was recorded;
    nothing where there is none."""
    if "cold" in entry.get(name, {}):
        return entry[name]["cold"], ""
    others = [one for one in found.values() if one["host"] == entry["host"] and "cold" in one.get(name, {})]
    newest = max(others, key=lambda one: str(one["recorded"]), default=None)
    return (newest[name]["cold"], f" (recorded {newest['recorded']})") if newest is not None else ({}, "")


def _best(made: dict[str, Any]) -> tuple[str, str]:
    """Name and time of the fastest row that is ok, or only unstable, which is said."""
    rows = {name: row for name, row in made["rows"].items() if row["status"] in ("ok", "unstable") and row["median_ms"]}
    best = min(rows, key=lambda name: float(rows[name]["median_ms"]), default="")
    if not best:
        return "none", ""
    return best, f"{rows[best]['median_ms']:.2f} ms{' (unstable)' * (rows[best]['status'] == 'unstable')}"
