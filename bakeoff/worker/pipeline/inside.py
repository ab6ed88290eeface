"""Ranges for the parts of networks that run in eager: levels 4 and 5 of a trace.

A compiler sees through hooks or removes them (pytorch#105362), so that compiled programs have none.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.autograd.profiler import record_function

from bakeoff.trace.annotate import PartTag
from bakeoff.trace.marks import part_name
from bakeoff.trace.tags import tag_of_path


@contextmanager
def parts_marked(modules: Mapping[str, tuple[str, Sequence[nn.Module]]], level: int) -> Iterator[Sequence[PartTag]]:
    """Within it, calls of tagged parts up to `level` leave ranges in torch's profile; yields the tags by their numbers.

    `modules` has for each slot its component's name and the modules of its programs.
    """
    tags: list[PartTag] = []
    handles = []
    for slot, (component, networks) in modules.items():
        known: dict[str, int] = {}
        for network in networks:
            for path, part in network.named_modules():
                tag = tag_of_path(component, path)
                if tag is None or tag.level > level:
                    continue
                if path not in known:
                    known[path] = len(tags)
                    tags.append(PartTag(tag.name, tag.level, slot, path))
                handles += _marked(part, part_name(known[path]))
    try:
        yield tags
    finally:
        for handle in handles:
            handle.remove()


def _marked(part: nn.Module, name: str) -> list[Any]:
    """Hooks that open a range before a call of the part and close it after. A part may call itself, as a stack."""
    opened: list[record_function] = []

    def before(_module: nn.Module, _inputs: object) -> None:
        opened.append(record_function(name).__enter__())

    def after(_module: nn.Module, _inputs: object, _outputs: object) -> None:
        opened.pop().__exit__(None, None, None)

    return [part.register_forward_pre_hook(before), part.register_forward_hook(after, always_call=True)]
