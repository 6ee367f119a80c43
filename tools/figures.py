"""The figures that ship, drawn from the recorded rows: as pictures, and as text that a test compares.

python tools/figures.py [PAPER ...]         writes figures/*.png anew; nothing else writes them
python tools/figures.py --text [PAPER ...]  writes tests/figures/PAPER.txt anew: axes, labels, legends, first points
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.category import StrCategoryLocator
from matplotlib.collections import Collection, LineCollection
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from memnb.core import replacing, root
from memnb.papers import notebooks
from memnb.plots import to_png
from memnb.run.redraw import (
    figure_or_table,
    figures_of,
    redraw,
    rows_to_draw,
)

TEXTS = Path(__file__).resolve().parents[1] / "tests/figures"
FIRST = (
    3  # points of a series that are written out; the mean stands for the others
)
WORDS = 12  # texts of an axes that are written out


def number(value: float) -> str:
    "Three significant digits"
    return f"{value:.3g}"


def numbers(values) -> str:
    "A point as `(1, 0.5)`"
    return f"({', '.join(map(number, values))})"


def colour(rgba) -> str:
    "The hex colour of an artist; `many` where its parts differ, `-` where it has none"
    colours = np.atleast_1d(np.asarray(rgba, dtype=object))
    if (
        colours.dtype == object
        and colours.ndim == 1
        and isinstance(rgba, str | tuple)
    ):
        return to_hex(rgba) if rgba != "none" else "-"
    hexes = {
        to_hex(c) for c in np.atleast_2d(np.asarray(rgba, float)) if len(c)
    }
    return hexes.pop() if len(hexes) == 1 else "many" if hexes else "-"


def ends(collections: list[Collection]) -> list:
    "First and last point of each segment, as `(x, low, x, high)`"
    segments = [s for c in collections for s in c.get_segments() if len(s)]
    return [np.concatenate([s[0], s[-1]]) for s in segments]


def corners(patch) -> np.ndarray:
    "The box around a patch, as `(left, bottom, right, top)`"
    box = patch.get_path().get_extents(patch.get_patch_transform())
    return np.array([box.x0, box.y0, box.x1, box.y1])


def of_containers(ax: Axes) -> Iterator[tuple]:
    "Bars and points with error bars: (kind, label, colour, rows of numbers, artists that are told herewith)"
    for container in ax.containers:
        label = container.get_label() or ""
        if isinstance(container, BarContainer):
            bars = list(container.patches)
            tone = (
                colour(np.array([b.get_facecolor() for b in bars]))
                if bars
                else "-"
            )
            yield "bars", label, tone, [corners(b) for b in bars], bars
        elif isinstance(container, ErrorbarContainer):
            line, caps, arms = container.lines
            if line is not None:
                tone = colour(line.get_color())
                yield (
                    f"points {line.get_marker()}",
                    label,
                    tone,
                    line.get_xydata(),
                    [line],
                )
            tone = colour(arms[0].get_color()) if arms else "-"
            yield "error bars", label, tone, ends(arms), [*caps, *arms]


def of_collections(ax: Axes) -> Iterator[tuple]:
    "Scattered points, segments, bands and heat maps: (kind, label, colour, rows of numbers, artists)"
    for collection in ax.collections:
        label = str(collection.get_label())
        if isinstance(collection, LineCollection):
            tone = colour(collection.get_color())
            yield "segments", label, tone, ends([collection]), [collection]
        elif len(collection.get_offsets()) > 1 or not collection.get_paths():
            tone = colour(collection.get_facecolor())
            yield "points", label, tone, collection.get_offsets(), [collection]
        elif collection.get_array() is not None:
            values = np.ma.filled(collection.get_array(), np.nan).reshape(-1, 1)
            yield (
                f"cells {collection.get_cmap().name}",
                label,
                "many",
                values,
                [collection],
            )
        else:
            tone = colour(collection.get_facecolor())
            vertices = [v for p in collection.get_paths() for v in p.vertices]
            yield "band", label, tone, vertices, [collection]


def series(ax: Axes) -> Iterator[tuple]:
    "What is drawn on an axes: (kind, label, colour, rows of numbers)"
    told = []
    for *drawn, artists in of_containers(ax):
        told += artists
        yield *drawn, artists
    for line in ax.lines:
        marker = line.get_marker()
        kind = "line" if marker in ("None", "", None) else f"points {marker}"
        if line.get_linestyle() not in ("None", "", "-", " "):
            kind += f" {line.get_linestyle()}"
        yield (
            kind,
            str(line.get_label()),
            colour(line.get_color()),
            line.get_xydata(),
            [line],
        )
    for patch in ax.patches:
        tone = colour(patch.get_facecolor())
        yield (
            type(patch).__name__.lower(),
            str(patch.get_label()),
            tone,
            [corners(patch)],
            [patch],
        )
    yield from of_collections(ax)
    for image in ax.images:
        values = np.ma.filled(image.get_array(), np.nan).reshape(-1, 1)
        yield f"image {image.get_cmap().name}", "", "many", values, [image]


def of_series(ax: Axes) -> Iterator[str]:
    "A line for each labelled series, and for all that are alike and have no label"
    groups, told = {}, set()
    for kind, label, tone, rows, artists in series(ax):
        if told.intersection(map(id, artists)):
            continue
        told.update(map(id, artists))
        name = "" if label.startswith("_") else label
        groups.setdefault((kind, name, tone), []).append(
            np.asarray(rows, float)
        )
    for (kind, name, tone), parts in groups.items():
        parts = [p for p in parts if len(p)]
        if not parts:
            continue
        rows = np.concatenate(parts)
        known = rows[np.isfinite(rows).all(axis=1)]
        mean = numbers(known.mean(axis=0)) if len(known) else "-"
        first = " ".join(map(numbers, rows[:FIRST]))
        yield f"    {kind} {tone} {name!r}: {len(rows)} in {len(parts)}, mean {mean}, first {first}"


def ticks(axis) -> str:
    "What is written at the ticks of an axis whose ticks were chosen; empty where matplotlib chose them"
    if not isinstance(
        axis.get_major_locator(), FixedLocator | StrCategoryLocator
    ):
        return ""
    words = axis.get_major_formatter().format_ticks(axis.get_majorticklocs())
    return " | ".join(map(str, words)) if any(words) else ""


def of_axes(ax: Axes) -> Iterator[str]:
    "Title, labels, scales, limits and legend of an axes, and what is drawn on it"
    for side, title in (("", ax.get_title()), ("left ", ax.get_title("left"))):
        if title:
            yield f"  {side}title {title!r}"
    for axis in (ax.xaxis, ax.yaxis):
        name = axis.axis_name
        low, high = axis.get_view_interval()
        yield f"  {name} {axis.get_label_text()!r} {axis.get_scale()} {numbers((low, high))}"
        if words := ticks(axis):
            yield f"    ticks {words!r}"
    if legend := ax.get_legend():
        names = [
            legend.get_title().get_text(),
            *(t.get_text() for t in legend.get_texts()),
        ]
        yield f"    legend {' | '.join(names)!r}"
    yield from of_series(ax)
    if words := [t.get_text() for t in ax.texts if t.get_text()]:
        yield f"    texts {len(words)}: {' | '.join(words[:WORDS])!r}"


def described(fig: Figure) -> str:
    "A figure as text: what stands in its title and foot, and each of its axes"
    said = getattr(fig, "said", {})
    lines = [
        f"  said {said[part]!r}" for part in ("Title", "Foot") if said.get(part)
    ]
    for legend in fig.legends:
        lines.append(
            f"  legend {' | '.join(t.get_text() for t in legend.get_texts())!r}"
        )
    for number_of, ax in enumerate(fig.axes, 1):
        lines += [f" axes {number_of}", *of_axes(ax)]
    return "\n".join(lines)


def described_table(table: pd.DataFrame) -> str:
    "A figure that is a table: its columns and first rows"
    lines = [
        f"  table of {len(table)} rows: {' | '.join(map(str, table.columns))!r}"
    ]
    for row in table.head(FIRST).itertuples():
        lines.append(
            "    " + " | ".join(str(cell).replace("\n", " ") for cell in row)
        )
    return "\n".join(lines)


def text_of(word: str) -> str:
    "All figures of a paper as text; ValueError of a figure that cannot be drawn from the recorded rows"
    parts = []
    rows = rows_to_draw(word)
    for name in figures_of(word):
        fig = figure_or_table(word, name, [], rows)
        is_table = isinstance(fig, pd.DataFrame)
        parts.append(
            f"{name}\n{described_table(fig) if is_table else described(fig)}\n"
        )
        if not is_table:
            plt.close(fig)
    return "\n".join(parts)


_NUMBER = re.compile(r"(?<![\w#.])-?\d+(?:\.\d+)?(?:e[-+]\d+)?(?![\w.])")


def alike(one: str, other: str) -> bool:
    "Are two lines equal but for the last digit of their numbers, in which two machines may differ?"
    if _NUMBER.split(one) != _NUMBER.split(other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(
        np.isclose(float(a), float(b), rtol=0.011, atol=1e-9) for a, b in pairs
    )


def differences(was: str, now: str) -> list[str]:
    "Lines of two texts of figures that differ, each behind the name of its figure"
    figures = [
        dict(f.split("\n", 1) for f in text.strip().split("\n\n"))
        for text in (was, now)
    ]
    before, after = figures
    found = [f"{name}: no longer drawn" for name in before if name not in after]
    found += [f"{name}: new" for name in after if name not in before]
    for name in before:
        if name not in after:
            continue
        old, new = before[name].splitlines(), after[name].splitlines()
        for n in range(max(len(old), len(new))):
            a, b = (lines[n] if n < len(lines) else "" for lines in (old, new))
            if not alike(a, b):
                found.append(f"{name}: {a.strip()}  ->  {b.strip()}")
    return found


def write_texts(words: list[str]):
    "Write tests/figures/PAPER.txt of some papers"
    TEXTS.mkdir(exist_ok=True)
    for word in words:
        (TEXTS / f"{word}.txt").write_text(text_of(word), encoding="utf8")


def write_pictures(words: list[str]):
    "Write figures/PAPER_*.png anew, those that are drawn from the recorded rows"
    for word in words:
        for file in sorted((root() / "figures").glob(f"{word}_*.png")):
            name = file.stem.removeprefix(f"{word}_")
            try:
                fig = redraw(word, name)
            except ValueError as e:
                print(f"{file.name} stays: {e}")
                continue
            with replacing(file) as part:
                to_png(fig, part)
            plt.close(fig)


if __name__ == "__main__":
    matplotlib.use("agg")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "papers", nargs="*", help="words of papers, by default all"
    )
    parser.add_argument(
        "--text", action="store_true", help="write tests/figures/*.txt instead"
    )
    given = parser.parse_args()
    (write_texts if given.text else write_pictures)(
        given.papers or list(notebooks())
    )
