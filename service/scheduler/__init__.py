"""Gives every study its driver.

`loop` looks at all studies, `reconcile` decides what to do (pure), `fair_order` orders the waiting studies, `gpu_hours`
pauses those of projects that have used theirs up. `cleanup` deletes what remains of deleted studies.
"""
