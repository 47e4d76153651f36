"""How often Python looks for objects that refer to each other in circles."""

import gc


def collect_rarely() -> None:
    """Lets this process look after 10,000 new objects instead of 700.

    Ray, torch and MLflow make a million objects as they are imported, all of which stay: looking at them again and
    again takes a fifth of the time.
    """
    gc.set_threshold(10_000)


def collect_after_loading() -> None:
    """Lets this process look only after `loaded`: what its modules make as they are imported stays anyway."""
    collect_rarely()
    gc.disable()


def loaded() -> None:
    """Lets this process look again, but never at what was made so far; harmless at any time."""
    gc.freeze()
    gc.enable()
