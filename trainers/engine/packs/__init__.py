"""A pack: trials of one structure, trained together in one process on one device.

`pack` trains rounds and reports them, `build` makes model and data from the trial, `plan` measures which oracle is the
fastest, `progress` is everything that changes from round to round, `checkpoint` keeps it, `lines` makes report lines.
"""
