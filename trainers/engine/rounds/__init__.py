"""One round, as a method sees it.

    cohort          the clients of the round: runs them, takes means, counts
    round_context   what a cohort is made of: the drawn clients, and what the engine lends the method
    server_state    the state between rounds: models and memories
    client_memory   what every client keeps from round to round, for the method and for its optimizer
    central_data    the server's own loss, for mixed federated learning
    central_branch  the server's branch of a round, and the merge of both branches
    role_optimizer  an optimizer with its settings, in a role of the trial
    upload          what the server receives of what clients return
    quantised       uploads in whole numbers of few bits, with error feedback
    fragments       parts of the model that rounds exchange in turn
    counters        counts communication and gradients

Imports local, batches and oracles.
"""
