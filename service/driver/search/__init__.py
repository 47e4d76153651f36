"""What a study trains next, without Ray.

`policy` decides (pure), `state` is what is known of trials and packs, `search` joins them with samplers and the API,
`outcome` is how a study ended.
"""
