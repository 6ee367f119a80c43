"""A figure drawn again from the tables, with settings of one's own."""

from inspect import signature

from ..core import did_you_mean
from ..papers import all_offered, find, offered
from ..results import PROFILES, measured, reported
from .profiles import read_yaml


def figures_of(
    paper: str,  # word of the paper
) -> dict:  # name, as 'fig2' or 'x_tau' -> function
    "The figures that a paper can draw, those of its own behind"
    find(paper)
    found = {k.removeprefix("fig_"): f for k, f in all_offered(paper, "fig").items() if callable(f)}
    return dict(sorted(found.items(), key=lambda kv: (kv[0].startswith("x_"), len(kv[0]), kv[0])))


def _rows(paper, fun, model, profile):
    "Arguments that a figure takes: candidates in order, the second where the first shows nothing"
    every, takes = measured(paper), offered(paper, "to_draw")
    recorded = offered(paper, "all_runs") or offered(paper, "recorded")
    for name, given, there in (("model", model, every.model), ("profile", profile, every.profile)):
        known = list(dict.fromkeys(there))
        if given and given not in known:
            raise ValueError(f"no rows of the {name} '{given}'{did_you_mean(given, known)}")
    part = every[every.model == model] if model else every
    best = profile or next((p for p in PROFILES if p in set(part.profile)), part.profile.iloc[0])
    if takes:
        yield takes(fun.__name__, every, model, best)
        return
    if recorded and not model:
        yield dict(measured=recorded(profile=best))
    else:
        yield dict(measured=part[part.profile == best].reset_index(drop=True))
    yield dict(measured=part.reset_index(drop=True))


def _settings(fun, words):
    "Settings of a figure, out of words as tau=0.05"
    known = [
        k for k in signature(fun).parameters if k not in ("measured", "reported", "truth", "rows")
    ]
    out = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"write a setting as NAME=VALUE, not '{word}'")
        if name not in known:
            raise ValueError(f"{fun.__name__} has no setting '{name}'{did_you_mean(name, known)}")
        out[name] = read_yaml(value)
    return out


def redraw(
    paper: str,  # word of the paper
    name: str,  # of the figure, as 'fig2' or 'x_tau'
    words: list = (),  # settings, as 'tau=0.05'
    model: str = None,  # whose rows
    profile: str = None,  # of which profile; default: the largest that is there
):  # matplotlib figure; ValueError for what is not known
    "Draw a figure from the tables"
    import matplotlib.pyplot as plt

    known = figures_of(paper)
    fun = known.get(str(name).removeprefix("fig_")) or known.get(f"x_{name}")
    if not fun:
        raise ValueError(f"{paper} has no figure '{name}'{did_you_mean(name, known)}")
    chosen, takes, fig = _settings(fun, words), signature(fun).parameters, None
    for rows in _rows(paper, fun, model, profile):
        given = dict(reported=reported(paper)) | rows | chosen
        need = [k for k, p in takes.items() if p.default is p.empty]
        if any(k not in given for k in need):
            break
        if hasattr(fig, "savefig"):
            plt.close(fig)
        fig = fun(**{k: v for k, v in given.items() if k in takes})
        if getattr(fig, "said", {}).get("Comment") != "a placeholder":
            break
    if hasattr(fig, "savefig"):
        return fig
    raise ValueError(
        f"{paper} {name} is not drawn from the tables"
        if fig is None
        else f"{paper} {name} is a table: {paper}.{fun.__name__}() in Python shows it"
    )
