"""Where the reference outputs of a subject are cached: by everything that decides them."""

from pathlib import Path

from bakeoff.machine import host, paths
from bakeoff.machine.files import digest
from bakeoff.machine.identity import this_machine
from bakeoff.models.component import Component
from bakeoff.process.jobs import Subject
from bakeoff.record.source import component_hash

_VERSION = 6
"""Of the files' format: another one makes them anew."""


def reference_folder(subject: Subject, component: Component) -> Path:
    """By config, workload, seeds or content of the weights, device, torch's version and the component's source.

    Raises BakeoffError when the component's network module is gone.
    """
    weights = ["file", subject.checkpoint_hash] if subject.checkpoint else ["random", subject.weight_seed]
    key = digest(
        [
            component.name,
            component.preset(subject.preset).config,
            subject.workload,
            subject.batch,
            subject.input_seed,
            weights,
            subject.device,
            subject.threads,
            this_machine(subject.device).machine_class,
            host.read_versions().get("torch", ""),
            component_hash(subject.component),
            _VERSION,
        ]
    )
    return paths.cache_folder() / "references" / f"{component.name}-{subject.preset}-{subject.workload}-{key}"
