"""Simulated studies: the product's samplers, choices and comparisons on curves that were recorded before.

`nearest` finds the recorded configuration closest to a proposal, `simulation` replays one study, `summary` says what
many of them conclude. `driftline.results.recorded_table` is the file.
"""
