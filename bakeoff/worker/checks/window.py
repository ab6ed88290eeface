"""Checks within the timed windows: full comparisons at random moments, on known and on changed inputs, without a pause.

An engine that computes only when it expects to be checked (after an idle gap, in the first calls of a binding, when the
version of an input has changed) cannot foresee these moments, because the calls before them are timed calls.
"""

import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import inf
from statistics import mean, median

from bakeoff.backends.backend import Call, Outputs
from bakeoff.record.policy import Policy
from bakeoff.record.schema import WindowChecks
from bakeoff.record.short_calls import APART_NS, CLOCKS_APART
from bakeoff.worker.checks.fresh_inputs import ChangeableInputs, repeats_are_faster
from bakeoff.worker.checks.outputs import copied, overwrite, same
from bakeoff.worker.clocks.clock import LONGEST_BLOCK_S, TimingConfig, time_call, time_often
from bakeoff.worker.reference.error import Difference
from bakeoff.worker.reference.parity import Reference
from bakeoff.worker.subject import altered

_WANTED_CALLS, _WANTED_BLOCKS = 16, 4
"""Intended numbers of checks between latency samples and between throughput blocks."""
_MOST_OFTEN = 0.2
"""Highest share of latency calls that are checks."""
_LEAST_CHANGED, _MOST_LEAST_CHANGED = 2, 8
_LEAST_CHANGED_S = 0.25
"""Time that the calls of the required checks with changed inputs take in all; it determines their number, 2 to 8."""
_LEAST_COMPARED = 3
_CHANGED_SHARE = 2 / 3
_NEW_SHARE = 1 / 2
"""Share of the checks on changed inputs, after the required ones, whose values are new and have no reference."""
_LEAST_NEW_STEP, _MOST_NEW_STEP = 3 / 128, 33 / 128
"""Changes of new values: enough to show in bf16, and little."""
_CONFIRMED = 8
"""Calls on new values that confirm that results are stored."""
_RACE_SHARE, _RACE_CALLS = 0.05, 6
"""Share of a race's calls that checks take, and the calls of a check with those on other sets around it."""
_BUDGET_SHARE, _BUDGET_S = 0.1, 0.5
"""Time that randomly drawn checks may take: this share of the window, or these seconds if that is longer."""
_SLOW_NS = 50_000_000
"""Calls slower than this are checked without calls on other sets before them: writing inputs is short beside them."""
_SLOW_BLOCK_NS = 250_000_000
_WHEN = "in the timed window"


class WindowChecker:
    """Compares and overwrites outputs, and changes inputs, at moments drawn from a seed. Its calls are in no sample.

    Values of the inputs named in `held` are never changed.
    """

    def __init__(
        self, reference: Reference, inputs: Sequence[ChangeableInputs], seed: int, held: Collection[str] = ()
    ) -> None:
        self._reference = reference
        self._inputs = inputs
        self._held = held
        self._seed = seed
        self._random = random.Random(seed)
        self._call_share = self._block_share = self._budget_s = 0.0
        self._fast = False
        self._least_changed = _LEAST_CHANGED
        self._compared = self._changed = 0
        self._new_ns: list[int] = []
        """Times of calls on values that the engine has never seen."""
        self._beside_ns: list[int] = []
        """Times of calls on known values right before those."""
        self._seconds = 0.0
        self.differences: list[list[Difference]] = []
        """One list for each comparison, with the difference of each output from its reference."""
        self.problem: str | None = None
        """Evidence, apart from comparisons, that outputs for changed inputs are stored results; None without any."""

    @property
    def record(self) -> WindowChecks:
        return WindowChecks(self._compared, self._changed, self._seed, round(self._seconds, 6))

    def begin(self, policy: Policy, call_ns: float, block_calls: int) -> None:
        """Choose how often to check in a window of the policy's length, for calls of about `call_ns`.

        `block_calls` is the number of calls in a throughput block.
        """
        self._fast = call_ns < _SLOW_NS
        wanted = int(_LEAST_CHANGED_S * 1e9 / (4 * call_ns))
        self._least_changed = min(max(wanted, _LEAST_CHANGED), _MOST_LEAST_CHANGED)
        self._call_share = min(_MOST_OFTEN, _WANTED_CALLS * call_ns / 1e9 / policy.min_s) if policy.min_s else 0.0
        block_ns = block_calls * call_ns
        share = _WANTED_BLOCKS * block_ns / 1e9 / policy.throughput_s if policy.throughput_s else 0.0
        self._block_share = min(_MOST_OFTEN, share) if block_ns < _SLOW_BLOCK_NS else 0.0
        self._budget_s = max(_BUDGET_S, _BUDGET_SHARE * (policy.min_s + policy.throughput_s))

    def begin_blocks(self, call_ns: float) -> None:
        """Choose how often to check in the blocks of a race, for calls of about `call_ns`: on changed values once at
        least and, where calls are not slow, on new ones too."""
        self._fast = call_ns < _SLOW_NS
        self._least_changed, self._budget_s = 1, inf
        self._call_share = _RACE_SHARE / _RACE_CALLS

    def affords(self, seconds: float) -> bool:
        """Return whether a race that has taken this long has time for another full comparison of a timed call."""
        return self._seconds < max(_BUDGET_S, _RACE_SHARE * seconds)

    def draw(self, count: int) -> int:
        """Return which of the next `count` calls to compare in full."""
        return self._random.randrange(count)

    def due(self, calls: int = 1) -> bool:
        """Return whether to check before the next latency call, or before a queue of so many calls."""
        return self._random.random() < calls * self._call_share and self._seconds < self._budget_s

    def block_due(self) -> bool:
        """Return whether to check before the next throughput block."""
        return self._random.random() < self._block_share and self._seconds < self._budget_s

    def release(self) -> None:
        """Drop the inputs and their changed values after the window has ended."""
        self._inputs = ()

    @property
    def lacking(self) -> bool:
        """Whether fewer than the required number of checks were made."""
        return self._changed < self._least_changed if self._inputs else self._compared < _LEAST_COMPARED

    def check(self, calls: Sequence[Call], number: int, config: TimingConfig) -> int:
        """Check the set whose turn it is in call `number`, or a set with changed inputs; return how many calls it took.

        A few calls on other sets precede each checked call, so that no engine sees the writing of inputs as an idle
        gap.
        """
        changes = bool(self._inputs) and self._random.random() < _CHANGED_SHARE
        new = changes and not self.lacking and self._random.random() < _NEW_SHARE
        return self._check_among(calls, number % len(calls), changes, new, config)

    def _check_among(self, calls: Sequence[Call], index: int, changes: bool, new: bool, config: TimingConfig) -> int:
        others = self._random.randint(1, len(calls) - 1) if self._fast and len(calls) > 1 else 0

        def call_others(index: int) -> int:
            for other in _turns(len(calls), index, others):
                elapsed_ns, outputs = time_call(calls[other], config)
                config.check_outputs(other, outputs)
                if new:
                    self._beside_ns.append(elapsed_ns)
            return others

        return self._check(calls, index, changes, new, call_others, config)

    def complete(self, calls: Sequence[Call], timed_ns: Sequence[int], config: TimingConfig) -> None:
        """Make the checks that are lacking, and set `problem` if calls on new values, or on one set again and again,
        take far longer than `timed_ns`, the times of calls in turn.

        Other processes delay calls, for seconds too, so more of them confirm it, and they must take longer than calls
        in turn at the same moments. Slow calls are not made again for this.
        """
        while self.lacking:
            self.check(calls, 0, config)
        if not self._fast or self.problem is not None:
            return
        typical = median(timed_ns)
        if self._inputs and self._inputs[0].rebind is None:  # the first call of a new binding may take longer
            found = ""
            while not self._new_ns or ((found := self._stored(typical)) and len(self._new_ns) < _CONFIRMED):
                self._check_among(calls, 0, True, True, config)
            self.problem = found or None
        if self.problem is None and mean(timed_ns) > CLOCKS_APART * typical + APART_NS:
            again, in_turn = list[int](), list[int]()
            for _ in range(_CONFIRMED // 2):
                again += time_often(calls[:1], config, 3, 3, 0.0)[1:]
                in_turn += time_often(calls, config, len(calls), len(calls), 0.0)
            if repeats_are_faster(again, max(typical, median(in_turn))):
                self.problem = "most calls in turn take no time, and calls on one input set do: one computes for others"

    def _stored(self, typical_ns: float) -> str:
        beside = sorted(self._beside_ns)[len(self._beside_ns) // 4] if self._beside_ns else 0
        return repeats_are_faster(self._new_ns, max(typical_ns, beside))

    def check_block(self, calls: Sequence[Call], count: int, config: TimingConfig) -> int:
        """Make `count` calls in a row and check the outputs of the last one; return how many calls were made.

        Like a timed block, it ends early if calls have become slow.
        """
        index = self._random.randrange(len(calls))
        changes = bool(self._inputs) and self._random.random() < _CHANGED_SHARE
        return self._check(calls, index, changes, False, lambda own: _call_others(calls, own, count - 1), config)

    def _check(
        self,
        calls: Sequence[Call],
        index: int,
        changes: bool,
        new: bool,
        call_others: Callable[[int], int],
        config: TimingConfig,
    ) -> int:
        """Check a call on set `index` or, if `changes`, on changed inputs of a random set; return how many were made.

        `call_others` makes the calls on other sets that come first. On changed inputs, a call that reads them is
        compared, the former values are written back, and the next call on the same set is compared too. `new` values
        have no reference: only the time and that outputs are others tell.
        """
        started = time.monotonic()
        if changes:
            entry = self._random.choice(self._inputs)
            if new:
                scale = 1 + self._random.choice((-1, 1)) * self._random.uniform(_LEAST_NEW_STEP, _MOST_NEW_STEP)
                entry = replace(entry, changed=altered(entry.tensors, scale, self._held))
            with entry.changed_values() as call:
                made = call_others(entry.index)
                elapsed_ns, changed = time_call(call, config)
                kept = copied(changed)
                if new:
                    self._new_ns.append(elapsed_ns)
                else:
                    self._compare_changed(entry, changed, config)
                del changed
            made += call_others(entry.index) + 2
            outputs = time_call(entry.call, config)[1]
            if self.problem is None and same(kept, outputs):
                which = f"inputs {entry.index} and slightly changed ones"
                self.problem = f"{which} gave identical outputs {_WHEN}: results are stored"
            self._compare(entry.index, outputs, config)
        else:
            made = call_others(index) + 1
            self._compare(index, time_call(calls[index], config)[1], config)
        self._seconds += time.monotonic() - started
        return made

    def compare_kept(self, index: int, outputs: Outputs) -> None:
        """Compare a copy of the outputs of a timed call in full, outside of what is timed."""
        started = time.monotonic()
        self.differences.append(self._reference.differences(index, outputs, _WHEN))
        self._compared += 1
        self._seconds += time.monotonic() - started

    def _compare(self, index: int, outputs: Outputs, config: TimingConfig) -> None:
        self.differences.append(self._reference.differences(index, outputs, _WHEN))
        self._compared += 1
        overwrite(outputs, config.inputs)

    def _compare_changed(self, entry: ChangeableInputs, outputs: Outputs, config: TimingConfig) -> None:
        self.differences.append(self._reference.changed_differences(entry.index, outputs, _WHEN))
        self._changed += 1
        overwrite(outputs, (*config.inputs, *entry.tensors.values()))


def _turns(sets: int, index: int, count: int) -> list[int]:
    """Return `count` indices of sets in turn, up to the one before `index`; skip `index` if there are other sets."""
    others = [(index + step) % sets for step in range(1, sets)] or [index]
    return [others[step % len(others)] for step in range(-count, 0)]


def _call_others(calls: Sequence[Call], index: int, count: int) -> int:
    """Make `count` calls on other sets in turn, fewer if they take longer than a block may; return their number."""
    end = time.monotonic() + LONGEST_BLOCK_S
    for made, other in enumerate(_turns(len(calls), index, count), 1):
        calls[other]()
        if time.monotonic() > end:
            return made
    return count
