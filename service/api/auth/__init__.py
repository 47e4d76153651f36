"""Authentication: `tokens` checks Driftline's own tokens, `oidc` and `oidc_keys` those of an identity provider."""
