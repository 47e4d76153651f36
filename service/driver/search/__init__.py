"""Decides what a study trains next, without Ray.

`policy` decides (pure) by the plan in `actions`, `rungs` which trials stop early (pure) by `rules` and `forecast`,
`ladder` keeps what both need to know about rungs. `study_plan` makes the study's plan, `study_rows` and `state` hold
the trials and packs, `proposals` the samplers, `chosen` what is run again. `search` connects all of these with the API,
`outcome` computes how trials and studies end.
"""
