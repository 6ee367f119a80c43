"Families of models: what works has the library's numbers and answers, what does not is refused as it is loaded."

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as t
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from memnb import hf, lm
from memnb.run import identity

WORDS = [
    "<s>",
    "<unk>",
    "</s>",
    *"abcdefghijklmnopqrstuvwxyz",
    *(f"w{i}" for i in range(40)),
]
SIZE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
PLAIN = SIZE | dict(
    intermediate_size=64, num_key_value_heads=2, max_position_embeddings=128
)
KINDS = dict(
    gpt2=(
        t.GPT2Config,
        t.GPT2LMHeadModel,
        dict(n_embd=32, n_layer=2, n_head=4, n_positions=128),
    ),
    neox=(
        t.GPTNeoXConfig,
        t.GPTNeoXForCausalLM,
        SIZE | dict(intermediate_size=64),
    ),
    opt=(
        t.OPTConfig,
        t.OPTForCausalLM,
        SIZE | dict(ffn_dim=64, word_embed_proj_dim=32),
    ),
    llama=(t.LlamaConfig, t.LlamaForCausalLM, PLAIN),
    qwen2=(t.Qwen2Config, t.Qwen2ForCausalLM, PLAIN),
    window=(
        t.MistralConfig,
        t.MistralForCausalLM,
        PLAIN | dict(sliding_window=6),
    ),
    gemma2=(
        t.Gemma2Config,
        t.Gemma2ForCausalLM,
        PLAIN | dict(sliding_window=6, head_dim=8),
    ),
    gemma3=(
        t.Gemma3TextConfig,
        t.Gemma3ForCausalLM,
        PLAIN | dict(sliding_window=6, head_dim=8),
    ),
    bloom=(
        t.BloomConfig,
        t.BloomForCausalLM,
        dict(hidden_size=32, n_layer=2, n_head=4),
    ),
    mamba=(
        t.MambaConfig,
        t.MambaForCausalLM,
        dict(hidden_size=32, num_hidden_layers=2),
    ),
)
TREES = {
    "gpt2",
    "neox",
    "opt",
    "llama",
    "qwen2",
}  # prompts that begin alike are read once


def tokenizer(folder, words=WORDS, end=False, **more):
    "A tokenizer of words, written to a folder"
    tok = Tokenizer(
        models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>")
    )
    tok.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if end:
        tok.post_processor = processors.TemplateProcessing(
            single="$A </s>", special_tokens=[("</s>", 2)]
        )
    special = dict(bos_token="<s>", unk_token="<unk>", eos_token="</s>")
    made = t.PreTrainedTokenizerFast(tokenizer_object=tok, **special, **more)
    made.save_pretrained(folder)
    return made


def network(folder, config, kind, size):
    "A network of random weights, written to a folder"
    torch.manual_seed(0)
    ends = dict(bos_token_id=0, eos_token_id=2, pad_token_id=2)
    net = kind(config(vocab_size=len(WORDS), **ends, **size)).eval()
    with torch.no_grad():
        for p in net.parameters():
            if p.ndim > 1:
                p.normal_(0, 0.15)
    net.save_pretrained(folder)
    return kind.from_pretrained(folder).eval()


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_library_says(kind, tmp_path):
    net = network(tmp_path / kind, *KINDS[kind])
    tokenizer(tmp_path / kind)
    m = lm.load(f"hf:{tmp_path / kind}", store=lm.Store(tmp_path / "s.sqlite"))
    tok = m.tok  # of the family's own class
    start = " ".join(WORDS[3:23])
    prompts = [f"{start} {end}" for end in ("a b", "a c d", "z", "")] + [
        "q r s",
        "e f",
        "q r s",
    ]
    assert (m.name, m.shares) == (f"hf:{kind}", kind in TREES)
    assert m.n_params == net.num_parameters()

    def after(p, c=""):
        a, b = tok(p).input_ids, tok(c).input_ids
        with torch.inference_mode():
            lp = net(torch.tensor([a + b])).logits[0].float().log_softmax(-1)
        return a, b, lp

    pairs = [(p, c) for p in prompts for c in ("g", "h i", "h w3 w4")]
    for (p, c), got in zip(pairs, m.logprobs(*map(list, zip(*pairs)))):
        a, b, lp = after(p, c)
        np.testing.assert_allclose(
            got, [lp[len(a) - 1 + i, w] for i, w in enumerate(b)], atol=2e-4
        )
    for p, got in zip(prompts, m.next_logits(prompts)):
        want = after(p)[2][-1]
        np.testing.assert_allclose(
            torch.tensor(got).log_softmax(-1), want, atol=2e-4
        )
    ((lps, hits),) = m.tokens([start])
    _, b, lp = after("<s>", start)
    np.testing.assert_allclose(
        lps, [lp[i, w] for i, w in enumerate(b)], atol=2e-4
    )
    assert hits == [lp[i].argmax().item() == w for i, w in enumerate(b)]
    for p, said in zip(prompts, m.generate(prompts, max_tokens=8)):
        ids = torch.tensor([tok(p).input_ids])
        with torch.inference_mode():
            out = net.generate(ids, max_new_tokens=8, do_sample=False)[
                0, ids.shape[1] :
            ]
        assert said == tok.decode(out, skip_special_tokens=True)
    for rows, first, tails in m.begin(
        [tok(p).input_ids for p in prompts], [2] * len(prompts)
    ):
        ends, one = tails.ends, m.step(tails, [8] * len(rows))
        tails.ends = (
            ends  # an audit goes back to here, and on with other tokens
        )
        for got, c in (
            (first, ""),
            (one, WORDS[8]),
            (m.step(tails, [9] * len(rows)), WORDS[9]),
        ):
            want = torch.stack([after(prompts[i], c)[2][-1] for i in rows])
            np.testing.assert_allclose(got.log_softmax(-1), want, atol=2e-4)
    drawn = m.generate(prompts, max_tokens=4, temperature=1.0, seed=0)
    again = lm.load(
        f"hf:{tmp_path / kind}", store=lm.Store(tmp_path / "o.sqlite")
    )
    assert drawn[:2] == again.generate(
        prompts[:2], max_tokens=4, temperature=1.0, seed=0
    )


BLANKS = SIZE | dict(intermediate_size=64)
REFUSED = dict(
    bert=(t.BertConfig, t.BertForMaskedLM, BLANKS),
    roberta=(t.RobertaConfig, t.RobertaForMaskedLM, BLANKS),
    electra=(
        t.ElectraConfig,
        t.ElectraForMaskedLM,
        BLANKS | dict(embedding_size=32),
    ),
    head=(t.BertConfig, t.BertLMHeadModel, BLANKS),
    t5=(
        t.T5Config,
        t.T5ForConditionalGeneration,
        dict(d_model=32, d_ff=64, num_layers=2),
    ),
    bart=(
        t.BartConfig,
        t.BartForConditionalGeneration,
        dict(
            d_model=32,
            encoder_layers=1,
            decoder_layers=1,
            encoder_ffn_dim=32,
            decoder_ffn_dim=32,
        ),
    ),
)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_does_not_read_forward_is_refused(kind, tmp_path):
    network(tmp_path, *REFUSED[kind]), tokenizer(tmp_path)
    with pytest.raises(ValueError, match="models that read forward") as e:
        lm.load(f"hf:{tmp_path}")
    assert "\n" not in str(e.value) and str(tmp_path.parent) not in str(e.value)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "mamba"])
def test_a_tokenizer_that_is_missing_or_another_one(kind, tmp_path):
    network(tmp_path, *KINDS[kind])
    with pytest.raises(ValueError, match="has no tokenizer"):
        lm.load(f"hf:{tmp_path}")
    tok = tokenizer(tmp_path, [*WORDS, "beyond"])
    with pytest.raises(ValueError, match="'beyond' as number 69"):
        lm.load(f"hf:{tmp_path}")
    tok = tokenizer(tmp_path)
    tok.add_tokens(["<image>"], special_tokens=True)  # which no text has
    tok.save_pretrained(tmp_path)
    m = lm.load(f"hf:{tmp_path}")
    assert m.encode("a b") == [3, 4]
    with pytest.raises(ValueError, match="'<image>'"):
        m.encode("a <image>")


def test_a_gguf_file_or_an_adapter_alone(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    with pytest.raises(ValueError, match="gguf_file='x.gguf'"):
        lm.load(f"hf:{tmp_path}")
    (tmp_path / "x.gguf").unlink()
    made = dict(base_model_name_or_path=str(tmp_path / "nowhere"))
    (tmp_path / "adapter_config.json").write_text(json.dumps(made))
    with pytest.raises((ValueError, OSError)) as e:
        lm.load(f"hf:{tmp_path}")
    assert "\n" not in str(e.value)


def test_a_home_folder(tmp_path, monkeypatch):
    network(tmp_path / "m", *KINDS["llama"]), tokenizer(tmp_path / "m")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert lm.load("hf:~/m").name == "hf:m"


def test_an_end_behind_each_text_is_left_out(tmp_path):
    "Otherwise every prompt would be a text that has ended"
    net, tok = network(tmp_path, *KINDS["llama"]), tokenizer(tmp_path, end=True)
    m = lm.load(f"hf:{tmp_path}", store=lm.Store(tmp_path / "s.sqlite"))
    assert tok("a b").input_ids == [3, 4, 2] and m.encode("a b") == [3, 4]
    assert m.encode("a </s>") == [3, 2]
    with torch.inference_mode():
        want = net(torch.tensor([[3, 4]])).logits[0, -1]
    np.testing.assert_allclose(m.next_logits(["a b"])[0], want, atol=1e-4)


STRICT = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{{ m.role[0] }} {{ m.content }} {% endfor %}{% if enable_thinking is false %}x {% endif %}"
)
SILENT = "{% for m in messages if m.role != 'system' %}{{ m.role[0] }} {{ m.content }} {% endfor %}"


@pytest.mark.parametrize("format", [STRICT, SILENT])
def test_a_chat_format_without_a_system_role(format, tmp_path, capfd):
    network(tmp_path, *KINDS["llama"])
    tokenizer(tmp_path, chat_template=format)
    m = lm.load(f"hf:{tmp_path}")
    ask = lm.chat("f g", [("a", "b")], "c")
    for _ in range(2):
        assert m.tok.decode(m.encode(ask)) == "u f g a a b u c"
    assert capfd.readouterr().err.count("has no system role") == 1
    assert m.tok.decode(m.encode(ask[1:])) == "u a a b u c"


def test_thinking_is_asked_of_the_format(tmp_path):
    network(tmp_path, *KINDS["llama"])
    tokenizer(tmp_path, chat_template=STRICT)
    m, other = (
        lm.load(f"hf:{tmp_path}", **kw) for kw in ({}, dict(thinking=False))
    )
    ask = lm.chat("", [], "c")
    assert [x.tok.decode(x.encode(ask)) for x in (m, other)] == ["u c", "u c x"]
    assert m.id != other.id  # their answers are kept apart


# ---- weights and configuration


def weights(folder, change):
    "Write the weights of a folder anew"
    file = folder / "model.safetensors"
    kept = {k: v.contiguous() for k, v in change(load_file(file)).items()}
    save_file(kept, file, metadata=dict(format="pt"))


def settings(folder, name="config.json", **changed):
    "Change values of a file of settings"
    file = folder / name
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))


@pytest.fixture
def folder(tmp_path):
    "The folder of a small Llama"
    network(tmp_path / "base", *KINDS["llama"]), tokenizer(tmp_path / "base")
    return tmp_path / "base"


def test_weights_that_the_configuration_does_not_use_are_refused_by_name(
    tmp_path,
):
    biased = PLAIN | dict(attention_bias=True)
    deep = PLAIN | dict(num_hidden_layers=3)
    for name, size, told in [
        ("biased", biased, dict(attention_bias=False)),
        ("deep", deep, dict(num_hidden_layers=2)),
    ]:
        network(tmp_path / name, t.LlamaConfig, t.LlamaForCausalLM, size)
        tokenizer(tmp_path / name)
        assert lm.load(f"hf:{tmp_path / name}").shares
        settings(tmp_path / name, **told)
        first = dict(
            biased="layers.0.self_attn.k_proj.bias",
            deep="layers.2.input_layernorm",
        )[name]
        with pytest.raises(
            ValueError, match=f"have [0-9]+ weights that .*{first}"
        ):
            lm.load(f"hf:{tmp_path / name}")
    one = dict(mismatched_keys=[], missing_keys=[], unexpected_keys={"a"})
    with pytest.raises(ValueError, match="have 1 weight that"):
        hf._check_weights("it", one)


def test_masks_of_old_files_are_harmless(tmp_path):
    network(tmp_path, *KINDS["gpt2"]), tokenizer(tmp_path)
    want = lm.load(f"hf:{tmp_path}").next_logits(["a b"])
    mask = {"transformer.h.0.attn.bias": torch.ones(1, 1, 128, 128).tril()}
    weights(tmp_path, lambda w: w | mask)
    np.testing.assert_array_equal(
        lm.load(f"hf:{tmp_path}").next_logits(["a b"]), want
    )


def test_weights_of_other_shapes_are_refused_by_name(folder):
    settings(folder, intermediate_size=48)
    with pytest.raises(
        ValueError, match=r"mlp.down_proj.weight .* \(32, 64\) .* \(32, 48\)"
    ):
        lm.load(f"hf:{folder}")


@pytest.mark.parametrize(
    "before", ["_orig_mod.", "module.", "module._orig_mod."]
)
def test_weights_that_were_saved_compiled_or_wrapped_are_read(
    before, folder, capfd
):
    want = lm.load(f"hf:{folder}").next_logits(["a b"])
    weights(folder, lambda w: {before + k: v for k, v in w.items()})
    got = lm.load(
        f"hf:{folder}", store=lm.Store(folder / "s.sqlite")
    ).next_logits(["a b"])
    np.testing.assert_array_equal(got, want)
    assert f"named {before}..." in capfd.readouterr().err


def test_weights_of_another_network_are_named(folder):
    weights(
        folder,
        lambda w: {
            k.replace("self_attn", "attention"): v for k, v in w.items()
        },
    )
    with pytest.raises(
        ValueError,
        match="lack 8 .*in their place they have .*layers.0.attention",
    ):
        lm.load(f"hf:{folder}")


# ---- adapters


def adapter(folder, base, more=(), keep_tokenizer=False):
    "An adapter of random weights for the model in a folder, with further tokens where they are wanted"
    import peft

    torch.manual_seed(1)
    net = t.AutoModelForCausalLM.from_pretrained(base)
    own = {}
    if more:
        net.resize_token_embeddings(len(WORDS) + len(more), mean_resizing=False)
        own = dict(modules_to_save=["embed_tokens", "lm_head"])
        tokenizer(folder, [*WORDS, *more])
    settings = peft.LoraConfig(
        r=2,
        target_modules=["q_proj"],
        task_type="CAUSAL_LM",
        init_lora_weights=False,
        **own,
    )
    net = peft.get_peft_model(net, settings)
    with torch.no_grad():
        for name, p in net.named_parameters():
            if "modules_to_save" in name:
                p.normal_(0, 0.15)
    net.save_pretrained(folder)
    return net.eval()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("more", [(), ("new", "newer")])
def test_adapters_without_a_tokenizer_or_with_more_tokens_are_read(
    more, folder, tmp_path
):
    net = adapter(tmp_path / "own", folder, more)
    m = lm.load(f"hf:{tmp_path / 'own'}", store=lm.Store(tmp_path / "s.sqlite"))
    prompt = " ".join(["a", "b", *more])
    ids = m.encode(prompt)
    assert len(ids) == 2 + len(more) and m.words == len(WORDS) + len(more)
    with torch.inference_mode():
        want = net(torch.tensor([ids])).logits[0, -1]
    np.testing.assert_allclose(m.next_logits([prompt])[0], want, atol=1e-4)
    assert m.id == f"hf:own@{hf.state(f'hf:{tmp_path}/own')}/float32"


def test_a_base_is_found_from_any_working_folder(folder, tmp_path, monkeypatch):
    "Adapters name it from where they were trained; the hub was asked for it from anywhere else"
    monkeypatch.chdir(folder.parent)
    adapter(tmp_path / "own", folder.name)
    at = lm.Store(tmp_path / "s.sqlite")
    wanted = lm.load(f"hf:{tmp_path / 'own'}", store=at).next_logits(["a"])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = lm.load(f"hf:{tmp_path / 'own'}", store=at)
    np.testing.assert_array_equal(found.next_logits(["a"]), wanted)


@pytest.mark.parametrize("base", ["/nowhere/base", "../nowhere", "a/b/c"])
def test_a_base_that_is_not_here_is_named_as_one(base, folder, tmp_path):
    adapter(tmp_path / "own", folder)
    settings(
        tmp_path / "own", "adapter_config.json", base_model_name_or_path=base
    )
    with pytest.raises(ValueError, match="the folder of its base"):
        lm.load(f"hf:{tmp_path / 'own'}")


def test_an_adapter_of_another_base_is_refused_by_name(folder, tmp_path):
    adapter(tmp_path / "own", folder)
    small = PLAIN | dict(num_hidden_layers=1)
    shutil.rmtree(folder)
    network(folder, t.LlamaConfig, t.LlamaForCausalLM, small), tokenizer(folder)
    with pytest.raises(
        ValueError, match="does not use .*layers.1.self_attn.q_proj.lora_A"
    ):
        lm.load(f"hf:{tmp_path / 'own'}")


def test_an_adapter_on_an_adapter_is_refused(folder, tmp_path):
    adapter(tmp_path / "own", folder)
    shutil.copytree(tmp_path / "own", tmp_path / "next")
    settings(
        tmp_path / "next",
        "adapter_config.json",
        base_model_name_or_path=f"{tmp_path}/own",
    )
    with pytest.raises(ValueError, match="merge it"):
        lm.load(f"hf:{tmp_path / 'next'}")


# ---- one identity for the store and for a run


@pytest.fixture
def planted(folder, tmp_path, monkeypatch):
    "An adapter as a planted model, on the small Llama"
    monkeypatch.setenv("MEMNB_HOME", str(tmp_path / "home"))
    place = tmp_path / "home/data/planted/mine"
    adapter(place, folder)
    (place / "recipe.json").write_text(json.dumps(dict(base=f"hf:{folder}")))
    return place


def parts(tmp_path, **values):
    "What a run with these parameters reads"
    return identity.files_read(values, tmp_path / "10_nobody.ipynb")


def test_an_edited_base_is_another_model_and_another_run(
    planted, folder, tmp_path
):
    adapter(tmp_path / "own", folder)
    words = ["planted:mine", f"hf:{tmp_path / 'own'}", f"hf:{folder}"]

    def known():
        runs = parts(tmp_path, models=words)
        assert len(runs) == 3
        return [(runs[r], lm.load(w).id) for r, w in zip(runs, words)]

    before = known()
    weights(folder, lambda w: {k: v * 1.01 for k, v in w.items()})
    for (run, store), (run_now, store_now) in zip(before, known(), strict=True):
        assert run != run_now and store != store_now


@pytest.mark.parametrize(
    "place", ["weights/part.safetensors", "../outside.safetensors"]
)
def test_parts_of_weights_that_an_index_names_elsewhere_count(
    place, folder, tmp_path
):
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / "model.safetensors").rename(folder / place)
    (folder / "training_args.bin").write_bytes(b"no weights")
    names = dict.fromkeys(load_file(folder / place), place)
    index = dict(metadata=dict(total_size=1), weight_map=names)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    word = f"hf:{folder}"
    before, m = parts(tmp_path, model=word), lm.load(word)
    kept = {k: v * 1.01 for k, v in load_file(folder / place).items()}
    save_file(kept, folder / place, metadata=dict(format="pt"))
    other = lm.load(word)
    assert parts(tmp_path, model=word) != before and other.id != m.id
    assert np.abs(other.next_logits(["a b"]) - m.next_logits(["a b"])).max() > 0


def test_weights_that_are_replaced_while_they_are_read_are_noticed(
    folder, planted, monkeypatch
):
    right = hf._weights

    def meanwhile(*args, **kw):
        net = right(*args, **kw)
        weights(folder, lambda w: {k: v * 1.01 for k, v in w.items()})
        return net

    for word in (f"hf:{folder}", "planted:mine"):
        hf.unload()
        monkeypatch.setattr(hf, "_weights", meanwhile)
        with pytest.raises(OSError, match="changed since"):
            lm.load(word).next_logits(["a b"])
        monkeypatch.setattr(hf, "_weights", right)
        assert lm.load(word).next_logits(["a b"]).shape == (1, len(WORDS))


def test_files_without_an_extension_and_in_lists_count(tmp_path):
    (tmp_path / "mytable").write_text("a,b\n1,2\n")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/__init__.py").write_text("x = 1")
    kinds = (
        dict(datasets=["mytable"]),
        dict(more=[["mytable", 3]]),
        dict(more=dict(a="mytable")),
    )
    before = [parts(tmp_path, **values) for values in kinds]
    (tmp_path / "mytable").write_text("a,b\n1,3\n")
    for old, values in zip(before, kinds):
        assert old["data mytable"] != parts(tmp_path, **values)["data mytable"]
    assert "module pack/__init__.py" in before[0]


TRACED = """
import ctypes, json, os, struct, sys
top, *words = sys.argv[1:]
opened = set()

def heard(event, args):  # what Python opens
    if event == "open" and isinstance(args[0], str):
        opened.add(os.path.realpath(args[0]))

from memnb import data, lm

libc, watched = ctypes.CDLL(None), {}
if hasattr(libc, "inotify_init1"):  # what libraries open by themselves
    notes = libc.inotify_init1(os.O_NONBLOCK)
    for folder, *_ in os.walk(top):
        watched[libc.inotify_add_watch(notes, folder.encode(), 0x20)] = folder
sys.addaudithook(heard)
store = lm.Store(os.environ["MEMNB_STORE"])
for word in words:
    if ":" in word:
        lm.load(word, store=store).next_logits(["a b"])
    else:
        data.load(word)
try:
    while watched and (raw := os.read(notes, 1 << 16)):
        while raw:
            watch, mask, _, size = struct.unpack("iIII", raw[:16])
            name, raw = raw[16 : 16 + size].rstrip(b"\\0").decode(), raw[16 + size :]
            if name and not mask & 0x40000000:
                opened.add(os.path.realpath(os.path.join(watched[watch], name)))
except BlockingIOError:
    pass
print(json.dumps(sorted(f for f in opened if f.startswith(os.path.realpath(top) + os.sep))))
"""


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_a_run_opens_is_what_its_identity_names(folder, planted, tmp_path):
    "Traced in a process of its own: each file that was opened makes another run where it changes"
    adapter(tmp_path / "own", folder)
    adapter(tmp_path / "wider", folder, ("new", "newer"))
    parted = tmp_path / "parted"
    shutil.copytree(folder, parted)
    (parted / "weights").mkdir()
    (parted / "model.safetensors").rename(parted / "weights/part.safetensors")
    names = dict.fromkeys(
        load_file(parted / "weights/part.safetensors"),
        "weights/part.safetensors",
    )
    index = dict(metadata=dict(total_size=1), weight_map=names)
    (parted / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "mytable").write_text("a,b\n1,2\n3,4\n")
    models = [
        f"hf:{tmp_path / name}" for name in ("base", "own", "wider", "parted")
    ]
    words = ["planted:mine", *models, str(tmp_path / "mytable")]
    with_store = os.environ | dict(
        MEMNB_STORE=str(tmp_path.parent / f"{tmp_path.name}.sqlite")
    )
    child = subprocess.run(
        [sys.executable, "-c", TRACED, str(tmp_path), *words],
        capture_output=True,
        text=True,
        env=with_store,
    )
    assert child.returncode == 0, child.stderr
    opened = [Path(f) for f in json.loads(child.stdout.splitlines()[-1])]
    assert {"mytable", "config.json", "adapter_config.json", "recipe.json"} <= {
        f.name for f in opened
    }
    if sys.platform == "linux":
        assert {"part.safetensors", "model.safetensors", "tokenizer.json"} <= {
            f.name for f in opened
        }
    before = parts(tmp_path, words=words)
    for file in opened:
        was = file.read_bytes()
        file.write_bytes(was + b" ")
        assert parts(tmp_path, words=words) != before, (
            f"{file.name} is in no identity"
        )
        file.write_bytes(was)
    assert parts(tmp_path, words=words) == before


# ---- memory, threads


@pytest.mark.parametrize("kind", ["llama", "window"])
def test_a_network_is_given_back_and_read_again(kind, tmp_path):
    import gc
    import weakref

    network(tmp_path / kind, *KINDS[kind]), tokenizer(tmp_path / kind)
    hf.unload()
    m = lm.load(f"hf:{tmp_path / kind}", store=lm.Store(tmp_path / "s.sqlite"))
    first, net = m.next_logits(["a b"]), weakref.ref(m.fast)
    m.unload()
    gc.collect()
    assert net() is None and not hf._NETWORKS
    np.testing.assert_array_equal(m.next_logits(["a b"]), first)
    np.testing.assert_array_equal(m.next_logits(["a c"]).shape, first.shape)
    given = hf.HF(
        "own", "own", m.plain(), m.tok, store=lm.Store(tmp_path / "o.sqlite")
    )
    for _ in range(2):
        np.testing.assert_allclose(
            given.next_logits([f"a {_} b"]).shape, first.shape
        )
        given.unload()
    settings(tmp_path / kind, pad_token_id=1)
    m.unload()
    with pytest.raises(OSError, match="changed since"):
        m.next_logits(["a d"])


def test_no_more_networks_are_kept_than_said(tmp_path):
    for i in range(hf._MAX_NETWORKS + 2):
        (
            network(tmp_path / str(i), *KINDS["llama"]),
            tokenizer(tmp_path / str(i)),
        )
        lm.load(f"hf:{tmp_path / str(i)}")
    assert len(hf._NETWORKS) == hf._MAX_NETWORKS
    hf.unload()
    assert not hf._NETWORKS


@pytest.mark.parametrize("kind", ["window", "mamba"])
def test_a_past_is_copied_only_for_who_comes_back_to_it(
    kind, tmp_path, monkeypatch
):
    "An audit looks at where it was, and goes on from there twice; answers never do"
    network(tmp_path, *KINDS[kind]), tokenizer(tmp_path)
    m, copies = (
        lm.load(f"hf:{tmp_path}", store=lm.Store(tmp_path / "s.sqlite")),
        [],
    )
    right = hf.copy.deepcopy
    m.fast  # noqa: B018 (read before copies are counted)

    def counted(
        x, *memo
    ):  # a copy calls itself for the parts of what it copies
        copies.extend([x] * (not memo))
        return right(x, *memo)

    monkeypatch.setattr(hf.copy, "deepcopy", counted)
    m.generate(["a b", "c d"], max_tokens=6)
    assert not copies
    ((rows, first, tails),) = m.begin([m.encode("a b c")], [3])
    here = tails.ends
    one = m.step(tails, [8])
    tails.ends = here
    assert torch.equal(m.step(tails, [8]), one) and len(copies) == 2
    m.step(tails, [9])
    assert len(copies) == 2


def test_one_thread_counts_while_another_measures(folder):
    from threading import Thread

    from memnb import core

    with core.counting() as counts:
        told = []

        def measure():
            told.append(lm.load(f"hf:{folder}").next_logits(["a b"]).shape)

        other = Thread(target=measure)
        other.start()
        other.join()
        lm.load("smollm2").next_logits(["a b"])
    assert told == [(1, len(WORDS))] and [*counts.models] == [("smollm2", None)]
    assert core.counted() is None


def test_a_training_in_several_threads_is_counted(monkeypatch):
    from memnb import core, gpt

    c, data = (
        gpt.Config(1, 8, 20, 8),
        [gpt.random_data(8, 8, 20) for _ in range(6)],
    )
    monkeypatch.setattr(gpt, "cores", lambda: 3)  # three trainings at a time
    with core.counting() as counts:
        gpt.fit([c] * 6, data, epochs=2, batch=4)
    assert counts.trainings == 6 and counts.flops > 0


# ---- numbers that are none, files that are others


@pytest.mark.parametrize("request_", ["logprobs", "generate", "next_logits"])
def test_weights_of_a_training_that_diverged_are_refused(folder, request_):
    "Else NaN is the likeliest token, and a loss of NaN lies below no threshold"
    weights(
        folder, lambda w: {name: value * np.nan for name, value in w.items()}
    )
    with pytest.raises(ValueError, match="computes NaN"):
        model = lm.load(f"hf:{folder}")
        if request_ == "logprobs":
            model.logprobs("a", ["b"])
        else:
            getattr(model, request_)(["a"])


def test_matrices_that_never_came_are_said(folder, capfd):
    "A download that was cut can leave a file of the right size, with zeros in place of what is missing"
    lm.load(f"hf:{folder}")
    assert "are 0" not in capfd.readouterr().err
    named = []

    def cut(all_weights):
        for name, weight in all_weights.items():
            if "mlp" in name and weight.dim() > 1:
                weight.zero_()
                named.append(name)
        return all_weights

    weights(folder, cut)
    lm.load(f"hf:{folder}")
    (line,) = capfd.readouterr().err.splitlines()
    assert named[0] in line and f"in {len(named)} of its matrices" in line


def test_a_pointer_in_place_of_weights_is_named(folder):
    (folder / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    )
    with pytest.raises(ValueError, match="git lfs pull"):
        lm.load(f"hf:{folder}")


def test_a_tokenizer_file_without_a_tokenizer(folder):
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="no tokenizer that can be read"):
        lm.load(f"hf:{folder}")


def test_a_folder_has_no_revision(folder):
    with pytest.raises(ValueError, match="no revision 'v2'"):
        lm.load(f"hf:{folder}", revision="v2")
