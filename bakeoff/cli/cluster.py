"""Sweeps on several GPUs of this host, or on the nodes of a cluster: orders for them, and the tables of what they
measured."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.cli.common import error_line, fail, print_json, say, warn
from bakeoff.cli.ended import exit_code, print_done, resume_command, summary
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from bakeoff.cli.options import SweepOptions
    from bakeoff.cluster.reports import Assignment
    from bakeoff.plan.request import Request
    from bakeoff.sweeps.progress import Progress
    from bakeoff.sweeps.resume import SweepState
    from bakeoff.sweeps.run import SweepResult


def sweep_on_ray(requests: "Sequence[Request]", options: "SweepOptions") -> tuple[dict[str, object], int]:
    """Sweep components on a cluster's nodes and print their tables; return each one's JSON output, and the exit
    code."""
    from bakeoff.cluster.driver import carry_out, connected, default_device, places

    with connected() as ray:
        device = requests[0].device or default_device(ray)
        requests = [replace(request, device=device) for request in requests]
        ended = _carry_out(requests, options, places(ray, device), partial(carry_out, ray))
    return _told(*ended, options)


def sweep_on_devices(requests: "Sequence[Request]", options: "SweepOptions") -> tuple[dict[str, object], int]:
    """Sweep components on GPUs of this host, as `sweep_on_ray` does on nodes."""
    from bakeoff.cluster.devices import carry_out, parse_devices

    devices = parse_devices(options.gpus)
    ended = _carry_out(requests, options, [device.name for device in devices], partial(carry_out, devices))
    return _told(*ended, options)


def _carry_out(
    requests: "Sequence[Request]",
    options: "SweepOptions",
    places: Sequence[str],
    carry_out: "Callable[[Sequence[Assignment], Path, Progress], None]",
) -> "tuple[list[tuple[SweepState, Assignment]], KeyboardInterrupt | BakeoffError | None]":
    """Make the orders, and have them carried out at these places; return them, and what ended that before the end."""
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.cluster.spread import carry_out_spread
    from bakeoff.machine import paths

    runs = paths.ensure_writable(options.folder, "records")
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    orders = _begun(requests, options, runs, cache)
    asked = [assignment for _, assignment in orders]
    try:
        with TerminalProgress() as progress:
            if options.spread:
                carry_out_spread(asked, places, runs, lambda some: carry_out(some, runs, progress))
            else:
                carry_out(asked, runs, progress)
    except (KeyboardInterrupt, BakeoffError) as error:
        return orders, error
    return orders, None


def _told(
    orders: "Sequence[tuple[SweepState, Assignment]]",
    ended: KeyboardInterrupt | BakeoffError | None,
    options: "SweepOptions",
) -> tuple[dict[str, object], int]:
    """Print the tables of each component; return each one's JSON output, and the exit code."""
    from bakeoff.machine import paths
    from bakeoff.sweeps.resume import write_state

    told, codes = dict[str, object](), [0]
    for state, assignment in orders:
        done = _done(assignment, options.folder)
        told[assignment.order.request.component] = summary(done)
        codes.append(_print(assignment, done, options, ended is not None))
        if assignment.done is not None and not done.interrupted and done.out_of_time is None:
            write_state(paths.cache_folder(), replace(state, finished=True))
    if isinstance(ended, BakeoffError):
        raise ended
    if ended is not None:
        if options.as_json:
            print_json(told)
        left = [assignment.order.request.component for _, assignment in orders if assignment.done is None]
        fail(f"interrupted; not run to the end: {', '.join(left)}; the same command with --resume goes on", 130)
    return told, max(codes)


def _begun(
    requests: "Sequence[Request]", options: "SweepOptions", runs: Path, cache: Path
) -> "list[tuple[SweepState, Assignment]]":
    """Return the orders to carry out, each after its state.

    With `--resume`, an order includes what was measured before, and its Assignment is pinned to the node that measured.
    Raises BakeoffError if, with `--resume`, all are finished or none was begun.
    """
    from bakeoff.cluster.order import Order, files_of, own_code, with_known
    from bakeoff.cluster.reports import Assignment
    from bakeoff.machine.files import digest
    from bakeoff.record.store import load_all
    from bakeoff.sweeps.resume import begin, find_newest, find_unfinished

    held, expected, orders, sizes = load_all(runs), own_code(), [], tuple(options.sizes or ())
    warn(held.problems)
    for request in requests:
        files = files_of(request.component)
        key = digest([request, sizes, files, expected])
        orders.append((key, Order(request, "", 0, expected, sizes, options.note, files)))
    newest = {key: find_newest(key, runs, cache) if options.resume else None for key, _ in orders}
    if options.resume and all(state is None or state.finished for state in newest.values()):
        find_unfinished(*next((key, order.request.component) for key, order in orders), runs, cache)
    begun = []
    for key, order in orders:
        state = newest[key] or begin(key, order.request.component, runs, cache)
        if state.finished:
            say(f"{order.request.component} is finished: sweep {state.sweep}")
            continue
        rows = [entry.record for entry in held.current if entry.record.sweep == state.sweep]
        order = with_known(replace(order, sweep=state.sweep, order_seed=state.order_seed), held)
        begun.append((state, Assignment(order, pinned=rows[0].node if rows else "")))
    return begun


def _done(assignment: "Assignment", runs: Path) -> "SweepResult":
    """Return the result of a sweep by the records that the driver has, of each row the newest."""
    from bakeoff.record.store import load_all
    from bakeoff.sweeps.resume import key_of
    from bakeoff.sweeps.run import SweepResult

    held, order = load_all(runs), assignment.order
    newest = {key_of(entry.record): entry for entry in held.current if entry.record.sweep == order.sweep}
    ended = assignment.done or SweepResult(order.sweep, (), (), objective=order.request.objective)
    return replace(
        ended,
        stored=tuple(newest.values()),
        finals=tuple(entry for entry in held.comparisons if entry.record.sweep == order.sweep),
    )


def _print(assignment: "Assignment", done: "SweepResult", options: "SweepOptions", all_ended: bool) -> int:
    """Print the tables of one order and, if it is not done, why, unless `all_ended` for one reason; return the exit
    code."""
    from bakeoff.cli.pages import update_pages

    component = assignment.order.request.component
    if done.stored:
        if not options.as_json:
            print_done(done, max(assignment.rows, len(done.stored)), options.folder, resume_command(sys.argv[1:]))
        update_pages(options.folder)
    if assignment.done is None or done.interrupted:
        if not all_ended:
            where = f" on {assignment.node}" if assignment.node else ""
            why = assignment.problem or "the node's process was interrupted"
            say(error_line(f"{component}{where}: {why}; the same command with --resume goes on", assignment.code))
        return 2
    return exit_code(done, options.strict)
