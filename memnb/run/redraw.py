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


def rows_to_draw(
    word: str,
    model: str = None,
    profile: str = None,
) -> DataFrame:
    """The measured rows that figures of a paper draw.

    Raises ValueError for a model or a profile without rows.

    Args:
        word: of the paper
        model: whose rows, by default those of all
        profile: which comes first, by default the largest that is there
    """
    described = paper(word)
    categories = bool(described and described.categories)
    rows = measured(word, categories=categories)
    wanted = dict(model=model, profile=profile)
    for column, value in wanted.items():
        present = rows[column].unique().tolist()
        if value and value not in present:
            hint = did_you_mean(value, present)
            raise ValueError(f"no rows of the {column} '{value}'{hint}")
    if model:
        rows = rows[rows.model == model]
    chosen = (described and described.chosen) or runs
    return chosen(rows, profile=profile)


def redraw(
    word: str,
    name: str,
    settings: list = (),
    model: str = None,
    profile: str = None,
) -> "Figure":
    """As `figure_or_table`, of `rows_to_draw`, but raises ValueError of a table, too

    Args:
        word: of the paper
        name: of the figure
        settings: texts NAME=VALUE
        model: as of `rows_to_draw`
        profile: as of `rows_to_draw`
    """
    rows = rows_to_draw(word, model, profile)
    fig = figure_or_table(word, name, settings, rows)
    if not hasattr(fig, "savefig"):
        raise ValueError(
            f"{word} {name} is a table: {word}.{name}() in Python shows it"
        )
    return fig


def _chosen_settings(settings: list, defaults: dict, figure: str) -> dict:
    "Settings of a figure, texts NAME=VALUE, as a dict; ValueError for another form or name"
    chosen = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not defaults:
            raise ValueError(f"{figure} has no settings: leave out '{text}'")
        if not equals or key not in defaults:
            hint = did_you_mean(key, defaults)
            form = f"settings are NAME=VALUE, not '{text}'{hint}"
            raise ValueError(f"{figure}: {form}")
        if key in chosen:
            raise ValueError(f"{figure}: '{key}' is given twice")
        chosen[key] = read_yaml(value)
    return chosen


def figure_or_table(
    word: str,
    name: str,
    settings: list,
    rows: DataFrame,
) -> "Figure | DataFrame":
    """Draw a figure of a paper from the tables.

    Returns a matplotlib Figure, or a DataFrame where the paper's figure is a table. Raises ValueError for what is not known.

    Args:
        word: of the paper
        name: of the figure, as 'fig2' or 'x_tau'
        settings: texts as 'tau=0.05'
        rows: of `rows_to_draw`
    """
    figures = figures_of(word)
    short = str(name).removeprefix("fig_")
    draw = figures.get(short) or figures.get(f"x_{name}")
    if not draw:
        hint = did_you_mean(name, figures)
        raise ValueError(f"{word} has no figure '{name}'{hint}")
    takes = signature(draw).parameters
    # behind the rows and what is reported
    behind = [*takes.items()][2:]
    defaults = {key: parameter.default for key, parameter in behind}
    if signature(draw).empty in defaults.values():
        raise ValueError(f"{word} {name} is not drawn from the tables alone")
    chosen = _chosen_settings(settings, defaults, f"{word} {name}")
    given = [rows, reported(word)]
    return draw(*given[: len(takes)], **chosen)
