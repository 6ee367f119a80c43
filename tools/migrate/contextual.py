"contextual: a row a string and epoch (losses) or a string (sweep) -> a row a number."

import pandas as pd

from memnb import contextual

RUN = ["model", "mode", "profile", "seed", "version", "when"]


def new(old):
    words = ["language", "config", "string", "part", *RUN]
    d = old.assign(lemma=(old.lemma == "True").where(old.lemma != "").astype(float))
    d = d.assign(**{c: pd.to_numeric(d[c]) for c in old if c not in words})
    parts = [
        contextual.to_long(g.drop(columns=RUN)).assign(**dict(zip(RUN, made)))
        for made, g in d.groupby(RUN, sort=False)
    ]
    return pd.concat(parts, ignore_index=True)


def old(new):
    d = contextual.from_long(new)
    return d.assign(
        epoch=d.epoch.fillna(-1),
        version=new.version[0],
        when=new.when[0],
        lemma=d.lemma.map({True: "True", False: "False"}).where(d.part == "sweep", ""),
    )
