"""What is remembered, in SQLite or PostgreSQL: `store.Store` has the parts as attributes, a module for each.

`session` has what the parts share: transactions, fences, events and the clock. `schema` has the tables, `database`
opens and upgrades them, `states` says which state may follow which. Nothing else in the service knows SQL.
"""
