"""Bounds of what a compiler could gain, with times that can be computed by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest

from bakeoff.process.inspected import Inspection, Node
from bakeoff.report.pages.inspection import candidates, document, worth_sweeping
from bakeoff.report.render import terminal

MS = 1_000_000


def render(*page: Any, width: int | None = None) -> str:
    return terminal.render(document(*page), width)


def node(name: str, parent: int, own_ms: tuple[int, ...], calls: int = 1, **changes: object) -> Node:
    plain = Node(
        name=name,
        cls="Linear",
        parent=parent,
        calls=(calls,) * len(own_ms),
        own_ns=tuple(ms * MS for ms in own_ms),
        parameters=10,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def inspection(nodes: tuple[Node, ...], outside_ms: tuple[int, ...]) -> Inspection:
    outside = tuple(ms * MS for ms in outside_ms)
    passes = tuple(sum(one.own_ns[index] for one in nodes) + outside[index] for index in range(len(outside)))
    return Inspection(
        nodes=nodes,
        pass_ns=passes,
        outside_ns=outside,
        hooks_ns=(5,) * len(passes),
        whole_ns=tuple(ns + 5 for ns in passes),
        plain_ns=passes,
        warm_ns=passes,
        steady=True,
        clock="host",
        device="cpu",
        other_threads={},
    )


TWO = inspection(
    (
        node("unet", -1, (10, 10), calls=4),
        node("unet.down", 0, (50, 50), calls=4),
        node("vae.decode", -1, (20, 20)),
        node("unet.down", 2, (5, 5)),
    ),
    outside_ms=(15, 15),
)


def test_times_that_do_not_sum_to_the_pass_are_refused() -> None:
    with pytest.raises(ValueError, match="pass 2"):
        replace(TWO, outside_ns=(15 * MS, 15 * MS + 1))
    with pytest.raises(ValueError, match="pass 1"):
        replace(TWO, hooks_ns=(4, 5))


def test_inclusive_times_and_the_outside_sum_to_the_pass() -> None:
    top = [TWO.inclusive_ns(index) for index, one in enumerate(TWO.nodes) if one.parent < 0]
    assert [sum(ns) for ns in zip(*top, TWO.outside_ns, strict=True)] == list(TWO.pass_ns)


def test_a_module_that_takes_no_time_leaves_the_rest() -> None:
    unet, vae = candidates(TWO)
    assert (unet.name, unet.calls, unet.ns, unet.share) == ("unet", 4, (60 * MS, 60 * MS), 0.6)
    assert unet.speedup == pytest.approx(1 / (1 - 0.6))
    assert (vae.name, vae.share, vae.speedup) == ("vae.decode", 0.25, pytest.approx(1 / 0.75))
    assert worth_sweeping((unet, vae)) == ("unet", "vae.decode")


def test_a_pass_that_is_one_module_has_no_bound() -> None:
    (one,) = candidates(inspection((node("all", -1, (3, 3)),), (0, 0)))
    assert math.isinf(one.speedup)


def test_a_candidate_counts_where_it_is_called_from_others_too() -> None:
    nodes = (node("a", -1, (10,)), node("b", -1, (5,)), node("a", 1, (7,)))
    found = {one.name: one for one in candidates(inspection(nodes, (0,)))}
    assert found["a"].ns == (17 * MS,)
    assert found["b"].ns == (12 * MS,)


@pytest.mark.parametrize("depth", [0, 1, 9])
def test_the_page_fits_80_columns(depth: int) -> None:
    long = inspection(
        (
            node("pipeline.transformer_with_a_long_name", -1, (123_456, 99_999), calls=1000, parameters=10**10),
            node("pipeline.transformer_with_a_long_name.blocks.0.attention.projection", 0, (50_000, 90_000)),
            *TWO.nodes[2:3],
        ),
        outside_ms=(15_000, 80_000),
    )
    varying = replace(long, clock="synchronised", other_threads={"a": 3}, steady=False)
    found = candidates(varying)
    text = render("mine.py:pipe", varying, found, depth, width=80)
    table = [line for line in text.splitlines() if not line.startswith("bakeoff inspect")]
    assert max(len(line) for line in table) <= 80
    assert ("projection" in text) == (depth > 0)
    assert "outside modules" in text
    assert "called on other threads, which are not timed: a (3 calls)" in text
