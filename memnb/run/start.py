"""A page to begin a paper of one's own with."""

import re
from importlib.util import find_spec

from ..core import package_dir, replacing, root
from ..papers import notebooks


def new_paper(word: str) -> list:
    """Start a page for a paper of one's own, where memnb writes; it runs as it stands.

    It is about a die that remembers its last throw, and has the headings of the other pages. The files that were made
    come back: the page, what the paper prints, its claims, a profile.
    """
    if not re.fullmatch("[a-z][a-z0-9]{1,30}", str(word)):
        take = "take small letters and digits, as in icl"
        raise ValueError(f"'{word}' is no word for a paper: {take}")
    if find_spec(f"memnb.{word}"):
        raise ValueError(f"memnb has a part named '{word}': take another word")
    top, known = root(), notebooks()
    if word in known:
        raise ValueError(f"there is a paper '{word}': {known[word].name}")
    number = max([int(f.name[:2]) for f in known.values()], default=9) + 1
    templates = package_dir() / "templates"
    page, claims = ((templates / f).read_text("utf-8") for f in ("page.json", "claims.yaml"))
    files = {
        f"nbs/{number}_{word}.ipynb": page.replace("TITLE", word.capitalize()),
        f"data/papers/{word}/reported.csv": "where,what,value\nFigure 1,repeats,0.1667\n",
        f"data/papers/{word}/claims.yaml": claims,
        f"{word}.yaml": "# sizes of a run: memnb run WORD.yaml\n- notebook: WORD\n"
        "  parameters: {n: 600}\n",
    }
    if there := [name for name in files if (top / name).exists()]:
        raise ValueError(f"{there[0]} is there already: nothing was written")
    for name, text in files.items():
        with replacing(top / name) as part:
            part.write_text(text.replace("WORD", word), encoding="utf-8")
    return [top / name for name in files]
