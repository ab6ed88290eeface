"""`bakeoff selftest` and `bakeoff ceilings`."""

from collections.abc import Sequence

from bakeoff.machine.floors import Ceiling
from bakeoff.models.words import counted
from bakeoff.report.document import Cell, Document, Heading, Text, blocks, table
from bakeoff.report.format import MIB
from bakeoff.selftest.run import Check, Selftest


def page(found: Selftest) -> Document:
    """The verdict, then every check with what was expected and what was found, those that failed first."""
    failed = sum(not check.passed for check in found.checks)
    run = sum(not check.not_run for check in found.checks)
    verdict = f"all {counted(run, 'check')} passed"
    if failed:
        verdict = f"{failed} of {counted(len(found.checks), 'check')} FAILED"
    if run < len(found.checks):
        verdict += f", {len(found.checks) - run} NOT RUN because this machine lacks what they need,"
    which = "quick selftest" if found.stamp.quick else "selftest"
    said = f"{which} of code {found.stamp.code}: {verdict} in {found.seconds:.0f} s"
    checks = table(
        ("check", "result", "found", Heading("expected", leaves=1), Heading("why", leaves=2)),
        [
            (
                check.name,
                _result(check),
                check.found if check.passed else f"{check.found} instead of {check.expected}",
                check.expected,
                check.not_run or check.detail,
            )
            for check in sorted(found.checks, key=lambda check: check.passed)
        ],
    )
    noisy = Text(found.noisy, tone="open") if found.noisy else None
    return Document("Selftest", blocks(Text(said, tone="bad" if failed else "good"), noisy, checks))


def _result(check: Check) -> Cell:
    if not check.passed:
        return Cell("FAIL", "FAIL", tone="bad")
    return Cell("not run", "not run", tone="open") if check.not_run else Cell("pass", "pass", tone="good")


def page_of_ceilings(ceilings: Sequence[Ceiling]) -> Document:
    """Best and median rates; a median far below the best means that the host was busy."""
    rows = []
    for entry in ceilings:
        moves = entry.kind in ("copy", "read")
        size = f"{entry.size / MIB:g} MiB" if moves else f"{entry.size / 1e9:.2f} GFLOP"
        best = f"{entry.best / 1e9:.1f} {'GB/s' if moves else 'GFLOP/s'}"
        rows.append((entry.kind, entry.dtype, size, best, f"{entry.median / entry.best:.0%}"))
    numbers = (Heading(name, numeric=True) for name in ("size", "best", "median of best"))
    return Document("Ceilings", blocks(table(("what", "dtype", *numbers), rows)))
