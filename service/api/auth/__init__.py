"""Authentication: `tokens` checks Driftline's own tokens, `oidc` those of an identity provider.

`oidc_keys` holds the provider's keys, `code_flow` signs people in there in a browser, and `issuer_answers` are the
requests to it.
"""
