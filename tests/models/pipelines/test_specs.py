"""Facts of the pipelines without torch: names, presets, options."""

import subprocess
import sys

import pytest

from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines import load_pipeline
from bakeoff.models.pipelines.owl.loop import Owl
from bakeoff.models.pipelines.owl.spec import Options, noise_levels


def test_specs_import_no_torch() -> None:
    code = (
        "import sys\nfrom bakeoff.models.pipelines import pipeline_names, resolve_pipeline\n"
        "for name in pipeline_names():\n"
        "    found = resolve_pipeline(name)\n"
        "    for device in ('cpu', 'cuda'): found(found.preset_of('', device), found.options_of({}))\n"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Mine(Owl):
    pass


def test_a_subclass_of_a_pipeline_of_this_lab_has_its_own_code_and_name() -> None:
    assert load_pipeline("owl") is Owl
    assert load_pipeline(f"{__name__}:Mine") is Mine
    assert (Owl.name, Mine.name) == ("owl", "mine")


def test_noise_levels() -> None:
    assert noise_levels(Options(steps=4), 10) == (1, 0.75, 0.5, 0.25, 0)
    # 3 s / (1 + 2 s) of the uniform levels
    assert noise_levels(Options(steps=4, sampler="euler3"), 10) == pytest.approx((1, 0.9, 0.75, 0.5, 0))
    assert noise_levels(Options(schedule="1:0.25:0"), 10) == (1, 0.25, 0)
    assert len(noise_levels(Options(), 10)) == 11


@pytest.mark.parametrize(
    "options",
    [
        {"steps": -1},
        {"noise_prev": 1.0},
        {"noise_prev": float("nan")},
        {"guidance_scale": float("inf")},
        {"audio_window": -1},
        {"schedule": "1:0.5"},
        {"schedule": "0:1"},
        {"schedule": "1:nan:0"},
        {"schedule": "one:0"},
        {"schedule": "1:0", "steps": 3},
    ],
)
def test_owl_refuses_bad_options(options: dict[str, object]) -> None:
    with pytest.raises(BakeoffError) as refused:
        Options(**options)  # type: ignore[arg-type]
    assert refused.value.code == "bad-option"
