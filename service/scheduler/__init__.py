"""Gives every study its driver.

`loop` looks at all studies, `reconcile` decides what to do (pure), `fair_order` orders the waiting studies, `gpu_hours`
pauses studies of projects that have used up their GPU-hours. `cleanup` deletes what remains of deleted studies.
"""
