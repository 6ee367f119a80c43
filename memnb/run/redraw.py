"""A figure drawn again from the tables, with settings of one's own."""

from inspect import signature
from typing import TYPE_CHECKING

from pandas import DataFrame

from ..core import did_you_mean
from ..papers import find, paper
from ..results import measured, reported, runs
from .profiles import read_yaml

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figures_of(word: str) -> dict:
    "Figures that a paper, given by its word, can draw, ours behind: name, as 'fig2' or 'x_tau' -> function of (rows, reported)"
    find(word)
    functions = getattr(paper(word), "figures", {})
    figures = {k.removeprefix("fig_"): f for k, f in functions.items()}
    return dict(
        sorted(
            figures.items(),
            key=lambda kv: (kv[0].startswith("x_"), len(kv[0]), kv[0]),
        )
    )


def redraw(
    word: str,
    name: str,
    settings: list = (),
    model: str = None,
    profile: str = None,
) -> "Figure":
    "As `figure_or_table`, but raises ValueError of a table, too"
    fig = figure_or_table(word, name, settings, model, profile)
    if not hasattr(fig, "savefig"):
        raise ValueError(
            f"{word} {name} is a table: {word}.{name}() in Python shows it"
        )
    return fig


def figure_or_table(
    word: str,
    name: str,
    settings: list = (),
    model: str = None,
    profile: str = None,
    every: DataFrame = None,
) -> "Figure | DataFrame":
    """Draw a figure of a paper, by its word, and the name of the figure, as 'fig2' or 'x_tau', from the tables.

    Settings are as 'tau=0.05'; the rows are those of a model, and of a profile, by default the largest that is there.
    `every` are all rows of the paper, by default those that were measured. A matplotlib Figure comes back,
    or a DataFrame where the paper's figure is a table. Raises ValueError for what is not known.
    """
    figures = figures_of(word)
    chosen = {}
    every = measured(word) if every is None else every
    fun = figures.get(str(name).removeprefix("fig_")) or figures.get(
        f"x_{name}"
    )
    if not fun:
        raise ValueError(
            f"{word} has no figure '{name}'{did_you_mean(name, figures)}"
        )
    takes = signature(fun).parameters
    defaults = {
        k: p.default for k, p in list(takes.items())[2:]
    }  # behind the rows and what is reported
    if signature(fun).empty in defaults.values():
        raise ValueError(f"{word} {name} is not drawn from the tables alone")
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or key not in defaults:
            form = f"settings are NAME=VALUE, not '{text}'{did_you_mean(key, defaults)}"
            raise ValueError(f"{word} {name}: {form}")
        chosen[key] = read_yaml(value)
    for column, given, values in (
        ("model", model, every.model),
        ("profile", profile, every.profile),
    ):
        if given and given not in (values := values.unique().tolist()):
            raise ValueError(
                f"no rows of the {column} '{given}'{did_you_mean(given, values)}"
            )
    rows = every[every.model == model] if model else every
    drawn = (paper(word).chosen or runs)(rows, profile=profile)
    return fun(*(drawn, reported(word))[: len(takes)], **chosen)
