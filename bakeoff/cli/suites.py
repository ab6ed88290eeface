"""Named suites: `bakeoff.toml` says what `bakeoff sweep @NAME` measures, by the names of that command's options."""

import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bakeoff.cli.common import REPLACED
from bakeoff.cli.complete import SUITES
from bakeoff.models.errors import BakeoffError, meant
from bakeoff.models.plain_file import read_plain

if TYPE_CHECKING:
    from bakeoff.plan.request import Request

_COMPONENTS, _POLICY = "components", "policy"
_OF_A_RUN = ("config", "resume", "dry-run", "strict", "json")
"""Options that say how one command runs, not what is measured; a suite has none of them."""


def with_suite(context: typer.Context) -> None:
    """Give a sweep's parameters that were not typed the values of the suite `@NAME` among its components.

    Components typed beside it replace the suite's. The resolved suite becomes `context.obj`. Raises BakeoffError for a
    file, suite, key or value that does not exist.
    """
    from bakeoff.process.environment import without_folders

    values = context.params
    config, typed = values.pop("config"), values[_COMPONENTS]
    named = [name[1:] for name in typed if name.startswith("@")]
    if len(named) != 1:
        what = f"--config {config}: name a suite of it" if not named else f"@{', @'.join(named)}: name one suite"
        raise BakeoffError(f"{what}, as in bakeoff sweep @nightly", "bad-option")
    file = Path(config or SUITES)
    suite = _read(file, named[0], [_key(each) for each in context.command.params])
    values[_COMPONENTS] = [name for name in typed if not name.startswith("@")]
    resolved = {"suite": named[0], **suite}
    for parameter in context.command.params:
        key, name = _key(parameter), parameter.name or ""
        source = context.get_parameter_source(name)
        if bool(values.get(_COMPONENTS)) if key == _COMPONENTS else source is not None and source.name == "COMMANDLINE":
            resolved |= {} if key in _OF_A_RUN else {key: values[name]}
        elif key in suite or key == _COMPONENTS:
            values[name] = _cast(context, parameter, suite.get(key), f"{file}, suite {named[0]}")
    texts = {key: without_folders(value) for key, value in resolved.items() if isinstance(value, str)}
    context.obj = resolved | texts


def _read(file: Path, name: str, options: list[str]) -> dict[str, Any]:
    """Return the entries of a suite, after checking that each key is one of a suite's options."""
    try:
        found = tomllib.loads(read_plain(file).decode())
    except OSError as error:
        text = f"@{name} is a suite of {file}, which cannot be read: {error.strerror}; write it, or give --config FILE"
        raise BakeoffError(text, "not-readable") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BakeoffError(f"{file}: {error}; correct it", "bad-config") from error
    check_keys(str(file), found, ["suites"])
    suites = found.get("suites", {})
    if not isinstance(suites, dict) or not isinstance(suites.get(name), dict):
        known = [*suites] if isinstance(suites, dict) else []
        text = f"{file} has no suite '{name}'{meant(name, known)}; it has {', '.join(known) or 'none'}"
        raise BakeoffError(f"{text}; write one as [suites.{name}]", "unknown-name")
    suite: dict[str, Any] = suites[name]
    check_keys(f"{file}, suite {name}", suite, [*(key for key in options if key not in _OF_A_RUN), _POLICY])
    return suite


def with_policy(request: "Request") -> "Request":
    """Return the request with the policy that its suite states, if any. Raises BakeoffError for a key or value that a
    policy does not have."""
    import msgspec

    from bakeoff.record.policy import Policy

    entries, where = request.asked.get(_POLICY, {}), f"suite {request.asked.get('suite', '')}, policy"
    try:
        stated = msgspec.convert(entries, Policy)
    except msgspec.ValidationError as error:
        raise BakeoffError(f"{where}: {error}; correct it", "bad-config") from error
    check_keys(where, entries, [field.name for field in fields(Policy)])
    for key, value in entries.items():
        if value < 0:
            raise BakeoffError(f"{where}: {key} = {value}: give 0 or more", "bad-config")
    return replace(request, policy=stated) if entries else request


def check_keys(where: str, entries: Mapping[str, Any], known: list[str]) -> None:
    for key in entries:
        if key not in known:
            near = meant(key, known) or f"; known: {', '.join(known)}"
            near = f"; it is now {REPLACED[f'--{key}'].removeprefix('--')}" if f"--{key}" in REPLACED else near
            raise BakeoffError(f"{where}: no key '{key}'{near}", "bad-config")


def _cast(context: typer.Context, parameter: Any, value: Any, where: str) -> Any:
    """Return a value of the file as if it were typed. Raises BakeoffError if the option cannot have it."""
    several, listed = parameter.multiple or parameter.nargs == -1, value if isinstance(value, list) else [value]
    plain = listed and all(isinstance(one, str | int | float) for one in listed)
    if not plain or (listed is value and not several):
        kinds = "a text or number, or a list of them" if several else "one text, one number, or true or false"
        what = "is missing" if value is None else f"= {value}"
        raise BakeoffError(f"{where}: {_key(parameter)} {what}: give {kinds}", "bad-config")
    try:
        return parameter.process_value(context, listed if several else value)
    except typer.BadParameter as error:
        raise BakeoffError(f"{where}: {_key(parameter)} = {value}: {error.message}", "bad-config") from error


def _key(parameter: Any) -> str:
    """Return a parameter's key in a suite: its option without dashes in front, or `components`."""
    return str(parameter.opts[0].lstrip("-")) if parameter.opts[0].startswith("-") else _COMPONENTS
