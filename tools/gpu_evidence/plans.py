"""Makes the plan of every step of a JSON list on stdin, without a GPU, and prints its rows; exits 1 where one fails.

A plan finds components, presets, workloads, backends and options that do not exist. It is made for the CPU, which every
host has; then each backend is asked what it says of the same options on CUDA.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.backends.backend import Backend, DefaultOptions
from bakeoff.cli.progress import TerminalProgress
from bakeoff.models.errors import BakeoffError
from bakeoff.models.options import options_of
from bakeoff.pipeline.plan import make_pipeline_plan
from bakeoff.pipeline.request import PipelineRequest
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.record.policy import Policy
from bakeoff.variant import use_of
from gpu_evidence.steps import Step

SHORT = Policy(
    warmup_s=0.1,
    warmup_cap_s=1.0,
    min_samples=5,
    min_s=0.2,
    full_s=0.2,
    cap_s=1.0,
    throughput_s=0.2,
    trace=False,
    startup_deadline_s=180.0,
    build_deadline_s=180.0,
    large_build_deadline_s=180.0,
    phase_deadline_s=30.0,
)
"""For a smoke test: its times mean nothing. The deadlines are estimates of a first import from a cold disk, and of the
first start of TensorRT's builder."""


def as_typed(backend: Backend, default: DefaultOptions) -> str:
    use = use_of(backend, default.options)
    text = str(use) if use.options else f"{use.name}[]"
    return f"{text}+{default.then}" if default.then else text


def every_backend(device: str) -> tuple[str, ...]:
    """All usual option sets of all backends for `device` in bf16, as typed; quantisers take the smallest layer too."""
    found = []
    for backend in (each for each in map(resolve_backend, backend_names()) if "bf16" in each.dtypes):
        fitting = [default for default in backend.defaults if device in default.devices]
        for default in [default for default in fitting if default.suite != "full"] or fitting[:1]:
            options = default.options
            if any(entry.name == "least" for entry in fields(options)):
                options = replace(options, least=0)
            found.append(as_typed(backend, replace(default, options=options)))
    return tuple(dict.fromkeys(found))


def request_of(step: Step, device: str, backends_of: str) -> Request:
    """What a step asks of the lab on `device`; backends of a smoke test are those of `backends_of`."""
    smoke = step.kind == "smoke"
    return Request(
        step.component,
        presets=(step.preset,),
        workloads=(step.workload,),
        backends=every_backend(backends_of) if smoke else step.backends,
        dtypes=step.dtypes,
        device=device,
        policy=SHORT if smoke else Policy(),
        final_s=0.0,
        ceilings=not smoke,
    )


def problems(plan: Plan, step: Step, device: str) -> Iterator[str]:
    """What is wrong with a plan on `device`, beside libraries and memory that this host lacks."""
    if len(plan.rows) < len(step.backends) * len(step.dtypes):
        yield "two of its rows are the same"
    for row in plan.rows:
        for used in row.steps:
            backend = resolve_backend(used.backend)
            reason = backend.unsupported(options_of(backend, dict(used.options)), device, row.variant.dtype)
            if reason is not None:
                yield f"{row.variant}: {reason}"
    if step.kind == "export" and resolve_backend(plan.rows[0].steps[-1].backend).artifact is None:
        yield f"{step.backends[0]} has no artifact format"


def pipeline_rows(step: Step) -> Iterator[str]:
    """The mixes of a pipeline's step, as planned. Raises BakeoffError for a name that does not exist."""
    request = PipelineRequest(step.component, preset=step.preset, mixes=step.backends, device="cpu")
    with TemporaryDirectory() as runs, TerminalProgress() as progress:
        plan = make_pipeline_plan(request, Path(runs), progress)
    yield from (str(mix.mix) for mix in plan.mixes)


def main() -> int:
    device, failed = sys.argv[1], False
    for definition in json.load(sys.stdin):
        step = msgspec.convert(definition, Step)
        rows: list[str] = []
        try:
            if step.kind == "pipeline":
                rows, wrong = list(pipeline_rows(step)), []
            else:
                plan = make_plan(request_of(step, "cpu", device))
                rows, wrong = [str(row.variant) for row in plan.rows], list(problems(plan, step, device))
        except BakeoffError as error:
            wrong = [str(error)]
        failed |= bool(wrong)
        print(f"{step.name:33}{'WRONG' if wrong else 'ok':6}{len(rows)} rows", flush=True)
        for row in rows:
            print(f"    {row.removesuffix('cpu')}{device}")
        for text in wrong:
            print(f"    WRONG: {text}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
