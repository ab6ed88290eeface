"""What the pages of an artifact say of it."""

from dataclasses import replace
from pathlib import Path

from bakeoff.export.manifest import unseal
from bakeoff.process.jobs import VerifyResult
from bakeoff.report.pages import artifact
from bakeoff.report.render import terminal

MANIFEST = Path(__file__).parents[2] / "golden" / "manifest.json"


def test_each_page_names_the_file_of_a_users_model() -> None:
    manifest = replace(unseal(MANIFEST.read_bytes()), label="~/one/mine.py:model, mine.Net")
    result = VerifyResult(manifest.parity, 1, "", 0.1, (), 1 << 20, ())
    named = f"{manifest.variant} (~/one/mine.py:model, mine.Net)"
    exported = terminal.render(artifact.exported(Path("artifacts/mine"), manifest, result)).splitlines()
    assert exported[0] == f"artifact: artifacts/mine: {named}"
    assert exported[-1] == "bakeoff verify artifacts/mine"
    for page in (artifact.verified(manifest, result), artifact.inspected(manifest, ())):
        assert f"variant: {named}" in terminal.render(page).splitlines()


def test_a_wrong_output_is_the_first_that_is_said() -> None:
    manifest = unseal(MANIFEST.read_bytes())
    wrong = replace(manifest.parity[0], passed=False, rel_l2=0.5, problem="too far off")
    result = VerifyResult((*manifest.parity[1:], wrong), 1, "", 0.1, (), 1 << 20, ())
    lines = terminal.render(artifact.verified(manifest, result), 80).splitlines()
    assert lines[0] == "not verified: 1 output differs"
    assert f"{wrong.program}/{wrong.output}: too far off" in lines
    (row,) = [line for line in lines if line.endswith("FAIL")]
    assert row.startswith(f"{wrong.program}/{wrong.output} ")


def test_the_part_of_the_outputs_that_was_compared_is_said() -> None:
    """Of step4 and append4 all values, of context4's six outputs of 3,264 values every third."""
    manifest = unseal(MANIFEST.read_bytes())
    every = {f"context4/{port.name}": 3 for port in manifest.program("context4").outputs}
    thinned = replace(manifest, sample=replace(manifest.sample, every=every))
    result = VerifyResult(manifest.parity, 1, "", 0.1, (), 1 << 20, ())
    stored, whole = (134 + 6 * 816 + 6 * values for values in (1088, 3264))
    line = f"compared: {stored:,} of {whole:,} output values of one call of each program"
    for page in (artifact.exported(Path("made"), thinned, result), artifact.verified(thinned, result)):
        assert line in terminal.render(page).splitlines()
    step = replace(manifest.programs[0], inputs=(replace(manifest.programs[0].inputs[0], shape=(1, 8193)),))
    large = terminal.render(artifact.verified(replace(manifest, programs=(step,)), result))
    assert "compared: 134 of 134 output values, for inputs that repeat 8,191 values" in large.splitlines()
