"""Decides what a study trains next, without Ray.

`policy` decides (pure), `rungs` which trials stop early (pure), `ladder` keeps what both need to know about rungs,
`study_rows` and `state` hold the trials and packs, `search` connects all of these with the samplers and the API,
`outcome` computes how trials and studies end.
"""
