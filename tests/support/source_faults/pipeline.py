"""Faults of pipelines and mixes."""

from source_faults.fault import Fault

FAULTS = (
    Fault(
        "pipeline",
        "units that deliver no frame are left out of the frame rate",
        "bakeoff/record/frames.py",
        "wall_s = sum(units.wall_ns[place] for place in chosen) / 1e9",
        "wall_s = sum(units.wall_ns[place] for place in chosen if units.frames[place]) / 1e9",
        ("tests/bakeoff/record/test_frames.py",),
    ),
    Fault(
        "pipeline",
        "the state that quantised slots had a part in is allowed the error of one of them only",
        "bakeoff/worker/pipeline/parity.py",
        "(10 ** (-LEAST_SQNR_DB[self._quantised[slot]] / 20) for slot in slots if slot in self._quantised)\n",
        "([10 ** (-LEAST_SQNR_DB[self._quantised[slot]] / 20) for slot in slots if slot in self._quantised][:1])\n",
        (
            "tests/bakeoff/worker/pipeline/test_serve.py"
            "::test_a_quantised_slot_widens_the_limits_of_what_it_has_a_part_in",
        ),
    ),
    Fault(
        "pipeline",
        "units that take more than the time that the parent saw pass are accepted",
        "bakeoff/pipeline/status.py",
        "elif sum(units.wall_ns) / 1e9 > span_s:",
        "elif sum(units.wall_ns) / 1e9 > 2 * span_s:",
        ("tests/bakeoff/pipeline/test_status.py",),
    ),
    Fault(
        "pipeline",
        "mixes always run in the same order within a round",
        "bakeoff/pipeline/rounds.py",
        "for worker in order.sample(racing, len(racing)):",
        "for worker in racing:",
        ("tests/bakeoff/pipeline/test_rounds.py",),
    ),
)
