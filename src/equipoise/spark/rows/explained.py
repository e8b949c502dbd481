"""Base of the results of all verbs: a text for terminals and a table for notebooks."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from html import escape

Facts = list[tuple[str, str]]
"""Names of facts with what is known about each."""


class Explained(ABC):
    """Base of the objects that ``balance``, ``join``, ``profile`` and ``advise`` return."""

    @property
    @abstractmethod
    def _title(self) -> str:
        """Title of the text and of the table."""

    @abstractmethod
    def _facts(self, *, measure: bool) -> Facts:
        """Return the facts to show, in order.

        Parameters
        ----------
        measure
            Whether data may be read to know them; else only what is known so far is shown.
        """

    def explain(self) -> None:
        """Print the plan, the advice, and what was done and why. Reads the data if that was not done before."""
        facts = self._facts(measure=True)
        width = max(len(name) for name, _ in facts)
        lines = [f"== {self._title} ==", *(f"{name.ljust(width)}  {value}".rstrip() for name, value in facts)]
        print("\n".join(lines))  # noqa: T201 - as DataFrame.explain does

    def _repr_html_(self) -> str:
        """Return what is known so far as a table, for notebooks; reads nothing."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(value)}</td></tr>"
            for name, value in self._facts(measure=False)
        )
        return f"<table><caption>{escape(self._title)}</caption>{rows}</table>"


def text_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows as lines of text below a title: the first column left-aligned, the others right-aligned.

    Examples
    --------
    >>> print(text_table("Loads", ["strategy", "load"], [["hash", "1.5"]]))
    Loads
      strategy  load
      --------  ----
      hash       1.5
    """
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    first, *others = widths
    return "\n".join(
        [
            title,
            *("  ".join(["", line[0].ljust(first), *map(str.rjust, line[1:], others)]).rstrip() for line in lines),
        ]
    )
