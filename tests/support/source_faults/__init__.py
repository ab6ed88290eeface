"""Deliberate faults in the product, such as a slip while refactoring could leave, with the tests of their subjects.

A file a subject. Whoever rewrites the code that a fault edits rewrites the edit in the same commit; its name stays.
"""

from source_faults import (
    bring,
    checks,
    clocks,
    export,
    pipeline,
    process,
    profile,
    record,
    report,
    session,
    sweep,
    worker,
)
from source_faults.fault import ROOT, Fault

FAULTS: tuple[Fault, ...] = (
    *worker.FAULTS,
    *checks.FAULTS,
    *clocks.FAULTS,
    *record.FAULTS,
    *sweep.FAULTS,
    *process.FAULTS,
    *pipeline.FAULTS,
    *profile.FAULTS,
    *session.FAULTS,
    *report.FAULTS,
    *export.FAULTS,
    *bring.FAULTS,
)

__all__ = ["FAULTS", "ROOT", "Fault"]
