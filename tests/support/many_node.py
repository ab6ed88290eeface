"""A node's process of the standard library alone, which measures nothing: it says which rows there are, or has a record
of each row of its part, made of the record in the file that MANY_RECORD names.

Run with `-I -S`, so that a thousand of them take seconds.
"""

import json
import os
import sys
from datetime import UTC, datetime

RECORD = "MANY_RECORD"


def main() -> None:
    """Carry out the part of a sweep that comes on stdin; the order's note has the number of rows."""
    order = json.load(sys.stdin)
    node, count, part = os.environ["BAKEOFF_NODE"], int(order["note"]), order["part"]
    if part == "plan":
        keys = [[f"toy:tiny.world/inductor[x{number}]/fp32@cpu", 1, 1, 1] for number in range(count)]
        say("planned", [{"key": key, "subject": "toy:tiny.world", "runs": True, "calibrates": False} for key in keys])
    with open(os.environ[RECORD], encoding="utf-8") as file:
        made = json.load(file)
    for variant, *_ in order["only"]:
        option = variant.partition("[")[2].partition("]")[0]
        made["variant"]["backends"] = [{"name": "inductor", "options": [[option, True]]}]
        made["machine"]["id"] = f"{node:0<12}"
        made |= {"node": node, "sweep": order["sweep"], "created": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}
        say("start", 1, 1, 1, variant)
        say("finish", 1, "", "")
        say("stored", made)
        say("result", made)
    say("done", {"sweep": order["sweep"], "stored": [], "interrupted": []})


def say(*line: object) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
