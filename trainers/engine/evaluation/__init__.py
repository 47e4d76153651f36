"""Measurements of a model.

`views` are for reports, `after_adaptation` is for held-out clients, `flops` counts operations, `client_chunks` cuts
clients into parts that fit into memory.
"""
