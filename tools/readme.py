#!/usr/bin/env python3
"""Make README.md from the Markdown of nbs/index.ipynb, its links as seen from one folder above.

Where settings.ini names an address of the repository or of the site, a line below the title leads there.
"""

import configparser
import re
from collections.abc import Mapping
from pathlib import Path
from posixpath import join, normpath

import nbformat

TOP = Path(__file__).resolve().parents[1]
PAGE = "nbs/14_capacity.ipynb"  # the page that a reader is shown first


def settings() -> Mapping[str, str]:
    "The section of settings.ini"
    parser = configparser.ConfigParser()
    parser.read(TOP / "settings.ini", encoding="utf-8")
    return parser["DEFAULT"]


def addresses(settings: Mapping[str, str]) -> str:
    """A line of links: the site, one page as it looks, and Binder; '' where there is no address

    Args:
        settings: with `doc_host`, `doc_baseurl`, `git_url` and `branch`
    """
    links = []
    if host := settings.get("doc_host"):
        base = settings.get("doc_baseurl", "").strip("/")
        site = "/".join(filter(None, [host.rstrip("/"), base]))
        page = PAGE.removesuffix("ipynb") + "html"
        links.append(f"[Read it online]({site}/index.html)")
        links.append(f"[one page, as it looks]({site}/{page})")
    address = settings.get("git_url", "").rstrip("/")
    on_github = re.fullmatch(r"https://github\.com/([^/]+/[^/]+)", address)
    if on_github:
        place = f"{on_github[1]}/{settings['branch']}"
        query = "?urlpath=lab/tree/nbs/index.ipynb"
        links.append(
            f"[run it in Binder](https://mybinder.org/v2/gh/{place}{query})"
        )
    return " · ".join(links)


def readme(notebook: Path, settings: Mapping[str, str]) -> str:
    """The text of README.md

    Args:
        notebook: whose Markdown it is
        settings: for the line of links, see `addresses`
    """
    cells = nbformat.read(notebook, 4).cells
    text = "\n\n".join(cell.source.strip() for cell in cells)
    relative = r"\]\((?!\w+:|/|#)([^()\s#]+)"
    text = re.sub(relative, lambda m: f"]({normpath(join('nbs', m[1]))}", text)
    if line := addresses(settings):
        title, rest = text.split("\n\n", 1)
        text = f"{title}\n\n{line}\n\n{rest}"
    return text + "\n"


if __name__ == "__main__":
    (TOP / "README.md").write_text(
        readme(TOP / "nbs/index.ipynb", settings()), encoding="utf-8"
    )
