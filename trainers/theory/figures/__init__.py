"""The papers' mathematical figures.

`paper_figures` and `continuum_runs` compute them, with `curves`; `draw` and `files` draw and write them.
"""
