"""The sentences of the recommendation above a table, one for each case.

A name in braces is replaced by a name or a figure of that case, which `recommendation.py` computes. What follows `|`
stands last, before the command to type.
"""

RESULT = {
    "rows were only built": "Built for {targets} and not timed: no such GPU is here. | Export one with:",
    "nothing to rank": "Deploy nothing from this table: no row can be ranked.",
    "no row meets the limits": (
        "Deploy nothing from this table: no row is shown to meet {limits}; the nearest is {nearest}: {misses}."
    ),
    "one row": "Nothing to compare with: {best} ({figure}) is the only row that can be recommended.",
    "the final has a winner": "Deploy {winner}: in the final it was faster than {loser} ({evidence}).",
    "eager beat the winner": "Do not deploy {winner}: in the final it was faster than {loser} ({evidence}).",
    "no difference": "No difference shown between {winner} and {loser} in the final ({evidence}); deploy either.",
    "no difference, eager beat one": (
        "No difference shown between {winner} and {loser} in the final ({evidence}); deploy neither."
    ),
    "no difference, one needs no build": (
        "No difference shown between {winner} and {loser} in the final ({evidence}); deploy {eager}, it needs no build."
    ),
    "no difference, one has the lower p99": (
        "No difference shown between {winner} and {loser} in the final ({evidence}); deploy {steadier}, its p99 is "
        "lower."
    ),
    "one failed in the final": (
        "Not decided: {best} has {goal}, {figure}, before {second} with {second_figure}, but their final has {why}. "
        "| Run it again with:"
    ),
    "far ahead": (
        "{best} is far ahead ({apart}x): it has {goal}, {figure}, before {second} with {second_figure}. "
        "| Sweeps drift by {drift}x; a final would confirm it:"
    ),
    "faster at each speed of the machine": (
        "{best} is faster whichever of this machine's speeds each had: it has {goal}, {figure}, before {second} with "
        "{second_figure}. | A final says by how much:"
    ),
    "not decided, of two sweeps": (
        "Not decided: {best} has {goal}, {figure}, before {second} with {second_figure}, but they were not measured "
        "against each other, and they are of two sweeps. | Decide with:"
    ),
    "not decided": (
        "Not decided: {best} has {goal}, {figure}, before {second} with {second_figure}, but they had no "
        "final, and sweeps drift by {drift}x. | Decide with:"
    ),
}
"""The result of a table: exactly one holds."""
GAIN = {
    "unknown": "The speed-up over eager fp32 is not known: {why}.",
    "no verdict": "{faster} was {ratio}x as fast as {slower} in {pairs} of processes: no difference shown.",
    "shown": "{faster} is {ratio}x [{low}, {high}] as fast as {slower}{early}.",
}
"""The best row against eager fp32, in the same rounds of the final."""
REMARKS = {
    "long p99": "The p99 of {name} is {times}x its median.",
    "meets the limits": "{name} meets the limits: {margins}.",
    "limits not clear": "Not decided between, because its limits are not clear: {name}: {fit}.",
    "better on random weights": (
        "{name} has {goal}, {figure}, but random weights say nothing about the error of yours; decide with: "
        "make sweep MODEL={component} CHECKPOINT=FILE"
    ),
}
PAGE = "{lacking} of {all} tables have no final between their two best rows. To run them all{where}:"
"""Of a page whose tables lack several finals."""
