"""How `make lab` opens and saves notebooks.

Pages are trusted, as their code is, so that their sliders are there before anything is run. A notebook is saved cleaned
by nbdev, and as it ships where no cell was edited. So git shows what somebody has written, not that somebody has looked
at a page or run it.
"""

import subprocess
from pathlib import Path

from nbdev.clean import clean_nb

c = get_config()  # noqa: F821, of Jupyter
c.LabApp.default_url = "/lab/tree/nbs/10_tabular.ipynb"


def trust(folder):
    "Sign the pages of a folder, without which Jupyter runs no script of a stored output"
    import nbformat
    from nbformat.sign import NotebookNotary

    notary = NotebookNotary()
    for page in sorted(folder.glob("1*.ipynb")):
        notary.sign(nbformat.read(page, 4))


def shipped(path, root):
    "A notebook as git has it, or None"
    import nbformat

    at = dict(cwd=root, capture_output=True, text=True, encoding="utf-8")
    found = subprocess.run(["git", "show", f"HEAD:./{path.lstrip('/')}"], **at)
    return None if found.returncode else nbformat.reads(found.stdout, 4)


def save(model, path, contents_manager=None, **_):
    "Before a notebook is written: one of ours is cleaned, and left as it ships if its cells are as they were"
    root = contents_manager.root_dir
    ours = shipped(path, root) if model["type"] == "notebook" else None
    if not ours or not model.get("content"):
        return

    def sources(nb):
        return [(cell["cell_type"], cell["source"]) for cell in nb["cells"]]

    if sources(ours) == sources(model["content"]):
        model["content"] = ours
    else:
        clean_nb(
            model["content"], allowed_cell_metadata_keys=["tags", "jupyter"]
        )  # as settings.ini


c.ContentsManager.pre_save_hook = save
trust(Path("nbs"))
