"""`bakeoff selftest` and `bakeoff ceilings`."""

from collections.abc import Sequence

from tabulate import tabulate

from bakeoff.machine.floors import Ceiling
from bakeoff.models.words import counted
from bakeoff.report.format import MIB
from bakeoff.selftest.run import Check, Selftest


def render(found: Selftest) -> str:
    """Every check with the expected and the found status, and the verdict as the last line."""
    rows = [
        [check.name, check.expected, check.found, _word(check), (check.not_run or check.detail)[:90]]
        for check in found.checks
    ]
    failed = sum(not check.passed for check in found.checks)
    which = "quick selftest" if found.stamp.quick else "selftest"
    run = sum(not check.not_run for check in found.checks)
    verdict = f"all {counted(run, 'check')} passed"
    if failed:
        verdict = f"{failed} of {counted(len(found.checks), 'check')} FAILED"
    if run < len(found.checks):
        verdict += f", {len(found.checks) - run} NOT RUN because this machine lacks what they need,"
    lines = [tabulate(rows, headers=("check", "expected", "found", "", "why"), disable_numparse=True), ""]
    lines += [found.noisy] if found.noisy else []
    return "\n".join([*lines, f"{which} of code {found.stamp.code}: {verdict} in {found.seconds:.0f} s"])


def _word(check: Check) -> str:
    if not check.passed:
        return "FAIL"
    return "not run" if check.not_run else "pass"


def render_ceilings(ceilings: Sequence[Ceiling]) -> str:
    """Best and median rates; a median far below the best means that the host was busy."""
    rows = [
        [
            entry.kind,
            entry.dtype,
            f"{entry.size / MIB:g} MiB" if entry.kind in ("copy", "read") else f"{entry.size / 1e9:.2f} GFLOP",
            f"{entry.best / 1e9:.1f} {'GB/s' if entry.kind in ('copy', 'read') else 'GFLOP/s'}",
            f"{entry.median / entry.best:.0%}",
        ]
        for entry in ceilings
    ]
    headers = ("what", "dtype", "size", "best", "median of best")
    return tabulate(rows, headers=headers, disable_numparse=True, colalign=("left", "left", "right", "right", "right"))
