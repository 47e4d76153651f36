"""The composition root.

`compose` puts store, API, scheduler, launcher and recorder together, `home` keeps the files of DRIFTLINE_HOME.
"""
