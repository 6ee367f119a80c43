"""Write an adapter in a third of its size, as those in data/planted; `hf.read_adapter` reads it.

python tools/pack.py FOLDER ...
"""

import sys
import zlib
from pathlib import Path

import torch
from safetensors.torch import save_file

from memnb.core import replacing
from memnb.hf import ADAPTER, read_adapter


def pack_adapter(
    folder: Path,  # of an adapter
    step: float = 0.125,  # to which its vectors are rounded, in units of their root mean square
):
    "Round the two factors of each matrix, balanced by its singular values, to bytes; compress them"
    whole, out, steps = read_adapter(folder), {}, {}
    for a in (n for n in whole if "lora_A" in n):
        b = a.replace("lora_A", "lora_B")
        (qb, rb), (qa, ra) = (
            torch.linalg.qr(x.double()) for x in (whole[b], whole[a].T)
        )
        u, s, vt = torch.linalg.svd(rb @ ra.T)
        for name, vectors in (
            (a, (qa @ vt.T) * s.sqrt()),
            (b, (qb @ u) * s.sqrt()),
        ):
            by = step * vectors.square().mean(0).sqrt().clamp(min=1e-12)
            q = (
                (vectors / by)
                .round()
                .clamp(-127, 127)
                .to(torch.int8)
                .T.contiguous()
            )
            out[name] = torch.tensor(
                [*zlib.compress(q.numpy().tobytes(), 9)], dtype=torch.uint8
            )
            steps[name] = by.float()
    out["steps"] = torch.stack([steps[name] for name in sorted(steps)])
    with replacing(Path(folder) / ADAPTER) as part:
        save_file(out, part)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        pack_adapter(Path(name))
