"""Deliberate faults in the product, such as a slip while refactoring could leave, with the tests of their subjects."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Fault:
    """One change of one source file."""

    subject: str
    words: str
    """What the product does wrong with it."""
    file: str
    """Relative to the repository, as are the tests."""
    old: str
    """Text that the file holds exactly once."""
    new: str
    tests: tuple[str, ...]
    """Test files, or tests of a file that is slow, which a change of the source file calls for."""

    def changed(self, text: str) -> str:
        """The text of the file with the fault. Raises ValueError where the old text is not in it exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} holds {self.old!r} {text.count(self.old)} times; it must hold it once")
        return text.replace(self.old, self.new)


_SUPERVISOR = "tests/bakeoff/process/test_supervisor.py"
"""Takes minutes as a whole."""

FAULTS = (
    Fault(
        "worker",
        "seconds of a build include its pauses, which do not count as building",
        "bakeoff/worker/build.py",
        "_Spent(time.monotonic() - started - pauses.wall_s, ",
        "_Spent(time.monotonic() - started, ",
        ("tests/bakeoff/worker/test_build_cost.py",),
    ),
    Fault(
        "worker",
        "warm-up ends at the first samples that agree, though something was compiled just before",
        "bakeoff/worker/clocks/warm_up.py",
        "len(samples) - quiet_since >= enough:",
        "len(samples) >= enough:",
        ("tests/bakeoff/worker/test_timing.py",),
    ),
    Fault(
        "worker",
        "the check with fresh inputs writes values that the engine was called with before",
        "bakeoff/worker/checks/fresh_inputs.py",
        "altered(values, 1 - step, held), config, outputs)",
        "values, config, outputs)",
        ("tests/bakeoff/worker/test_fresh_inputs.py",),
    ),
    Fault(
        "parity",
        "the limit is ten times eager's own error instead of twice",
        "bakeoff/worker/reference/error.py",
        "max(2 * noise[spec.name], least)",
        "max(10 * noise[spec.name], least)",
        ("tests/bakeoff/worker/test_reference_error.py",),
    ),
    Fault(
        "parity",
        "only infinite values of an output are counted, and not NaN",
        "bakeoff/worker/reference/error.py",
        "(~torch.isfinite(found)).sum()",
        "torch.isinf(found).sum()",
        ("tests/bakeoff/worker/test_reference_error.py",),
    ),
    Fault(
        "parity",
        "between timed calls only the first output is compared with its reference",
        "bakeoff/worker/checks/outputs.py",
        "            if spec.floating and tensor.is_floating_point()\n        ]\n",
        "            if spec.floating and tensor.is_floating_point()\n        ][:1]\n",
        ("tests/bakeoff/worker/test_outputs.py",),
    ),
    Fault(
        "clocks",
        "the latency clock is read before the device has done its work",
        "bakeoff/worker/clocks/clock.py",
        "    outputs = call()\n    synchronise(config.device)\n    return now_ns() - started, outputs",
        "    outputs = call()\n    elapsed_ns = now_ns() - started\n    synchronise(config.device)\n"
        "    return elapsed_ns, outputs",
        ("tests/bakeoff/worker/test_timing.py",),
    ),
    Fault(
        "clocks",
        "the last call of each part of a throughput block is not counted",
        "bakeoff/worker/clocks/clock.py",
        "made += len(others) + 1",
        "made += len(others) or 1",
        ("tests/bakeoff/worker/test_timing.py",),
    ),
    Fault(
        "clocks",
        "the 99th percentile is the 95th",
        "bakeoff/record/statistics.py",
        "np.percentile(ordered, [90, 99])",
        "np.percentile(ordered, [90, 95])",
        ("tests/bakeoff/record/test_statistics.py",),
    ),
    Fault(
        "store",
        "a file is written in place instead of being renamed",
        "bakeoff/machine/files.py",
        '        os.replace(temporary, path)\n        temporary = ""\n',
        "        path.write_bytes(data)\n",
        ("tests/bakeoff/machine/test_files.py",),
    ),
    Fault(
        "store",
        "a record whose content does not have the hash in its name is read",
        "bakeoff/record/store.py",
        "if _hash(data) != _ending(path):",
        "if not _ending(path):",
        ("tests/bakeoff/record/test_store.py",),
    ),
    Fault(
        "store",
        "the pair of a round is lost when a comparison of schema 1 is read",
        "bakeoff/record/schema1.py",
        ', "pair": raw.get("pair", 0)}',
        ', "pair": 0}',
        ("tests/bakeoff/record/test_schema.py",),
    ),
    Fault(
        "store",
        "a run of a pipeline that was superseded stays in the tables",
        "bakeoff/record/store.py",
        "tuple(run for run in pipelines if run.id not in reasons)",
        "tuple(pipelines)",
        ("tests/bakeoff/record/test_store.py",),
    ),
    Fault(
        "guard",
        "what a worker left running is not killed when it ended by itself",
        "bakeoff/process/guard.py",
        "leftovers = kill_descendants() if finished else []",
        "leftovers = descendants(os.getpid()) if finished else []",
        (f"{_SUPERVISOR}::test_the_guard_kills_whoever_is_left",),
    ),
    Fault(
        "guard",
        "a deadline of all phases together is not enforced",
        "bakeoff/process/supervisor.py",
        "self._late = min(self._deadline, self._started + self._deadlines.total) <= time.monotonic()",
        "self._late = self._deadline <= time.monotonic()",
        (f"{_SUPERVISOR}::test_phases_that_are_short_each_end_at_the_total_deadline",),
    ),
    Fault(
        "guard",
        "a result is accepted by its last seal, though it was sealed before with other content",
        "bakeoff/process/supervisor.py",
        "if [hashlib.sha256(data).hexdigest()] != list(seals):",
        "if [hashlib.sha256(data).hexdigest()] != list(seals)[-1:]:",
        (f"{_SUPERVISOR}::test_only_a_result_that_was_sealed_once_counts",),
    ),
    Fault(
        "report",
        "speed-ups are inverted",
        "bakeoff/report/speedups.py",
        "theirs.median_ms / ours.median_ms",
        "ours.median_ms / theirs.median_ms",
        ("tests/bakeoff/report/test_standings.py",),
    ),
    Fault(
        "report",
        "an unstable row can be a finalist and be recommended",
        "bakeoff/record/finalists.py",
        'return record.status == "ok" and record.latency is not None',
        'return record.status in ("ok", "unstable") and record.latency is not None',
        ("tests/bakeoff/report/test_recommendation.py",),
    ),
    Fault(
        "report",
        "a stale row gets a ratio to the current baseline",
        "bakeoff/report/columns.py",
        "own = {} if stale is not None else bases",
        "own = bases",
        ("tests/bakeoff/report/test_comparable.py",),
    ),
    Fault(
        "report",
        "the interval beside a median is the range of all samples",
        "bakeoff/report/format.py",
        "(figures.median_ms, figures.low_ms, figures.high_ms)",
        "(figures.median_ms, figures.min_ms, figures.max_ms)",
        ("tests/bakeoff/report/test_pages.py::TestThreeRecords",),
    ),
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
    Fault(
        "plan",
        "two seeds of the inputs give one identity",
        "bakeoff/plan/rows.py",
        "[subject.batch, subject.weight_seed, subject.input_seed, subject.checkpoint_hash, subject.threads]",
        "[subject.batch, subject.weight_seed, subject.checkpoint_hash, subject.threads]",
        ("tests/bakeoff/plan/test_plan.py",),
    ),
    Fault(
        "plan",
        "the time of references is not taken from what is left of a budget",
        "bakeoff/plan/budget.py",
        "left_s -= seconds",
        "left_s -= time.seconds",
        ("tests/bakeoff/plan/test_priority.py",),
    ),
    Fault(
        "plan",
        "an option that is switched off is written as Python writes False",
        "bakeoff/variant.py",
        "{'false' if value is False else text}",
        "{text}",
        ("tests/bakeoff/test_variant.py",),
    ),
)
