"capacity: a row a training, a point of a curve, a bar of a histogram or a text -> a row a number."

import pandas as pd

from memnb import capacity

RUN = ["model", "mode", "profile", "seed", "version", "when"]


def new(old):
    words = ["part", "config", "precision", "note", "what", *RUN]
    d = old.assign(**{c: pd.to_numeric(old[c]) for c in old if c not in words})
    parts = [
        capacity.to_long(g.drop(columns=RUN)).assign(**dict(zip(RUN, made)))
        for made, g in d.groupby(RUN, sort=False)
    ]
    return pd.concat(parts, ignore_index=True)


def old(new):
    parts = [
        capacity.from_long(g.dropna(axis=1, how="all")).assign(
            profile=profile, mode="train", seed=0, version=g.version.iloc[0], when=g.when.iloc[0]
        )
        for profile, g in new.groupby("profile")
    ]
    return pd.concat(parts, ignore_index=True)
