"What pyproject.toml cannot say: a wheel carries notebooks and numbers along, and a build leaves no folder behind."

import atexit, shutil, tempfile
from pathlib import Path
from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = dict(
    nbs="nbs/**/*.ipynb",
    figures="figures/*.svg",
    papers="data/papers/**/*",
    profiles="data/profiles/*",
    planted="data/planted/*/*",
    answers="data/answers/*",
)


class Build(build_py):
    "Copies the files that `memnb.core.share_dir` finds below memnb/_share; an editable install reads the checkout"

    def run(self):
        super().run()
        if self.editable_mode:
            return
        for kind, pattern in SHIPPED.items():
            below = Path(pattern.split("*")[0])
            for file in sorted(Path().glob(pattern)):
                hidden = any(part.startswith(".") for part in file.parts)  # checkpoints of Jupyter
                if hidden or not file.is_file():
                    continue
                target = Path(self.build_lib) / "memnb/_share" / kind / file.relative_to(below)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target)


away = tempfile.mkdtemp(prefix="memnb-build-")
atexit.register(shutil.rmtree, away, ignore_errors=True)
setup(
    cmdclass=dict(build_py=Build),
    options=dict(build=dict(build_base=away), egg_info=dict(egg_base=away)),
)
