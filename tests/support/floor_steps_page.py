"""docs/trials/floor-steps.md from tests/trials/floor_steps.json."""

from pathlib import Path
from typing import Any

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
RECORD, PAGE = ROOT / "tests" / "trials" / "floor_steps.json", ROOT / "docs" / "trials" / "floor-steps.md"
_WHAT = {
    "huge pages": "Memory in pages of 2 MiB (glibc's tunable `glibc.malloc.hugetlb=1`), against pages of 4 KiB. "
    "Kept: workers set it, unless you do.",
    "one quantisation": "`int8-static` quantises a value before it is copied, not each copy; the results are the same "
    "to the bit. Dropped: the code of the step, and its option `copies`, are not in this version.",
    "static int8": "Static int8 against bf16. Kept as a variant of the full suite and a class of its own: its errors "
    "are larger, and without real weights no sweep recommends it.",
    "explicit attention": "Products and a softmax, which inductor fuses, in place of torch's flash attention. Dropped: "
    "an option of the full suite, `attention[kind=math]`, not the default.",
}


def page(found: dict[str, list[dict[str, Any]]]) -> str:
    """The page of a record."""
    sections = [
        "# Steps towards the floor\n\n"
        "Written by `tests/trials/floor_steps.py` from what it recorded in tests/trials/floor_steps.json; do not edit. "
        "Each line is a comparison as `bakeoff compare` makes it: pairs of fresh processes, blocks of calls in random "
        "order. A ratio above 1 says how many times as fast the row is with the step; in brackets is its interval. "
        "A step that is not faster is dropped."
    ]
    for name, rows in found.items():
        headers = ["row", "with", "without", "ratio", "pairs", "verdict", "recorded"]
        table = tabulate([_row(row) for row in rows], headers=headers, tablefmt="github")
        hosts = {f"{row['cpu']}, {row['cores']} cores, torch {row['torch']}" for row in rows}
        where = f"Recorded on {' and on '.join(sorted(hosts))}."
        sections.append(f"## {name.capitalize()}\n\n{_WHAT[name]} {where}\n\n{table}")
    return "\n\n".join(sections) + "\n"


def _row(row: dict[str, Any]) -> list[str]:
    name = f"`{row['variant']}`" + (f" against `{row['against']}`" if row["against"] else "")
    if "failed" in row:
        return [name, "", "", "", "", row["failed"].replace("|", "\\|"), row["recorded"]]
    ratio = f"{row['ratio']:.3f}x [{row['low']:.3f}, {row['high']:.3f}]"
    times = [f"{row[side]:.2f} ms" for side in ("a_ms", "b_ms")]
    return [name, *times, ratio, str(row["pairs"]), row["word"], row["recorded"]]
