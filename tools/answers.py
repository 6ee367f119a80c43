"""Ask the models anew, in minutes, and write the answers that ship to data/answers.

python tools/answers.py [--workers N] [PROFILE]
"""

import argparse
import json
import os
import re
import tempfile
from pathlib import Path

from memnb.core import data_dir, replacing, sha256, share_dir
from memnb.results import code_version
from memnb.run.batch import batch
from memnb.run.profiles import profile_file
from memnb.run.replay import ORIGIN, ident_here, origins
from memnb.store import Store


def write_answers(
    store: Store,  # whose answers
    folder: Path,  # as data/answers
    word: str = "pages",  # with which the files' names begin; files of other words stay
    code: str = None,  # version of memnb that asked; default: this one
) -> dict:  # file name -> what `origin.json` says of it
    "Write the answers of the packaged model and of what ships planted in it, a file each"
    there = {m["model"] for m in store.models()}
    names = [
        "smollm2",
        *(
            f"planted:{d.name}"
            for d in sorted(share_dir("planted").iterdir())
            if d.is_dir()
        ),
    ]
    found = {
        name: o
        for name, o in origins(folder).items()
        if not name.startswith(f"{word}-")
    }
    mine = {}
    for ident in map(ident_here, names):
        if ident not in there:
            continue
        name = f"{word}-{re.sub(r'[^a-z0-9-]', '_', ident.partition('@')[0])}.jsonl.gz"
        n = store.export(Path(folder) / name, ident)
        mine[name] = dict(
            model=ident,
            answers=n,
            code=code or code_version(),
            sha256=sha256(Path(folder) / name),
        )
    with replacing(Path(folder) / ORIGIN) as part:
        part.write_text(
            json.dumps(found | mine, indent=1, sort_keys=True) + "\n",
            encoding="utf-8",
        )
    return mine


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", nargs="?", default="replay")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        os.environ["MEMNB_STORE"] = f"{tmp}/answers.sqlite"
        done = batch(
            given.profile, out=Path(tmp) / "runs", workers=given.workers
        )
        if wrong := [o for o in done if o.status != "done"]:
            raise SystemExit(
                f"{wrong[0].name} {wrong[0].status}: nothing was written"
            )
        word = profile_file(given.profile).stem.replace("replay", "pages")
        for name, o in write_answers(
            Store(), data_dir() / "answers", word
        ).items():
            print(name, o["answers"])
