"""A table or figure of a paper: its claims, its parameters, and how it is run and drawn again."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from equipoise.errors import InvalidArgumentError
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale = Literal["tiny", "quick", "full"]
"""How much is run: ``tiny`` for tests, ``quick`` within minutes, ``full`` as large as one machine allows."""

SCALES: tuple[Scale, ...] = ("tiny", "quick", "full")
"""All of them, the smallest first."""


class Setting(NamedTuple):
    """A parameter: as the paper has it, and as it is run at each scale."""

    paper: str
    tiny: Any
    quick: Any
    full: Any

    def at(self, scale: Scale) -> Any:
        """Value at a scale."""
        return getattr(self, scale)


def as_in_paper(value: Any, *, tiny: Any = None) -> Setting:
    """A parameter that is run as the paper has it; only tests take ``tiny``."""
    return Setting(in_words(value), value if tiny is None else tiny, value, value)


def in_words(value: Any) -> str:
    """A parameter's value in words.

    Examples
    --------
    >>> in_words((5, 10, 50)), in_words(3_000_000), in_words({"WP": 0.0932})
    ('5, 10, 50', '3,000,000', 'WP 0.0932')
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {in_words(each)}" for name, each in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(in_words(each) for each in value)
    return f"{value:,}" if isinstance(value, int) else str(value)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper about its table or figure, and the check of our numbers against it.

    Parameters
    ----------
    says
        The claim in short.
    paper
        The numbers or the shape that the paper gives for it.
    check
        Looks at our numbers.
    looked_into
        What was found on looking into it where it does not hold as printed; shown only then.
    """

    says: str
    paper: str
    check: Callable[[Rows], Finding]
    looked_into: str = ""


@dataclass(frozen=True)
class Exhibit:
    """One table or figure of a paper.

    Parameters
    ----------
    name
        Paper and table or figure, such as ``"pkg/table-2"``.
    title
        What it shows.
    section
        Where it is in the paper.
    settings
        Its parameters by name.
    claims
        What the paper says of it.
    run
        Makes our numbers; it reads its parameters from the context.
    draw
        Draws them.
    note
        What is done otherwise than in the paper, and what had to be assumed.
    files
        Recorded data that it can use where ``--data`` has them.
    spark
        Whether it runs on Spark.
    """

    name: str
    title: str
    section: str
    settings: Mapping[str, Setting]
    claims: tuple[Claim, ...]
    run: Callable[[Context], Iterable[Row]]
    draw: Callable[[Rows], "Figure"]
    note: str = ""
    files: tuple[str, ...] = ()
    spark: bool = False

    def __post_init__(self) -> None:
        if self.name.count("/") != 1 or not self.claims:
            raise InvalidArgumentError(f"{self.name!r} must be named paper/figure and make at least one claim")

    @property
    def paper(self) -> str:
        """Short name of the paper."""
        return self.name.split("/")[0]

    @property
    def module(self) -> str:
        """Module that it is run by."""
        return self.run.__module__

    def parameters(self, scale: Scale) -> dict[str, Any]:
        """Values of all settings at a scale."""
        return {name: setting.at(scale) for name, setting in self.settings.items()}
