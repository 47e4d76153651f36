"""Gives every study its driver.

`loop` looks at all studies, `reconcile` decides what to do (pure), `fair_order` orders the waiting studies, `pauses`
spaces out attempts after errors.
"""
