"""Messages between clients, the API and drivers: frozen pydantic records that refuse unknown keys.

`records` has studies and trials, `driver_messages` the requests that only a driver sends, `curve_codec` the encoding of
curves, `access` tokens and quotas, `ids` the identifiers of studies, trials and packs.
"""
