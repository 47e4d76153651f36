"""A comparison of two labels, which a notebook shows as sentences and tables."""

from __future__ import annotations

from html import escape
from typing import Any

from driftline.results.headline import efforts_text
from driftline.results.show.escaped_text import escaped
from driftline.study.notebook import html_table, html_title


class ComparedLabels(dict[str, Any]):
    """What `compare` found; a plain dict, see `driftline.results.comparison.compare`."""

    def _repr_html_(self) -> str:
        """HTML for notebooks: the sentence, the sample, and the difference after k trials."""
        a, b = escaped(self["a"]), escaped(self["b"])
        counts = [[str(len(self["claims"][name]["pairs"])) for name in ("methods", "configurations")]]
        parts = [html_title(f"{a} or {b}", ""), f"<p>{escape(escaped(self['why']))}</p>"]
        parts.append(html_table(("searches", "seeds"), counts))
        if self["efforts"]:
            rows = [tuple(text.split(": ", 1)) for text in efforts_text(a, b, self["efforts"])]
            parts.append(html_table(("tuning", "difference of areas"), rows))
        return "".join(parts)
