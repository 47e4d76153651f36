"""Decides what a study trains next, without Ray.

`policy` decides (pure), `state` holds the trials and packs, `search` connects both with the samplers and the API,
`outcome` computes how trials and studies end.
"""
