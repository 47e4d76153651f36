"""One round, as a method sees it.

`cohort` is the interface to the round's clients. `server_state` holds what the server remembers, `client_states` what
every client stores. `central_data` and `central_branch` are the server's own data and its training on them, for mixed
federated learning. `role_optimizer` is an optimizer with its settings; `counters` counts communication and gradients.
"""
