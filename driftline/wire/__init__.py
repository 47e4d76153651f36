"""What travels between clients, the API and drivers: frozen pydantic records, unknown keys refused.

`records` has studies and trials, `driver_messages` what only a driver sends, `curve_codec` how curves are packed,
`access` tokens and quotas, `ids` how studies, trials and packs are named. Imports only `driftline.errors`.
"""
