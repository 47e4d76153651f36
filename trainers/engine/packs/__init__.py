"""A pack: trials of one structure, trained together in one process on one device.

`pack` trains round by round; `lane` trains one round of the trials that are computed together; `sharing` says which
members are still the same and need one lane only; `setting` holds what all trials share; `build` makes model and data
from the trial; `plan` measures which oracle is fastest; `progress` holds everything that changes from round to round;
`checkpoint` stores it member by member; `lines` makes report lines.
"""
