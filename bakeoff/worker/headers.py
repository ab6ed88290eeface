"""Precompiles torch's C++ headers for later builds, by building a trivial module in the same way as they build."""

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
    """Module that compiles to one generated kernel and calls no library."""

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (x.sin() + 1,)


def make_headers(job: HeadersJob, report: Report) -> HeadersResult:
    """Build a trivial module, copy what was compiled before its graph into the job's folder, return the files' names.

    An existing file is replaced by an equal one. Each file is renamed into place, so a worker that is killed leaves no
    partial file of that name.
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
