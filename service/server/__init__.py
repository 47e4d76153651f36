"""The composition root.

`compose` assembles store, API, scheduler, launcher and recorder; `home` keeps the secrets in DRIFTLINE_HOME.
"""
