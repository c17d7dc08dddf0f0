"""Texts and tokenizers for comparing forge with the libraries tokenizers, tiktoken and sentencepiece.

corpus(): drawn lines of several scripts, code, emoji, spaces of every kind and broken UTF-8, as bytes.
SHAPES: for each family of models a function that trains its kind of tokenizer on some texts, writes its files to a folder, and
returns (path of the tokenizer, more arguments of `forge tokenize`, function from a list of texts to lists of ids)."""
import base64
import contextlib
import json
import os
import random

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+")

SCRIPTS = [(0x61, 0x7a), (0x41, 0x5a), (0xc0, 0x17f), (0x391, 0x3c9), (0x410, 0x44f), (0x5d0, 0x5ea), (0x621, 0x64a), (0x905, 0x939),
           (0x93e, 0x94d), (0xe01, 0xe3a), (0x10d0, 0x10f0), (0x3041, 0x3096), (0x30a1, 0x30fa), (0x4e00, 0x5200), (0xac00, 0xae00),
           (0x1100, 0x1112), (0x1161, 0x1175), (0x11a8, 0x11c2), (0x300, 0x36f), (0x1e00, 0x1eff), (0xff01, 0xff5e), (0x2460, 0x24ff),
           (0x1f600, 0x1f64f), (0x1d400, 0x1d7ff), (0x20000, 0x20100), (0xfb00, 0xfb06), (0x660, 0x669), (0x2150, 0x218b), (0xb2, 0xbe),
           (0x2010, 0x205e), (0x20a0, 0x20bf), (0x2190, 0x22ff), (0x12400, 0x1246e), (0x1f1e6, 0x1f1ff), (0xfe00, 0xfe0f)]
SPACES = [" ", " ", "  ", "    ", "\t", "\u00a0", "\u2003", "\u3000", "\x0b", "\x0c", "\x85", "\r\n", "\n", "\n\n", "\r", "\u2028",
          "\u180e", "\u200b", "\u200d", "\ufeff", "\u1680", "\x1c", "\x1f", " " * 17]
CODE = ["def f(x):\n    return x ** 2\n", "for (int i = 0; i < n; ++i) {\n\t\tsum += a[i];\r\n}\n", "#include <vector>", "if x != None:",
        "SELECT * FROM t WHERE a >= 10;", "https://example.org/a?b=c&d=%20e", "x_1 = y_2->z;", "/* ... */", "\\frac{1}{2}", "I'll don't IT'S we'VE",
        "'ſ 'K", "3.14159e-10", "1234567890", "０１２３", "<|endoftext|>", "<s>", "</s>", "[INST]", "<0x0A>", "<unk>", "▁", "▁▁a", "Ġ", "▁the"]


def word(rng):
    low, high = rng.choice(SCRIPTS[:12] if rng.random() < 0.7 else SCRIPTS)
    return "".join(chr(rng.randint(low, high)) for _ in range(rng.choice([1, 2, 3, 4, 5, 8, 13])))


def line(rng, words):
    parts = []
    for _ in range(rng.choice([0, 1, 2, 5, 10, 20])):
        r = rng.random()
        if r < 0.6:
            parts.append(rng.choice(words))
        elif r < 0.75:
            parts.append(word(rng))
        elif r < 0.85:
            parts.append(str(rng.randint(0, 10 ** rng.randint(1, 9))))
        elif r < 0.93:
            parts.append(rng.choice(CODE))
        elif r < 0.97:
            parts.append("".join(rng.choice("!?.,;:-()[]{}\"'…—«»") for _ in range(rng.randint(1, 4))))
        else:
            code = rng.randint(0, 0x10ffff)
            parts.append(chr(code) if not 0xd800 <= code < 0xe000 else "\ufffd")
        parts.append(" " if rng.random() < 0.8 else rng.choice(SPACES))
    if parts and rng.random() < 0.5:
        parts.pop()
    data = "".join(parts).encode()
    if rng.random() < 0.1 and data:
        data = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data))
            if rng.random() < 0.5:
                data[at] = rng.randrange(256)
            else:
                del data[at:at + 1]
            if not data:
                break
        data = bytes(data)
    return data


ENGLISH = ("the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one you were all "
           "her she there would their we him been has when who will no more if out so up said what its about than into them can only other time "
           "new some could these two may first then do any like my now over such our man me even most made after also did many off before must "
           "well back through years much where your way down should because long each just state those people too mr how little good world make "
           "very year still see own work men day get here between both life being under three never know same last another while us might great "
           "The This We In It's don't Introduction However, example.com HTTP/1.1 naïve café Zürich über straße Αθήνα Москва שלום سلام नमस्ते สวัสดี "
           "こんにちは 世界 東京 안녕하세요 e\u0301clair A\u030angstro\u0308m ﬁne №5 ½ x² 🙂 👩‍👩‍👧 🇩🇪 ① ㎏ Ⅳ").split()


def corpus(count, seed):
    """`count` lines as bytes; some of them are no UTF-8, some have line ends within."""
    rng = random.Random(seed)
    words = ENGLISH * 3 + [word(rng) for _ in range(400)]
    return [line(rng, words) for _ in range(count)]


def texts_of(lines):
    return [data.decode("utf-8", errors="replace") for data in lines]


def byte_level(pattern=None, normalizer=None, ignore_merges=False, sequence=None, add_prefix_space=False, specials=()):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    def make(texts, folder, size):
        t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
        if normalizer:
            t.normalizer = normalizer()
        if sequence:
            t.pre_tokenizer = sequence()
        elif pattern:
            t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        else:
            t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
        t.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=["<|endoftext|>"], show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        t.train_from_iterator(texts, trainer)
        t.add_tokens([AddedToken(s, **options) for s, options in specials])
        return save(t, folder)
    return make


def save(t, folder):
    path = os.path.join(folder, "tokenizer.json")
    t.save(path)
    return path, [], lambda texts: [e.ids for e in t.encode_batch(texts, add_special_tokens=False)]


def llama2_json(texts, folder, size, metaspace=False):
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if metaspace:
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)],
                                  show_progress=False, limit_alphabet=400, max_token_length=16)
    train = Tokenizer(models.BPE())
    train.pre_tokenizer = pre_tokenizers.Metaspace()
    train.train_from_iterator(texts, trainer)
    made = json.loads(train.to_str())
    whole = json.loads(t.to_str())
    whole["model"]["vocab"], whole["model"]["merges"] = made["model"]["vocab"], made["model"]["merges"]
    whole["added_tokens"] = [token for token in made["added_tokens"] if token["id"] < 3]
    t = Tokenizer.from_str(json.dumps(whole))
    t.add_tokens([AddedToken("[INST]", normalized=False)])
    return save(t, folder)


def unigram_json(texts, folder, size, **rules):
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    sp_path, _, _ = sentencepiece("unigram", folder=folder, texts=texts, size=size, name="for_charsmap", **(rules or {"normalization": "nmt_nfkc"}))
    os.remove(os.path.join(folder, "for_charsmap.vocab"))
    charsmap = charsmap_of(sp_path)
    os.remove(sp_path)
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Strip(left=False, right=True),
                                         normalizers.Replace(Regex(" {2,}"), "▁")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=size, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False)
    t.train_from_iterator(texts, trainer)
    return save(t, folder)


def charsmap_of(path):
    """The precompiled_charsmap of a SentencePiece model: field 2 of field 3."""
    def fields(data):
        at = 0
        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(data):
            key = varint()
            if key & 7 == 0:
                varint()
            elif key & 7 == 2:
                size = varint()
                yield key >> 3, data[at:at + size]
                at += size
            else:
                at += 4 if key & 7 == 5 else 8
    with open(path, "rb") as f:
        spec = dict(fields(f.read()))[3]
    return dict(fields(spec))[2]


def sentencepiece(kind, texts, folder, size, normalization="identity", name="tokenizer", **options):
    import sentencepiece as sp
    corpus_file = os.path.join(folder, name + ".txt")
    with open(corpus_file, "w", encoding="utf-8") as f:
        f.write("\n".join(text.replace("\n", " ").replace("\r", " ").replace("\0", " ") for text in texts if text.strip()) + "\n")
    with contextlib.chdir(folder):  # the model keeps the names as they are given
        sp.SentencePieceTrainer.train(input=name + ".txt", model_prefix=name, model_type=kind, vocab_size=size,
                                      normalization_rule_name=normalization, minloglevel=2, hard_vocab_limit=False,
                                      **{"character_coverage": 0.98, **options})
    os.remove(corpus_file)
    path = os.path.join(folder, name + ".model")
    model = sp.SentencePieceProcessor(model_file=path)
    return path, [], lambda texts: model.encode(texts)


def sp_shape(kind, normalization, **options):
    return lambda texts, folder, size: sentencepiece(kind, texts, folder, size, normalization, **options)


def tiktoken_shape(name, pattern):
    def make(texts, folder, size):
        import tiktoken
        path, _, _ = byte_level(pattern=LLAMA3)(texts, folder, size)
        with open(path, encoding="utf-8") as f:
            model = json.load(f)["model"]
        os.remove(path)
        characters = {}
        for b in range(256):
            characters[b] = chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b else None
        extra = 256
        for b in range(256):
            if characters[b] is None:
                characters[b] = chr(extra)
                extra += 1
        back = {c: b for b, c in characters.items()}
        ranks = {}
        for token, _ in sorted(model["vocab"].items(), key=lambda item: item[1]):
            if token != "<|endoftext|>":
                ranks[bytes(back[c] for c in token)] = len(ranks)
        path = os.path.join(folder, "vocabulary.tiktoken")
        with open(path, "wb") as f:
            for token, rank in ranks.items():
                f.write(base64.b64encode(token) + b" " + str(rank).encode() + b"\n")
        encoding = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        return path, ["--pattern", name], lambda texts: encoding.encode_ordinary_batch(texts, num_threads=2)
    return make


def deepseek():
    from tokenizers import Regex, pre_tokenizers as p
    return p.Sequence([p.Split(Regex(r"\p{N}{1,3}"), "isolated"), p.Split(Regex(r"[一-龥぀-ゟ゠-ヿ]+"), "isolated"), p.Split(Regex(DEEPSEEK), "isolated"),
                       p.ByteLevel(add_prefix_space=False, use_regex=False)])


def deepseek_coder():
    from tokenizers import Regex, pre_tokenizers as p
    return p.Sequence([p.Split(Regex(r"[\r\n]"), "isolated"), p.Split(Regex(r"\s?\p{L}+"), "isolated"), p.Split(Regex(r"\s?\p{P}+"), "isolated"),
                       p.Split(Regex(r"[一-龥ࠀ-一가-퟿]+"), "isolated"), p.Digits(individual_digits=True), p.ByteLevel(add_prefix_space=False, use_regex=False)])


def falcon():
    from tokenizers import Regex, pre_tokenizers as p
    return p.Sequence([p.Punctuation("contiguous"), p.ByteLevel(add_prefix_space=False), p.Digits(False), p.Split(Regex("[0-9][0-9][0-9]"), "isolated")])


def starcoder():
    from tokenizers import pre_tokenizers as p
    return p.Sequence([p.Digits(individual_digits=True), p.ByteLevel(add_prefix_space=False)])


def behaviors():
    from tokenizers import Regex, pre_tokenizers as p
    return p.Sequence([p.Split(Regex(r"\d"), "merged_with_previous"), p.Split(Regex(r"[aeiou]"), "merged_with_next"), p.Split("-", "removed"),
                       p.Split(Regex(r"\s+"), "contiguous"), p.Split(Regex(r"\w+\b"), "removed", invert=True), p.ByteLevel(add_prefix_space=True)])


def nfc():
    from tokenizers import normalizers
    return normalizers.NFC()


def bert():
    from tokenizers import normalizers
    return normalizers.Sequence([normalizers.NFKC(), normalizers.BertNormalizer(strip_accents=True), normalizers.Strip()])


def nfkd():
    from tokenizers import normalizers as n
    return n.Sequence([n.NFKD(), n.StripAccents(), n.Lowercase(), n.Nmt()])


SPECIALS = [("[INST]", {}), ("<pad>", {"lstrip": True}), ("<mask>", {"rstrip": True, "lstrip": True}), ("state", {"single_word": True}),
            ("Zürich", {"normalized": True}), ("[INST]]", {"normalized": False}), ("  ", {"normalized": False})]

SHAPES = {
    "gpt2": byte_level(),
    "gpt2_prefix": byte_level(add_prefix_space=True),
    "llama3": byte_level(LLAMA3, ignore_merges=True),
    "qwen": byte_level(QWEN, normalizer=nfc, specials=SPECIALS[:1]),
    "o200k": byte_level(O200K),
    "deepseek": byte_level(sequence=deepseek),
    "deepseek_coder": byte_level(sequence=deepseek_coder),
    "falcon": byte_level(sequence=falcon),
    "starcoder": byte_level(sequence=starcoder),
    "behaviors": byte_level(sequence=behaviors),
    "added_tokens": byte_level(specials=SPECIALS, normalizer=nfkd),
    "bert_normalizer": byte_level(normalizer=bert),
    "llama2_json": llama2_json,
    "mistral_json": lambda texts, folder, size: llama2_json(texts, folder, size, metaspace=True),
    "t5_json": unigram_json,
    "llama2_model": sp_shape("bpe", "identity", byte_fallback=True, remove_extra_whitespaces=False, split_digits=True, character_coverage=0.99),
    "gemma_model": sp_shape("bpe", "identity", byte_fallback=True, remove_extra_whitespaces=False, add_dummy_prefix=False,
                            user_defined_symbols=["[INST]", "  ", "state", "<|endoftext|>"]),
    "bpe_unknown_model": sp_shape("bpe", "nmt_nfkc", character_coverage=0.98),
    "t5_model": sp_shape("unigram", "nmt_nfkc", character_coverage=0.98, user_defined_symbols=["[INST]"]),
    "unigram_bytes_model": sp_shape("unigram", "nfkc_cf", byte_fallback=True),
    "tiktoken_cl100k": tiktoken_shape("cl100k_base", CL100K),
    "tiktoken_llama3": tiktoken_shape("llama3", LLAMA3),
    "tiktoken_o200k": tiktoken_shape("o200k_base", O200K),
    "tiktoken_kimi": tiktoken_shape("kimi", KIMI),
    "tiktoken_gpt2": tiktoken_shape("gpt2", r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"),
}
