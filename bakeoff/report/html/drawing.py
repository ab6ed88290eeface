"""Pieces of figures that are drawn as SVG without scripts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle of a figure."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    title: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of a figure's grid and its number."""

    place: float
    text: str
