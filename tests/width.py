"""Vectors of a given width for the programs that measure: what a processor that has no wider ones would do

`--width 32` on the command line holds both sides to AVX2, `--width 16` to SSE: the engines in C are compiled for such
processors, with as many registers as these have, and torch and oneDNN are told to take no wider vectors. To be imported
before torch.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

WIDTHS = (16, 32, 64)
# kinds of processors, with the widest vectors that these have
_KINDS = {16: "x86-64-v2", 32: "x86-64-v3"}
# what torch, oneDNN and MKL call them; without the last one torch multiplies
# matrices of float32 with AVX-512 all the same
_TORCH = {
    16: ("default", "SSE41", "SSE4_2"),
    32: ("avx2", "AVX2", "AVX2"),
}
_SWITCHES = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_ENABLE_INSTRUCTIONS",
)


def native() -> int:
    "Bytes of the vectors that the engines have here without being asked for others"
    from memnb import core

    told = subprocess.run(
        [*core.compiler(), *"-march=native -dM -E -x c".split(), os.devnull],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return 64 if "__AVX512F__" in told else 32 if "__AVX__" in told else 16


def march(width: int) -> list:
    "Flags of the compiler for vectors of so many bytes"
    if width == native():
        return ["-march=native"]
    if width in _KINDS and platform.machine() in ("x86_64", "AMD64"):
        return [f"-march={_KINDS[width]}"]
    return ["-march=native", f"-DWIDTH={width}"]


def hold(width: int) -> None:
    "Let both engines in C have vectors of so many bytes, and torch none that are wider"
    from memnb import core, engine, fourbit, nets

    rest = [f for f in engine.FLAGS if "-march" not in f]
    path = core.compiled("gpt", [*march(width), *rest, "-w"])
    trainer = engine.opened(path)
    engine.library = nets.library = lambda: trainer
    of_blocks = ["-mtune=generic", "-fopenmp", "-w"]
    path = core.compiled("fourbit", [*march(width), *fourbit.FLAGS, *of_blocks])
    blocks = fourbit.opened(path)
    fourbit._library = lambda: blocks


def processor() -> str:
    "Name of this processor, and what it has of vectors"
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    known = {
        k.strip(): v.strip()
        for k, _, v in (line.partition(":") for line in lines)
    }
    has = set(known.get("flags", known.get("Features", "")).split())
    wanted = (
        "sse4_2",
        "avx",
        "fma",
        "avx2",
        "avx512f",
        "avx512_bf16",
        "asimd",
        "sve",
    )
    name = known.get("model name", platform.machine())
    return f"{name}, {os.cpu_count()} cores: {' '.join(f for f in wanted if f in has)}"


def begin(width: int) -> None:
    "Hold both sides to a width, if it is not 0, and say what is measured"
    from memnb import engine

    if width:
        hold(width)
    used = engine.library().width()
    print(f"{processor()}; vectors of {used} bytes", file=sys.stderr)


def asked() -> int:
    "The width on the command line, which is taken off it; torch is told, and 0 is that none was asked for"
    if "--width" not in sys.argv:
        return 0
    place = sys.argv.index("--width")
    _, value = sys.argv[place : place + 2]
    del sys.argv[place : place + 2]
    width = int(value)
    if width not in WIDTHS:
        sys.exit(f"no width {width}: {', '.join(map(str, WIDTHS))}")
    os.environ.update(zip(_SWITCHES, _TORCH.get(width, ())))
    return width
