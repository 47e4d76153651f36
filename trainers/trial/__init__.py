"""Trial documents: reads, checks and completes them, and warns about unlikely settings.

`document` reads a whole document (`parse`, `TrialSpec`). `members` distributes the members' values to the parts;
`parts` reads a method, an optimizer or a schedule; `roles` says which optimizers a method takes; `mixed_values` fills
in the weights of mixed methods; `adaptation` reads how held-out clients adapt, `held_out_sample` on how many of them a
model is evaluated, `evaluation_rounds` when. `sizes` rejects trials that no machine can hold; `warnings` and
`mixed_warnings` find settings that are allowed but probably not meant. `version_0_1` translates the names of version
0.1.

Importing this package does not import torch, so that documents can be checked where nothing is trained.
"""
