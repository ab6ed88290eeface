"""What the pages of an artifact say of it."""

from dataclasses import replace
from pathlib import Path

from bakeoff.export.manifest import unseal
from bakeoff.process.jobs import VerifyResult
from bakeoff.report.text import artifact

MANIFEST = Path(__file__).parents[2] / "golden" / "manifest_schema1.json"


def test_each_page_names_the_file_of_a_users_model() -> None:
    manifest = replace(unseal(MANIFEST.read_bytes()), label="~/one/mine.py:model, mine.Net")
    result = VerifyResult(manifest.parity, 1, "", 0.1, (), 1 << 20, ())
    named = f"{manifest.variant} (~/one/mine.py:model, mine.Net)"
    assert artifact.exported(Path("artifacts/mine"), manifest, result).splitlines()[0] == f"artifacts/mine: {named}"
    for page in (artifact.verified(manifest, result), artifact.inspect(manifest, ())):
        assert f"variant   {named}" in page.splitlines()
