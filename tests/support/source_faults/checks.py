"""Faults of the checks of outputs and of their references."""

from source_faults.fault import Fault

FAULTS = (
    Fault(
        "checks",
        "the limit is ten times eager's own error instead of twice",
        "bakeoff/worker/reference/error.py",
        "max(2 * noise[spec.name], least)",
        "max(10 * noise[spec.name], least)",
        ("tests/bakeoff/worker/test_reference_error.py",),
    ),
    Fault(
        "checks",
        "only infinite values of an output are counted, and not NaN",
        "bakeoff/worker/reference/error.py",
        "(~torch.isfinite(found)).sum()",
        "torch.isinf(found).sum()",
        ("tests/bakeoff/worker/test_reference_error.py",),
    ),
    Fault(
        "checks",
        "between timed calls only the first output is compared with its reference",
        "bakeoff/worker/checks/outputs.py",
        "            if spec.floating and tensor.is_floating_point()\n        ]\n",
        "            if spec.floating and tensor.is_floating_point()\n        ][:1]\n",
        ("tests/bakeoff/worker/test_outputs.py",),
    ),
)
