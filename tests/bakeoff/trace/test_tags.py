"""The tags of traces: a closed list that names every phase and part of what the project has."""

import importlib
from collections.abc import Iterator

import pytest
import torch
from mixes import loop_of

from bakeoff.models import component_names, resolve_component
from bakeoff.models.pipelines import pipeline_names
from bakeoff.trace.tags import TAGS, tag_of_line, tag_of_path

NETWORKS = ("wm", "image", "audio", "matrix-vae", "matrix-wm")


def paths(component: str) -> Iterator[str]:
    spec = resolve_component(component)
    config = spec.preset("tiny").config
    for workload in spec.workload_names(config):
        with torch.device("meta"):
            network = importlib.import_module(spec.network).build(config, workload, 1)
        yield from (path for path, _ in network.named_modules())


@pytest.mark.parametrize("name", pipeline_names())
def test_every_phase_of_a_pipeline_has_a_tag_of_its_own(name: str) -> None:
    phases = loop_of(name).steady.phases
    assert [tag_of_line(phase) for phase in phases] == list(phases)


def test_a_phase_that_is_not_in_the_list_is_a_phase() -> None:
    assert tag_of_line("encode_the_universe") == "phase"
    assert tag_of_line("block") == "phase"


@pytest.mark.parametrize("component", NETWORKS)
def test_each_network_has_parts_at_both_levels(component: str) -> None:
    tags = {path: tag for path in paths(component) if (tag := tag_of_path(component, path)) is not None}
    assert {TAGS[tag] for tag in tags.values()} == {4, 5}
    for path, tag in tags.items():
        above = [other for other in tags if path.startswith(f"{other}.")]
        assert all(TAGS[tags[other]] < TAGS[tag] for other in above), path


def test_every_component_of_the_project_is_covered() -> None:
    assert set(component_names()) - {"toy"} == set(NETWORKS)
