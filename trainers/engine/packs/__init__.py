"""A pack: trials of one structure, trained together in one process on one device.

    pack, lane      trains round by round; trains one round of the trials that are computed together
    setting, build  what trials share; makes model and tensors from the trial
    seeds           members with seeds of their own, joined or beside each other
    sharing         which members are still the same, and need one lane only
    plan            how the pack is computed: the oracle, measured or given
    progress        everything that changes while trials train
    checkpoint      checkpoints as bytes, by member
    lines           report lines

The top of the engine: nothing else in it imports this package.
"""
