"""Which study has a driver.

`loop` looks at all studies, `reconcile` decides what to do (pure), `fair_order` says whose turn it is, `pauses` how
long to wait after errors.
"""
