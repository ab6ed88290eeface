"""Every title that a page has, and what was typed, names the records; what names none is answered with what does."""

from dataclasses import replace
from pathlib import Path

import pytest
from few_records import at, stored
from pipeline_records import pipeline_record
from records import bakeoff

from bakeoff.machine import paths
from bakeoff.models.errors import BakeoffError
from bakeoff.record.schema import Record
from bakeoff.record.store import Records, StoredPipeline, save
from bakeoff.report import groups
from bakeoff.report.named import of_name, source_of, unknown


def brought(second: int, component: str, source: str, sweep: str = "sweep-1") -> Record:
    made = at(second, "eager", [1.0] * 20)
    variant = replace(made.variant, component=component, preset="py", workload="call")
    return replace(made, variant=variant, config={"content": source, "source": source}, label=source, sweep=sweep)


UNET = brought(1, "unet", "/one/unet.py:model")
DECODER = brought(2, "unet.decoder", "/one/unet.py:decoder", "sweep-2")
OTHER = brought(3, "unet-2", "/one/unet-2.py:model")
TWIN = brought(4, "twin", "/one/twin.py:model")
TWO = brought(5, "twin", "/two/twin.py:model")
RUN = pipeline_record()
RECORDS = Records(stored(UNET, DECODER, OTHER, TWIN, TWO), (), (), pipelines=(StoredPipeline("run", RUN),))


def names(text: str) -> list[str]:
    found = of_name(RECORDS, text)
    assert len(found.pipelines) <= 1
    return [entry.record.label for entry in found.current] + [entry.record.mix.pipeline for entry in found.pipelines]


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("", [*(one.label for one in (UNET, DECODER, OTHER, TWIN, TWO)), RUN.mix.pipeline]),
        ("unet", [UNET.label]),
        ("unet.decoder", [DECODER.label]),
        ("unet:py", [UNET.label]),
        ("unet.call", [UNET.label]),
        ("unet:py.call/eager", [UNET.label]),
        (str(UNET.variant), [UNET.label]),
        (groups.title(UNET), [UNET.label]),
        (groups.title(DECODER, machine=False), [DECODER.label]),
        (groups.title(TWO), [TWO.label]),
        ("sweep-2", [DECODER.label]),
        ("twin", [TWIN.label, TWO.label]),
        ("/one/unet.py:model", [UNET.label]),
        ("unet.py:model", [UNET.label]),
        ("unet.py", [UNET.label, DECODER.label]),
        ("two/twin.py:model", [TWO.label]),
        (RUN.mix.pipeline, [RUN.mix.pipeline]),
        (str(RUN.mix), [RUN.mix.pipeline]),
        (groups.title(RUN), [RUN.mix.pipeline]),
        ("une", []),
        ("unet:p", []),
    ],
)
def test_names(text: str, held: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert names(text) == held


def test_a_typed_file_is_that_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        BakeoffError, match=r"/one/twin\.py:model and /two/twin\.py:model; type one of these"
    ) as refused:
        names("twin.py:model")
    assert refused.value.code == "unknown-name"
    (tmp_path / "twin.py").touch()
    assert names("twin.py:model") == [], "that file was not swept"


def test_an_inspected_function_names_the_modules_that_were_recorded_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = paths.recorded_folder(tmp_path / "pipe.py", "pipe")
    modules = [
        brought(second, f"pipe.{name}", f"a live module in {folder}/pipe.{name}")
        for second, name in enumerate(("unet", "vae"), 1)
    ]
    records = Records(stored(*modules, UNET), (), ())
    for typed in ("pipe.py:pipe", f"{tmp_path}/pipe.py:pipe"):
        assert [entry.record for entry in of_name(records, typed).current] == modules
    for typed in ("pipe.py:other", "/elsewhere/pipe.py:pipe"):
        assert of_name(records, typed).current == ()


def test_a_loop_names_its_runs_and_its_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = replace(RUN, mix=replace(RUN.mix, pipeline="mine"))
    modules = [brought(second, f"mine.{name}", f"{tmp_path}/mine.py:Loop") for second, name in enumerate(("a", "b"), 1)]
    records = Records(
        stored(*modules, UNET), (), (), pipelines=(StoredPipeline("run", run), StoredPipeline("run", RUN))
    )
    for typed in ("mine.py:Loop", f"{tmp_path}/mine.py:Loop", f"../{tmp_path.name}/mine.py:Loop"):
        found = of_name(records, typed)
        assert [entry.record for entry in found.current] == modules
        assert [entry.record for entry in found.pipelines] == [run]
    assert of_name(records, "mine.py:Other").current == of_name(records, "mine.py:Other").pipelines == ()


def test_what_names_nothing_is_answered_with_the_nearest_and_with_what_is_held() -> None:
    held = f"the records hold unet, unet.decoder, unet-2, twin, {RUN.mix.pipeline}"
    others = "without records: wm, image, audio, matrix-vae, matrix-wm, toy, owl, matrix"
    held = f"{held}; {others.replace(f', {RUN.mix.pipeline}', '')}"
    assert str(unknown(RECORDS, "decoder")) == f"nothing is called 'decoder'; did you mean unet.decoder; {held}"
    names = ("wm", "image", "audio", "matrix-vae", "matrix-wm", "toy", "owl", "matrix")
    every = stored(*(brought(1, name, "") for name in names))
    assert (
        str(unknown(Records(every, (), ()), "qqq")) == f"nothing is called 'qqq'; the records hold {', '.join(names)}"
    )
    assert str(unknown(RECORDS, "imge")) == f"nothing is called 'imge'; did you mean image; {held}"
    assert str(unknown(Records((), (), ()), "qqq")) == f"nothing is called 'qqq'; the records hold nothing; {others}"


def test_each_command_takes_a_title(tmp_path: Path) -> None:
    for one in (UNET, brought(6, "unet.decoder", "/one/unet.py:decoder")):
        save(tmp_path / "runs", one)
    title = groups.title(UNET)
    for command in (("table", title), ("show", title), ("report", "--html", "page.html", title)):
        ran = bakeoff(*command, cwd=tmp_path)
        assert (ran.code, ran.err) == (0, ""), command
    assert bakeoff("show", "unet.py:model", cwd=tmp_path).out.startswith(f"{UNET.variant}\n{title}\n")
    assert "unet.decoder:py.call" in bakeoff("explain", title, "unet.decoder", cwd=tmp_path).out
    for command in (("table", "une"), ("show", "une"), ("explain", "une", title)):
        ran = bakeoff(*command, cwd=tmp_path)
        assert ran.code == 2
        assert "nothing is called 'une'; did you mean unet; the records hold unet, unet.decoder" in ran.err
    assert "'unet.py' is the name of 2 tables" in bakeoff("show", "unet.py", cwd=tmp_path).err


def test_a_title_is_swept_again_from_the_file_that_its_records_name(tmp_path: Path) -> None:
    """Where the cache knows the model no longer, such as on another machine."""
    folder = tmp_path / "models"
    folder.mkdir()
    made = brought(1, "scale", f"{folder}/scale.py:model")
    save(tmp_path / "runs", made)
    ran = bakeoff("sweep", groups.title(made), "--dry-run", cwd=tmp_path)
    assert ran.code == 2
    assert ran.said[0].startswith(f"bakeoff: '{groups.title(made)}' was swept from {made.label}, which is gone; give")
    (folder / "scale.py").write_text(
        "import torch\n\n\ndef model():\n    return torch.nn.Linear(4, 4).eval(), torch.randn(1, 4)\n"
    )
    for text in ("scale", groups.title(made)):
        ran = bakeoff(
            "sweep", text, "--backends", "eager", "--dtype", "fp32", "--device", "cpu", "--dry-run", cwd=tmp_path
        )
        assert ran.code == 0, ran.err
        assert "scale:py.call/eager/fp32@cpu" in ran.out
    ran = bakeoff("sweep", groups.title(made), "--workload", "other", "--dry-run", cwd=tmp_path)
    assert "other" in ran.err, "an option goes before the title"


def test_a_title_of_several_files_or_of_another_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for text, said in (
        ("twin", "'twin' is /one/twin.py:model and /two/twin.py:model; type one of these"),
        ("unet", "'unet' was swept from /one/unet.py:model, which is gone"),
    ):
        with pytest.raises(BakeoffError, match=said):
            source_of(RECORDS, text)
    assert source_of(RECORDS, RUN.mix.pipeline) == source_of(RECORDS, "qqq") == ""
    live = brought(6, "small", "a live module in ~/mine")
    with pytest.raises(BakeoffError, match="is a live module in ~/mine; sweep it there, in Python"):
        source_of(Records(stored(live), (), ()), "small")
    for folder in (tmp_path, tmp_path / "there"):
        folder.mkdir(exist_ok=True)
        (folder / "near.py").touch()
    records = Records(stored(brought(7, "near", f"{tmp_path}/there/near.py:model")), (), ())
    with pytest.raises(BakeoffError, match=r"near\.py of this folder was not swept"):
        source_of(records, "near")
    monkeypatch.chdir(tmp_path / "there")
    assert source_of(records, "near") == f"{tmp_path}/there/near.py:model"
