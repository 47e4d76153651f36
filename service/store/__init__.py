"""Persistent state, in SQLite or PostgreSQL: `store.Store` has one attribute per part, each in its own module.

`session` has what the parts share: transactions, fencing, events and the clock. `schema` has the tables, `database`
opens and upgrades the database, `states` defines the allowed state changes, `stored_spec` reads a study's document. No
other package of the service uses SQL.
"""
