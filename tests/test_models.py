"Families of models: what works has the library's numbers and answers, what does not is refused as it is loaded."

import json

import numpy as np
import pytest
import torch
import transformers as t
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from memnb import lm

WORDS = ["<s>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz", *(f"w{i}" for i in range(40))]
SIZE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
PLAIN = SIZE | dict(intermediate_size=64, num_key_value_heads=2, max_position_embeddings=128)
KINDS = dict(
    gpt2=(t.GPT2Config, t.GPT2LMHeadModel, dict(n_embd=32, n_layer=2, n_head=4, n_positions=128)),
    neox=(t.GPTNeoXConfig, t.GPTNeoXForCausalLM, SIZE | dict(intermediate_size=64)),
    opt=(t.OPTConfig, t.OPTForCausalLM, SIZE | dict(ffn_dim=64, word_embed_proj_dim=32)),
    llama=(t.LlamaConfig, t.LlamaForCausalLM, PLAIN),
    qwen2=(t.Qwen2Config, t.Qwen2ForCausalLM, PLAIN),
    window=(t.MistralConfig, t.MistralForCausalLM, PLAIN | dict(sliding_window=6)),
    gemma2=(t.Gemma2Config, t.Gemma2ForCausalLM, PLAIN | dict(sliding_window=6, head_dim=8)),
    gemma3=(t.Gemma3TextConfig, t.Gemma3ForCausalLM, PLAIN | dict(sliding_window=6, head_dim=8)),
    bloom=(t.BloomConfig, t.BloomForCausalLM, dict(hidden_size=32, n_layer=2, n_head=4)),
    mamba=(t.MambaConfig, t.MambaForCausalLM, dict(hidden_size=32, num_hidden_layers=2)),
)
TREES = {"gpt2", "neox", "opt", "llama", "qwen2"}  # prompts that begin alike are read once


def tokenizer(folder, words=WORDS, end=False, **more):
    "A tokenizer of words, written to a folder"
    tok = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
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
    prompts = [f"{start} {end}" for end in ("a b", "a c d", "z", "")] + ["q r s", "e f", "q r s"]
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
        np.testing.assert_allclose(got, [lp[len(a) - 1 + i, w] for i, w in enumerate(b)], atol=2e-4)
    for p, got in zip(prompts, m.next_logits(prompts)):
        want = after(p)[2][-1]
        np.testing.assert_allclose(torch.tensor(got).log_softmax(-1), want, atol=2e-4)
    ((lps, hits),) = m.tokens([start])
    _, b, lp = after("<s>", start)
    np.testing.assert_allclose(lps, [lp[i, w] for i, w in enumerate(b)], atol=2e-4)
    assert hits == [lp[i].argmax().item() == w for i, w in enumerate(b)]
    for p, said in zip(prompts, m.generate(prompts, max_tokens=8)):
        ids = torch.tensor([tok(p).input_ids])
        with torch.inference_mode():
            out = net.generate(ids, max_new_tokens=8, do_sample=False)[0, ids.shape[1] :]
        assert said == tok.decode(out, skip_special_tokens=True)
    for rows, first, tails in m.begin([tok(p).input_ids for p in prompts], [2] * len(prompts)):
        ends, one = tails.ends, m.step(tails, [8] * len(rows))
        tails.ends = ends  # an audit goes back to here, and on with other tokens
        for got, c in (first, ""), (one, WORDS[8]), (m.step(tails, [9] * len(rows)), WORDS[9]):
            want = torch.stack([after(prompts[i], c)[2][-1] for i in rows])
            np.testing.assert_allclose(got.log_softmax(-1), want, atol=2e-4)
    drawn = m.generate(prompts, max_tokens=4, temperature=1.0, seed=0)
    again = lm.load(f"hf:{tmp_path / kind}", store=lm.Store(tmp_path / "o.sqlite"))
    assert drawn[:2] == again.generate(prompts[:2], max_tokens=4, temperature=1.0, seed=0)


BLANKS = SIZE | dict(intermediate_size=64)
REFUSED = dict(
    bert=(t.BertConfig, t.BertForMaskedLM, BLANKS),
    roberta=(t.RobertaConfig, t.RobertaForMaskedLM, BLANKS),
    electra=(t.ElectraConfig, t.ElectraForMaskedLM, BLANKS | dict(embedding_size=32)),
    head=(t.BertConfig, t.BertLMHeadModel, BLANKS),
    t5=(t.T5Config, t.T5ForConditionalGeneration, dict(d_model=32, d_ff=64, num_layers=2)),
    bart=(
        t.BartConfig,
        t.BartForConditionalGeneration,
        dict(
            d_model=32, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32, decoder_ffn_dim=32
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
    m, other = (lm.load(f"hf:{tmp_path}", **kw) for kw in ({}, dict(thinking=False)))
    ask = lm.chat("", [], "c")
    assert [x.tok.decode(x.encode(ask)) for x in (m, other)] == ["u c", "u c x"]
    assert m.id != other.id  # their answers are kept apart
