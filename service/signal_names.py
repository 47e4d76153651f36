"""Names of the signals that end processes."""

from __future__ import annotations

import signal


def signal_name(number: int) -> str:
    """The name of a signal; Python has none for most real-time signals.

    Examples:
        >>> signal_name(9), signal_name(40)
        ('SIGKILL', 'SIG40')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
