"""One round, as a method sees it.

`cohort` is what a method may ask of the round's clients. `server_state` is what the server remembers, `client_states`
what every client keeps. `central_data` and `central_branch` are the server's own data and its training on them, for
mixed federated learning. `role_optimizer` is an optimizer with its settings, `counters` what was sent and computed.
"""
