"""What the pages of an artifact say of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from bakeoff.export.manifest import Weights, unseal
from bakeoff.process.jobs import VerifyResult
from bakeoff.report.text import artifact

MANIFEST = Path(__file__).parents[2] / "golden" / "manifest.json"


def test_each_page_names_the_file_of_a_users_model() -> None:
    manifest = replace(unseal(MANIFEST.read_bytes()), label="~/one/mine.py:model, mine.Net")
    result = VerifyResult(manifest.parity, 1, "", 0.1, (), 1 << 20, ())
    named = f"{manifest.variant} (~/one/mine.py:model, mine.Net)"
    assert artifact.exported(Path("artifacts/mine"), manifest, result).splitlines()[0] == f"artifacts/mine: {named}"
    for page in (artifact.verified(manifest, result), artifact.inspect(manifest, ())):
        assert f"variant   {named}" in page.splitlines()


@pytest.mark.parametrize(
    ("credit", "source", "said"),
    [
        ("", "its own weights, sha256 07d1df5b524304ea", "its own weights, sha256 07d1df5b524304ea"),
        ("OWL", "random, seed 0", "OWL; weights random, seed 0, 07d1df5b524304ea"),
        ("OWL", "wm.pt, sha256 0123456789ab", "OWL; weights wm.pt, sha256 0123456789ab, 07d1df5b524304ea"),
    ],
)
def test_the_model_and_its_weights_are_said_once(credit: str, source: str, said: str) -> None:
    weights = Weights(source, "07d1df5b524304ea" + "0" * 48)
    manifest = replace(unseal(MANIFEST.read_bytes()), credit=credit, weights=weights)
    assert f"model     {said}" in artifact.inspect(manifest, ()).splitlines()
