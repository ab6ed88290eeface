"""Commands about artifacts: export a variant, verify one; `inspect` looks into one."""

from pathlib import Path
from typing import Annotated

import typer

from bakeoff.cli.common import (
    Checkpoint,
    Device,
    Json,
    Seed,
    Threads,
    app,
    fail,
    named,
    names,
    print_document,
    print_json,
    records_folder,
)
from bakeoff.models.errors import BakeoffError


@app.command()
def export(
    what: Annotated[
        str, typer.Argument(help="As in wm, wm:1b.step, mine.py:model, or a whole variant, wm:1b.step/aoti/bf16@cpu.")
    ],
    backend: Annotated[str | None, typer.Option(help="Backend, options in brackets; composed with +.")] = None,
    to: Annotated[Path | None, typer.Option(help="Folder to make (default: artifacts/...).")] = None,
    dtype: Annotated[str | None, typer.Option(help="Default: bf16, or fp32 where that is slow.")] = None,
    device: Device = None,
    build_for: Annotated[
        list[str] | None, typer.Option("--for", help="GPUs that need not be here, as in sm89,sm120: an artifact each.")
    ] = None,
    checkpoint: Checkpoint = None,
    threads: Threads = 0,
    seed: Seed = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace an artifact that is there.")] = False,
    as_json: Json = False,
) -> None:
    """Turn a variant into a folder that loads elsewhere: programs, manifest, and a sample to check it against."""
    import shlex
    from dataclasses import replace

    from bakeoff.artifact.export import default_folder, plan_export
    from bakeoff.artifact.export import export as write_artifact
    from bakeoff.bring.bring import bring, is_brought, is_pipeline
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.plan.request import Request, request_of
    from bakeoff.report.pages import artifact
    from bakeoff.variant import parse_variant, split_title

    options = {"--backend": backend, "--dtype": dtype, "--device": device}
    given = {option: named(option, value) for option, value in options.items()}
    if is_pipeline(what):
        text = f"{what} is a pipeline; its best mix is exported by bakeoff budget {what} --export FOLDER"
        raise BakeoffError(text, "bad-option")
    preset = workload = ""
    if not is_brought(what):
        what, preset, workload = split_title(what)
    if "/" in what and not is_brought(what):
        doubled = [option for option, value in given.items() if value]
        if doubled:
            text = f"{what} is a whole variant; omit {', '.join(doubled)}, or name the component alone"
            raise BakeoffError(text, "bad-option")
        request = request_of(parse_variant(what))
    else:
        if not given["--backend"]:
            raise BakeoffError(f"{what}: no backend given; add --backend, as in --backend aoti", "bad-option")
        with TerminalProgress() as progress:
            what = bring(what, seed, threads, progress, device=given["--device"])
        request = Request(
            component=what,
            backends=(given["--backend"],),
            presets=tuple(filter(None, (preset,))),
            workloads=tuple(filter(None, (workload,))),
            dtypes=tuple(filter(None, (given["--dtype"],))),
            device=given["--device"],
        )
    weights = named("--checkpoint", checkpoint)
    request = replace(request, threads=threads, weight_seed=seed, input_seed=seed, checkpoint=weights)
    targets = names("--for", build_for)
    if to is not None and len(targets) > 1:
        raise BakeoffError(f"--to {to}: {len(targets)} artifacts are made; leave it out, or give one GPU", "bad-option")
    plans = [plan_export(replace(request, build_for=(each,))) for each in targets] or [plan_export(request)]
    made = []
    for plan in plans:
        command = f"bakeoff export '{plan.rows[0].variant}'"
        command += f" --checkpoint {shlex.quote(Path(checkpoint).name)}" if checkpoint else ""
        command += f" --threads {threads}" if threads else ""
        command += f" --seed {seed}" if seed else ""
        with TerminalProgress() as progress:
            dtype = plan.rows[0].variant.dtype
            if not request.dtypes and dtype != "given":
                progress.say(f"exporting in {dtype}, the default here; --dtype (make: DTYPE=) takes another")
            target = default_folder(plan) if to is None else to
            made.append(write_artifact(plan, target, force, records_folder(), command, progress))
        if not as_json:
            print_document(artifact.exported(made[-1].folder, made[-1].manifest, made[-1].verified))
    if as_json:
        told = [{"folder": str(done.folder), "manifest": done.manifest} for done in made]
        print_json(told if targets else told[0])


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="An artifact's folder, or that of an exported mix.")],
    allow_mismatch: Annotated[
        bool, typer.Option("--allow-mismatch", help="Open it on a host that it was not made for; the report says so.")
    ] = False,
    conditions: Annotated[
        bool,
        typer.Option("--conditions", help="Then call it in threads, forks and as else it is used; keep the results."),
    ] = False,
    idle: Annotated[float | None, typer.Option(help="Seconds without a call, of --conditions (default: 10).")] = None,
    as_json: Json = False,
) -> None:
    """Open an artifact in a fresh process, call it with its sample, compare and time it; of a mix, each of them.

    Exits with 1 if it is wrong, and with 3 if it is for another host: then only its files were checked.
    """
    from bakeoff.artifact.export import check_conditions
    from bakeoff.artifact.export import verify as verify_artifact
    from bakeoff.cli.progress import TerminalProgress
    from bakeoff.export import Mismatch, read_manifest
    from bakeoff.export.mix import is_mix, read_mix
    from bakeoff.report.pages import artifact

    if idle is not None and not (conditions and 0 <= idle <= 3600):
        raise BakeoffError(f"--idle {idle:g} goes with --conditions, and is 0 to 3600 seconds", "bad-option")
    verified, wrong = [], []
    for each in [folder / name for name in read_mix(folder).digests] if is_mix(folder) else [folder]:
        manifest = read_manifest(each)
        try:
            with TerminalProgress() as progress:
                result = verify_artifact(each, manifest, allow_mismatch, progress)
                differing = [one.name for one in result.checked if not one.passed]
                if conditions and not differing:
                    idle_s = 10.0 if idle is None else idle
                    rows = check_conditions(each, manifest, result, allow_mismatch, idle_s, progress).rows
                    differing = [row.name for row in rows if row.result in ("wrong", "crashed")]
                    manifest = read_manifest(each)
        except Mismatch as error:
            fail(str(error), 3, error.code)
        verified.append({"variant": manifest.variant, "digest": manifest.digest, "result": result})
        if manifest.conditions:
            verified[-1]["conditions"] = manifest.conditions
        wrong += differing
        if not as_json:
            print_document(artifact.verified(manifest, result))
    if as_json:
        print_json({"artifacts": verified} if is_mix(folder) else verified[0])
    if wrong:
        fail(f"{folder} does not compute what was exported: {', '.join(wrong)}", 1, "wrong-output")
