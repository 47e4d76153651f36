"""Durations as people read them."""

from __future__ import annotations

DAY_S = 24 * 3600
"""Seconds of a day."""

_FEW_DAYS = 10


def clock_text(seconds: float) -> str:
    """Minutes and seconds, from one hour on with hours, from one day on days.

    Examples:
        >>> clock_text(95), clock_text(4000), clock_text(90_000), clock_text(144_142_591)
        ('1:35', '1:06:40', '1.0 days', '1,668 days')
    """
    if round(seconds) >= DAY_S:
        days = seconds / DAY_S
        return f"{days:.1f} days" if days < _FEW_DAYS else f"{days:,.0f} days"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
