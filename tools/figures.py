"""Draw the figures that ship, figures/*.png, anew from the recorded rows: nothing else writes them.

python tools/figures.py [PAPER ...]
"""

import sys

import matplotlib
import matplotlib.pyplot as plt

from memnb.core import replacing, root
from memnb.papers import notebooks
from memnb.plots import to_png
from memnb.run.redraw import redraw

matplotlib.use("agg")
for word in sys.argv[1:] or notebooks():
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
