"""Speed of the store beside the plain one of the first version, which checked nothing.

python tests/bench_store.py [rows, default 200000]
"""

import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time

from memnb.store import Store, key_of

ASK = dict(request="generate", max_tokens=5)


def prompt(i):
    return f"{i:08d} " + "a row of a table, " * 55


def model(i):
    return "one of many" if i % 200 == 7 else "the other"


class Plain:
    "The first version: a table, a lock of its own, no checksum"

    def __init__(self, path):
        self.db = sqlite3.connect(path, timeout=60, isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=NORMAL")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS answers "
            "(key TEXT PRIMARY KEY, model TEXT, settings TEXT, prompt TEXT, answer TEXT)"
        )

    def put(self, model, settings, prompt, answer):
        def dump(x):
            return json.dumps(x, sort_keys=True, ensure_ascii=False)

        row = (
            key_of(model, settings, prompt),
            model,
            dump(settings),
            dump(prompt),
            dump(answer),
        )
        self.db.execute("INSERT OR IGNORE INTO answers VALUES (?,?,?,?,?)", row)

    def get(self, keys):
        found = {}
        for i in range(0, len(keys), 500):
            part = keys[i : i + 500]
            q = f"SELECT key, answer FROM answers WHERE key IN ({','.join('?' * len(part))})"
            found.update(self.db.execute(q, part).fetchall())
        return {k: json.loads(v) for k, v in found.items()}

    def export(self, path, model=""):
        q = "SELECT key, model, settings, prompt, answer FROM answers" + (
            " WHERE model=?" if model else ""
        )
        rows = self.db.execute(
            q + " ORDER BY key", (model,) if model else ()
        ).fetchall()
        with open(path, "w", encoding="utf-8") as f:
            for k, m, *rest in rows:
                s, p, a = map(json.loads, rest)
                f.write(
                    json.dumps(
                        dict(key=k, model=m, settings=s, prompt=p, answer=a),
                        ensure_ascii=False,
                    )
                    + "\n"
                )
        return len(rows)

    def __len__(self):
        return self.db.execute("SELECT COUNT(*) FROM answers").fetchone()[0]


def seconds(f):
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def job(kind, folder, n):
    "One kind of store with n rows: a dict of seconds, rates and megabytes"
    cls, at, out = (
        dict(plain=Plain, store=Store)[kind],
        f"{folder}/{kind}.sqlite",
        {},
    )
    s = cls(at)

    def fill(a, b):
        for i in range(a, b):
            s.put(model(i), ASK, prompt(i), f"answer {i}")

    out["first 5000 puts, /s"] = 5000 / seconds(lambda: fill(0, 5000))
    s.db.execute("PRAGMA synchronous=OFF")
    fill(5000, n)
    s.db.execute("PRAGMA synchronous=NORMAL")
    out["5000 puts into the full store, /s"] = 5000 / seconds(
        lambda: fill(n, n + 5000)
    )
    step = max(1, n // 2000)
    keys = [key_of(model(i), ASK, prompt(i)) for i in range(0, n, step)][:2000]
    out["get of 2000 keys, s"] = min(
        seconds(lambda: s.get(keys)) for _ in range(5)
    )
    out["open, ms"] = 1000 * min(seconds(lambda: cls(at)) for _ in range(5))
    out["len, ms"] = 1000 * min(seconds(lambda: len(s)) for _ in range(3))
    out["export of one model (1 row in 200), s"] = min(
        seconds(lambda: s.export(f"{at}.one", "one of many")) for _ in range(2)
    )

    def memory():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    before = memory()
    out["export of all, s"] = seconds(lambda: s.export(f"{at}.all"))
    out["export of all, MB more memory"] = memory() - before
    if kind == "store":
        other = Store(f"{folder}/other.sqlite")
        out["load of all, s"] = seconds(lambda: other.load(f"{at}.all"))
        out["check, s"] = seconds(s.check)
        out["models, s"] = seconds(s.models)
        with open(at, "r+b") as f:
            f.seek(4096 * 40)
            f.write(bytes(4096))
        out["mending, s"] = seconds(lambda: s.check()) - out["check, s"]
    return out


def upgrade(folder):
    "Seconds of the first opening of a store of the first version"
    return {
        "upgrade of the plain one, s": seconds(
            lambda: Store(f"{folder}/plain.sqlite")
        )
    }


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(
            json.dumps(
                upgrade(sys.argv[2])
                if sys.argv[1] == "upgrade"
                else job(sys.argv[1], sys.argv[2], int(sys.argv[3]))
            )
        )
    else:
        n = int((sys.argv + [200000])[1])
        with tempfile.TemporaryDirectory() as d:

            def run(*args):
                return json.loads(
                    subprocess.run(
                        [sys.executable, __file__, *map(str, args)],
                        check=True,
                        text=True,
                        capture_output=True,
                    ).stdout
                )

            a, b = run("plain", d, n), run("store", d, n)
            b |= run("upgrade", d)
        print(f"| {n:,} rows | plain | store | ratio |\n|---|---|---|---|")
        for k, v in b.items():
            ratio = f"{v / a[k]:.2f}" if k in a else ""
            print(
                f"| {k} | {a.get(k, float('nan')):,.3g} | {v:,.3g} | {ratio} |".replace(
                    "nan", ""
                )
            )
