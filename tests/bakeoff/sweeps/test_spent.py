"""Where a sweep's wall time goes: moments that several workers share are split, and all adds up."""

import pytest

from bakeoff.report import notes
from bakeoff.sweeps.spent import Span, TimeSpent, share_out


def test_a_moment_of_several_is_shared() -> None:
    spans = [Span("builds", 0, 4), Span("imports", 2, 4), Span("builds", 3, 4), Span("timing of the final", 10, 12)]
    assert share_out(spans) == pytest.approx(
        {"builds": 2 + 0.5 + 2 / 3, "imports": 0.5 + 1 / 3, "timing of the final": 2}
    )


def test_nothing_is_shared_out_of_nothing() -> None:
    assert share_out([]) == {}


def test_a_worker_that_waits_for_its_turn_takes_no_time() -> None:
    spent = TimeSpent(began=100.0)
    spent.worker(
        [("start", 100.0), ("import", 101.0), ("build", 103.0), ("turn", 110.0), ("latency", 150.0), ("", 157.0)]
    )
    assert share_out(spent.spans) == {"imports": 3.0, "builds": 7.0, "sampling": 7.0}
    assert spent.since_began((103.0, 110.5)) == (3.0, 10.5)


def test_all_of_a_second_worker_counts_for_one_part() -> None:
    spent = TimeSpent(began=0.0)
    spent.worker([("start", 1.0), ("build", 2.0), ("turn", 3.0), ("trace", 9.0), ("", 10.0)], "warm and traced builds")
    assert share_out(spent.spans) == {"warm and traced builds": 3.0}


def test_a_worker_that_was_stopped_built_for_nothing_until_its_turn() -> None:
    spent = TimeSpent(began=0.0)
    spent.stopped([("start", 0.0), ("build", 1.0), ("", 9.0)])
    assert share_out(spent.spans) == {"stopped builds": 9.0}
    spent.stopped([("start", 10.0), ("build", 11.0), ("turn", 14.0), ("warm-up", 16.0), ("", 21.0)])
    assert share_out(spent.spans) == {"stopped builds": 9.0 + 4.0, "sampling": 5.0}


def test_parts_add_up_to_the_whole_time() -> None:
    spent = TimeSpent()
    with spent.on("references"):
        pass
    seconds = spent.seconds()
    assert set(seconds) == {"references", "other"}
    assert min(seconds.values()) >= 0


def test_the_line_names_the_parts_that_took_time() -> None:
    assert notes.spent({"builds": 300.0, "sampling": 150.0, "other": 0.2}) == "7 min 30 s: builds 67%, sampling 33%"
    assert notes.spent({"other": 0.2}) == "200.00 ms"
