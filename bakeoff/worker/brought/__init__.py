"""Users' own models ("brought") in a worker: loaded from their source, described by running them, and built."""
