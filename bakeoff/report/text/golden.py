"""Golden files replayed through their components: the error of every output."""

from pathlib import Path

from tabulate import tabulate

from bakeoff.models.words import counted
from bakeoff.process.jobs import GoldenFile, GoldenResult


def render(result: GoldenResult) -> str:
    """A table of all outputs, then a sentence about each file that could be replayed."""
    rows = [
        [
            Path(file.file).name,
            file.component,
            output.name,
            f"{output.max_abs:.2e}",
            f"{output.max_relative:.2e}",
            f"{output.atol:g} + {output.rtol:g}|b|",
            "pass" if output.passed else "FAIL",
        ]
        for file in result.files
        for output in file.outputs
    ]
    headers = ("file", "component", "output", "max abs", "relative", "tolerance", "")
    lines = [tabulate(rows, headers=headers, disable_numparse=True), ""] if rows else []
    for file in result.files:
        if file.problem:
            continue  # the command's error says it
        hidden = f"; not shown by the module: {', '.join(file.not_shown)}" if file.not_shown else ""
        lines.append(verdict(file) + hidden)
    return "\n".join(lines)


def verdict(file: GoldenFile) -> str:
    """The result of one file: its problem, or how many of its outputs pass."""
    name = Path(file.file).name
    if file.problem:
        return file.problem if file.problem.startswith(name) else f"{name}: {file.problem}"
    failed = sum(not output.passed for output in file.outputs)
    if failed:
        return f"{name}: {failed} of {counted(len(file.outputs), 'output FAILS', 'outputs FAIL')}"
    return f"{name}: {counted(len(file.outputs), 'output passes', 'outputs pass')}"
