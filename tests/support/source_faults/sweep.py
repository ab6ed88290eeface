"""Faults of plans, sweeps and budgets."""

from source_faults.fault import Fault

FAULTS = (
    Fault(
        "sweep",
        "two seeds of the inputs give one identity",
        "bakeoff/plan/rows.py",
        "[subject.batch, subject.weight_seed, subject.input_seed, subject.checkpoint_hash, subject.threads]",
        "[subject.batch, subject.weight_seed, subject.checkpoint_hash, subject.threads]",
        ("tests/bakeoff/plan/test_plan.py",),
    ),
    Fault(
        "sweep",
        "the time of references is not taken from what is left of a budget",
        "bakeoff/plan/budget.py",
        "left_s -= seconds",
        "left_s -= time.seconds",
        ("tests/bakeoff/plan/test_priority.py",),
    ),
    Fault(
        "sweep",
        "an option that is switched off is written as Python writes False",
        "bakeoff/variant.py",
        "{'false' if value is False else text}",
        "{text}",
        ("tests/bakeoff/test_variant.py",),
    ),
)
