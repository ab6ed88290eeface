"""The command `bakeoff`, and `python -m bakeoff`."""

from bakeoff.cli import main

if __name__ == "__main__":
    main()
