"""Compiles what later builds need before any graph, by building a trivial module exactly as those are built."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import BuildContext
from bakeoff.backends.compilers import precompiled_headers
from bakeoff.backends.torch_internals import check_instruction_sets
from bakeoff.models.options import options_of
from bakeoff.process.jobs import BackendStep, HeadersJob, HeadersResult
from bakeoff.worker.reporter import Report
from bakeoff.worker.torch_flags import flags


class _Trivial(nn.Module):
    """One generated kernel, no library call."""

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (x.sin() + 1,)


def make_headers(job: HeadersJob, report: Report) -> HeadersResult:
    """Move what was compiled into the folder of the job; what it has already is replaced by the same.

    Each file comes to its place in one step, so a worker that is killed leaves no part of one there.
    """
    inputs = {"x": torch.zeros(64, 64)}
    report("headers", job.step.backend)
    libraries = check_instruction_sets()
    with flags("fp32", job.threads):
        _build(job.step, inputs, job.threads)
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    made = (*precompiled_headers(), *libraries)
    for file in made:
        _keep(file, folder)
    return HeadersResult(tuple(file.name for file in made))


def _build(step: BackendStep, inputs: Mapping[str, Tensor], threads: int) -> None:
    backend = resolve_backend(step.backend)
    assert backend.build is not None, "only a backend that builds has headers"
    folder = Path(step.backend.replace(":", "-"))
    for inner in (folder / "work", folder / "cache"):
        inner.mkdir(parents=True, exist_ok=True)
    context = BuildContext(
        variant=backend.name,
        device="cpu",
        dtype="fp32",
        threads=threads,
        work_dir=(folder / "work").absolute(),
        cache_dir=(folder / "cache").absolute(),
        draw=lambda _seed: inputs,
    )
    engine = backend.build(_Trivial(), inputs, options_of(backend, step.options), context)
    engine.bind(inputs)()
    engine.close()


def _keep(file: Path, folder: Path) -> None:
    part = folder / f".{os.getpid()}.{file.name}.part"
    shutil.copyfile(file, part)
    part.chmod(0o444)
    part.rename(folder / file.name)
