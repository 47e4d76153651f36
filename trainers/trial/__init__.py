"""A trial document: read once, from top to bottom, checked, completed and warned about.

`document` reads the whole (`parse`, `TrialSpec`). `members` divides what members give among the parts, `parts` reads a
method, an optimizer or a schedule, `roles` says which optimizers a method takes, `mixed_values` fills in the weights of
mixed methods, `adaptation` reads how held-out clients adapt. `sizes` refuses what no machine can hold; `warnings` and
`mixed_warnings` say what is allowed but hardly meant. `version_0_1` knows the names that version 0.1 used.

Nothing here imports torch: a document is checked where nothing is trained.
"""
