"""What is remembered, in SQLite or PostgreSQL: `store.Store` is the whole, the other modules its parts.

`schema` has the tables, `database` opens and upgrades them, `core` has transactions, fences and the clock. `leases` say
which driver has a study, `states` which state may follow which. Nothing else in the service knows SQL.
"""
