"""How often Python's garbage collector looks for reference cycles."""

import gc


def collect_rarely() -> None:
    """Makes the garbage collector run after 10,000 new objects instead of 700.

    Ray, torch and MLflow make a million objects as they are imported, all of which stay: looking at them again and
    again takes a fifth of the time.
    """
    gc.set_threshold(10_000)


def collect_after_loading() -> None:
    """Turns the garbage collector off until `loaded` is called: objects that imports create stay anyway."""
    collect_rarely()
    gc.disable()


def loaded() -> None:
    """Turns the garbage collector on, but not for existing objects; may be called at any time."""
    gc.freeze()
    gc.enable()
