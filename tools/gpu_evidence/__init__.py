"""A developer's tool: everything that needs a GPU, step by step, with one archive of the results.

`steps.py` is the table of steps. `main.py` runs them and imports only the standard library; `facts.py`, `plans.py` and
`smoke.py` are programs that it starts with the Python that has bakeoff's dependencies.
"""
