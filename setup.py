"Package metadata, all of it read from settings.ini."
import shutil
from configparser import ConfigParser
from pathlib import Path
from setuptools import setup
from setuptools.command.build_py import build_py

parser = ConfigParser()
parser.read('settings.ini', encoding='utf8')
cfg = parser['DEFAULT']

SUFFIX = '_requirements'
extras = {k.removesuffix(SUFFIX): cfg[k].split() for k in cfg if k.endswith(SUFFIX)}
shipped = dict(nbs='nbs/**/*.ipynb', reported='data/reported/*.csv', measured='data/measured/*.csv',
               profiles='data/profiles/*', planted='data/planted/*/*')

class Build(build_py):
    "A wheel also carries the read-only files, below memnb/_share; an editable install reads the checkout."
    def run(self):
        super().run()
        if self.editable_mode: return
        share = Path(self.build_lib)/cfg['lib_path']/'_share'
        shutil.rmtree(share, ignore_errors=True)  # a renamed notebook must not survive in build/
        for kind, pattern in shipped.items():
            below = Path(pattern.split('*')[0])
            for file in sorted(Path().glob(pattern)):
                target = share/kind/file.relative_to(below)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target)

setup(
    name=cfg['lib_name'], version=cfg['version'], description=cfg['description'],
    author=cfg['author'], author_email=cfg['author_email'], url=cfg['git_url'],
    keywords=cfg['keywords'].split(), license='Apache-2.0',
    long_description=Path('README.md').read_text(encoding='utf8') if Path('README.md').exists() else '',
    long_description_content_type='text/markdown',
    python_requires='>=' + cfg['min_python'],
    packages=[cfg['lib_path']], include_package_data=False, package_data={cfg['lib_path']: ['*.c', '*.css', '*.js']},
    cmdclass={'build_py': Build},
    install_requires=cfg['requirements'].split(), extras_require=extras,
    entry_points={'console_scripts': cfg['console_scripts'].split(),
                  'nbdev': [f"{cfg['lib_name']}={cfg['lib_path']}._modidx:d"]},
)
