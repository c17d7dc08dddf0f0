#!/usr/bin/env python3
"""prepare_chat.py TOKENIZER FILE.jsonl[.gz]… --output chat.bin [--chat-template FILE|chatml] [--every-turn] [--labels assistant|all] [--pairs [--most-tokens N]]

Chats as token files for fine-tuning. TOKENIZER is a Hugging Face directory, whose chat template makes tokens of each line; a base model has no
template: --chat-template names a file with one, or chatml. A line is one of

  {"messages": [{"role": …, "content": …}, …]}       content: text, or a list of parts of text; "tools" beside it go to the template; --field
  {"conversations": [{"from": …, "value": …}, …]}    ShareGPT: human and gpt are user and assistant
  {"prompt": …, "completion": …}                     text, or lists of messages

With --pairs, of lines that prefer one answer to another:

  {"prompt": …, "chosen": …, "rejected": …}          text, or lists of messages; without prompt two whole chats

each becomes two chats, the chosen one first, whose labels are the last turn; --most-tokens leaves pairs out that are longer together.

Writes, of --output chat.bin:

  chat.bin, chat.idx   a Megatron pair: the ids, as transformers renders the whole chat, and where each chat begins
  chat.mask.npy        of each token 1 where it may be a label: --labels all: every token; assistant, the default:
  chat_tokenizer/      where the template is not TOKENIZER's own, or turns end with another token than its eos_token: the files of TOKENIZER
                       with both, for model.tokenizer; samples, generate and the exported model then end where a turn does

Labels are the template's own marks ({% generation %}) where it has them, else of each turn of the assistant the tokens behind its header (which
add_generation_prompt renders) up to the special token that ends it; where a turn adds none, the special token that begins the next turn. A
template that renders earlier turns otherwise than they were generated (thinking that is dropped) leaves them without labels: --every-turn writes
such a chat once more for each of these turns. A bad chat is left out and named; more than --most-bad percent are an error. Nothing is left
behind by a failure. Packages: jobscripts/requirements.txt."""
import argparse
import array
import bisect
import filecmp
import json
import os
import shutil
import struct
import sys

from chat_lines import lines_of, mended, messages_of
from refusal import Refused

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') + END + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
NAMED = 5  # bad chats


def common(a, b):
    """How many first characters are the same."""
    return len(os.path.commonprefix([a, b]))


class Chat:
    """One chat by a tokenizer's template: its text, its tokens, and where turns stand."""

    def __init__(self, tokenizer, messages, tools):
        self.tokenizer, self.messages, self.tools = tokenizer, messages, tools
        self.text = self.render(messages)
        if getattr(tokenizer, "is_fast", True):
            made = tokenizer(self.text, add_special_tokens=False, return_offsets_mapping=True)
            self.starts = [begin for begin, _ in made["offset_mapping"]]
        else:
            made, self.starts = tokenizer(self.text, add_special_tokens=False), None
        self.ids = [int(i) for i in made["input_ids"]]
        self.special = set(getattr(tokenizer, "all_special_ids", [])) | set(getattr(tokenizer, "added_tokens_decoder", {}))

    def render(self, messages, **options):
        if self.tools is not None:
            options["tools"] = self.tools
        return self.tokenizer.apply_chat_template(messages, tokenize=False, **options)

    def token_at(self, place):
        """The first token that begins at a character or behind it."""
        if self.starts is not None:
            return bisect.bisect_left(self.starts, place)
        before = [int(i) for i in self.tokenizer(self.text[:place], add_special_tokens=False)["input_ids"]]
        if self.ids[: len(before)] != before:
            raise Refused("a turn begins within a token, of a tokenizer that doesn't say where tokens stand")
        return len(before)

    def varied(self, i, before="", after=""):
        """The first i + 1 messages with something more in the last one's content."""
        content = before + (self.messages[i]["content"] or "") + after
        return self.render(self.messages[:i] + [{**self.messages[i], "content": content}])

    def header_end(self, i):
        """Where what the assistant generates begins; None: the text has no such place."""
        try:
            prompt = self.render(self.messages[:i], add_generation_prompt=True)
        except Exception:  # many templates look at the first message
            prompt = ""
        if prompt and self.text.startswith(prompt):
            return len(prompt)
        one, two = self.varied(i, before="A"), self.varied(i, before="B")
        end = min(common(one, two), common(one, self.text), common(two, self.text))
        return end if self.text.startswith(one[:end]) and end > 0 else None

    def turn(self, i):
        """The tokens [begin, end) that turn i may be labelled with; None where the chat has another rendering of it."""
        upto = self.render(self.messages[: i + 1])
        content_end = common(self.varied(i, after="A"), self.varied(i, after="B"))
        said = upto[:content_end].rstrip()
        if not self.text.startswith(said):
            return None
        begin = self.header_end(i)
        if begin is None or begin > len(said):
            return None
        first, behind, end = self.token_at(begin), self.token_at(len(said)), self.token_at(common(upto, self.text))
        ends = [at for at in range(behind, end) if self.ids[at] in self.special]
        if ends:
            end = ends[-1] + 1
        elif end < len(self.ids) and self.ids[end] in self.special:
            end += 1
        return (first, end) if end > first else None


class Converted:
    """All chats, as they are written, and what is to be said of them."""

    def __init__(self):
        self.ids, self.mask, self.lengths = array.array("i"), bytearray(), []
        self.context, self.open, self.bad, self.chats, self.ends, self.long = 0, 0, 0, 0, {}, 0

    def add(self, ids, mask):
        self.ids.extend(ids)
        self.mask.extend(mask)
        self.lengths.append(len(ids))

    def add_turns(self, chat, turns):
        mask = [0] * len(chat.ids)
        for begin, end in turns:
            mask[begin:end] = [1] * (end - begin)
            last = chat.ids[end - 1]
            self.open += last not in chat.special
            self.ends[last] = self.ends.get(last, 0) + 1
        self.add(chat.ids, mask)


def convert_chat(made, tokenizer, line, options):
    messages, tools = messages_of(line, options.field), line.get("tools")
    if options.labels == "all":
        chat = Chat(tokenizer, messages, tools)
        return made.add(chat.ids, [1] * len(chat.ids))
    if "endgeneration" in str(tokenizer.chat_template):
        found = tokenizer.apply_chat_template(
            messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True, **({"tools": tools} if tools is not None else {}))
        mask = [int(bool(m)) for m in found["assistant_masks"]]
        if not any(mask):
            raise Refused("no turn of the assistant")
        return made.add([int(i) for i in found["input_ids"]], mask)
    chat = Chat(tokenizer, messages, tools)
    assistant = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    if not assistant:
        raise Refused("no turn of the assistant")
    turns = [(i, chat.turn(i)) for i in assistant]
    rewritten = [i for i, turn in turns if turn is None]
    alone = [(Chat(tokenizer, messages[: i + 1], tools), i) for i in rewritten] if options.every_turn else []
    alone = [(part, turn) for part, i in alone if (turn := part.turn(i))]
    kept = [turn for _, turn in turns if turn]
    if not kept and not alone:
        raise Refused("the template renders no turn of the assistant as it would be generated")
    for part, turn in alone:
        made.add_turns(part, [turn])
    if kept:
        made.add_turns(chat, kept)
    made.context += len(rewritten) - len(alone)


def convert_pair(made, tokenizer, line, options):
    if "chosen" not in line or "rejected" not in line:
        raise Refused(f"no chosen and rejected; its keys are {', '.join(map(str, line)) or 'none'}")
    pair = []
    for answer in (line["chosen"], line["rejected"]):
        whole = {"messages": answer} if "prompt" not in line else {"prompt": line["prompt"], "completion": answer}
        chat = Chat(tokenizer, messages_of(whole, "messages"), line.get("tools"))
        if chat.messages[-1]["role"] != "assistant":
            raise Refused("the last turn isn't the assistant's")
        turn = chat.turn(len(chat.messages) - 1)
        if turn is None or turn[0] == 0:
            raise Refused("the template renders no turn of the assistant as it would be generated")
        pair.append((chat, turn))
    if pair[0][0].ids == pair[1][0].ids:
        raise Refused("chosen and rejected are the same")
    if options.most_tokens and sum(len(chat.ids) for chat, _ in pair) > options.most_tokens:
        made.long += 1
        return
    for chat, turn in pair:
        made.add_turns(chat, [turn])


def convert(tokenizer, options):
    made = Converted()
    for path in options.files:
        for where, text in lines_of(path):
            made.chats += 1
            try:
                line = mended(json.loads(text))
                if not isinstance(line, dict):
                    raise Refused(f"no JSON object, but {type(line).__name__}")
                (convert_pair if options.pairs else convert_chat)(made, tokenizer, line, options)
            except Exception as error:  # templates raise anything
                made.bad += 1
                kind = "" if isinstance(error, Refused) else "no JSON object: " if isinstance(error, json.JSONDecodeError) else "the template fails: "
                if made.bad <= NAMED:
                    print(f"prepare_chat: {where}: {kind}{error}", file=sys.stderr)
    if not made.chats:
        raise Refused("no chat in " + ", ".join(options.files))
    if made.long and not made.lengths:
        raise Refused(f"all pairs are longer than --most-tokens {options.most_tokens}")
    if made.bad * 100 > options.most_bad * made.chats or not made.lengths:
        raise Refused(f"{made.bad} of {made.chats} chats are bad; legal: at most {options.most_bad:g} % of them (--most-bad)")
    if made.open and made.open == sum(made.ends.values()):
        raise Refused("the template puts no special token behind any turn of the assistant, so that a model would learn no end; "
                      "legal: --chat-template with one that does")
    return made


def npy_header(count):
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({count},), }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def write(output, vocabulary, made):
    narrow = vocabulary <= 65536
    tokens = array.array("H", made.ids) if narrow else made.ids
    if sys.byteorder == "big":
        tokens.byteswap()
    starts = [0]
    for length in made.lengths:
        starts.append(starts[-1] + length)
    n = len(made.lengths)
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8 if narrow else 4, n, n + 1)
    index += struct.pack(f"<{n}i", *made.lengths)
    index += struct.pack(f"<{n}q", *(start * tokens.itemsize for start in starts[:-1]))
    index += struct.pack(f"<{n + 1}q", *range(n + 1))
    stem = output[: -len(".bin")]
    files = {output: tokens.tobytes(), stem + ".mask.npy": npy_header(len(made.mask)) + bytes(made.mask), stem + ".idx": index}
    os.makedirs(os.path.dirname(output) or ".", exist_ok=True)
    try:
        for path, contents in files.items():
            with open(path + ".partial", "wb") as file:
                file.write(contents)
                file.flush()
                os.fsync(file.fileno())
        for path in files:
            os.replace(path + ".partial", path)
    finally:
        for path in files:
            if os.path.exists(path + ".partial"):
                os.remove(path + ".partial")
    return list(files)


def write_tokenizer(directory, source, template, eos):
    """The files of a tokenizer with another chat template or end token."""
    partial = directory + ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    try:
        for name in sorted(os.listdir(source)):
            weights = name.endswith((".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")) or name in ("config.json", "generation_config.json")
            if os.path.isfile(os.path.join(source, name)) and not weights:
                shutil.copyfile(os.path.join(source, name), os.path.join(partial, name))
        path = os.path.join(partial, "tokenizer_config.json")
        config = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                config = json.load(file)
        config.pop("chat_template", None)
        if eos is not None:
            config["eos_token"] = eos
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2, ensure_ascii=False)
        with open(os.path.join(partial, "chat_template.jinja"), "w", encoding="utf-8") as file:
            file.write(template)
        earlier = os.path.join(directory, "chat_template.jinja")
        if os.path.exists(earlier) and not filecmp.cmp(earlier, os.path.join(partial, "chat_template.jinja"), shallow=False):
            print(f"{directory} had another template: it is replaced")
        shutil.rmtree(directory, ignore_errors=True)
        os.rename(partial, directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def chatml(tokenizer):
    """ChatML, whose turns end with <|im_end|> where that is one token, else with the eos_token."""
    end = "<|im_end|>"
    if len(tokenizer(end, add_special_tokens=False)["input_ids"]) != 1:
        end = tokenizer.eos_token
    if not end:
        raise Refused("--chat-template chatml: the vocabulary has neither <|im_end|> nor an eos_token to end a turn with; legal: a file with a template")
    return CHATML.replace("END", repr(end))


def load_tokenizer(line):
    if os.path.isfile(line.tokenizer):
        raise Refused(f"{line.tokenizer}: a file; legal: its directory, {os.path.dirname(line.tokenizer) or '.'}")
    if not os.path.isdir(line.tokenizer):
        raise Refused(f"{line.tokenizer}: no directory here; of a name on the hub: hf download {line.tokenizer} --local-dir DIRECTORY")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # of PyTorch, which no tokenizer needs
    try:
        from transformers import AutoTokenizer
        import jinja2  # noqa: F401  transformers asks for it when it renders
    except ImportError as error:
        raise Refused(f"the package {error.name} is missing: pip install -r jobscripts/requirements.txt") from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(line.tokenizer, local_files_only=True)
    except Exception as error:
        below = os.path.join(line.tokenizer, "hf")
        if os.path.isdir(below):  # of a run
            raise Refused(f"{line.tokenizer}: a directory without a tokenizer; legal: a Hugging Face directory, here {below}") from error
        raise Refused(f"{line.tokenizer}: no tokenizer that transformers reads: {str(error).splitlines()[0]}") from error
    if line.chat_template == "chatml":
        tokenizer.chat_template = chatml(tokenizer)
    elif line.chat_template and not os.path.isfile(line.chat_template):
        raise Refused(f"--chat-template {line.chat_template}: no file; legal: a file with a template, or chatml")
    elif line.chat_template:
        with open(line.chat_template, encoding="utf-8") as file:
            tokenizer.chat_template = file.read()
    if not tokenizer.chat_template:
        raise Refused(f"{line.tokenizer} has no chat template; legal: --chat-template with a file, such as the instruct model's chat_template.jinja, or chatml")
    if isinstance(tokenizer.chat_template, dict):
        names = tokenizer.chat_template
        if "default" not in names:
            raise Refused(f"{line.tokenizer} has the chat templates {', '.join(names)}, and none is the default; legal: --chat-template FILE")
        tokenizer.chat_template = names["default"]
    return tokenizer


def report(made, options, tokenizer, files):
    if options.pairs:
        both = [a + b for a, b in zip(made.lengths[::2], made.lengths[1::2])]
        print(f"{len(both)} pairs, the longest of {max(both)} tokens, which train.sequence_tokens must hold")
    if made.long:
        print(f"{made.long} pairs are left out, which are longer than --most-tokens {options.most_tokens}")
    print(f"{len(made.lengths)} chats, {len(made.ids)} tokens, {sum(made.mask)} of them labels: {', '.join(files)}")
    if made.bad:
        print(f"{made.bad} of {made.chats} chats are left out")
    if made.context:
        print(f"{made.context} earlier turns have no labels, since the template renders them otherwise in a longer chat; --every-turn adds them as chats of their own")
    if made.open:
        print(f"{made.open} turns end without a special token: the template has none behind them")
    most = max(made.ends, key=made.ends.get) if made.ends else None
    eos = tokenizer.convert_ids_to_tokens(most) if most is not None and made.open * 2 < sum(made.ends.values()) else None
    if eos == tokenizer.eos_token:
        eos = None
    stem = options.output[: -len(".bin")]
    deck = f"  data: {{files: [{options.output}], mask_files: [{stem}.mask.npy], document_ends: index, packing: {'pairs' if options.pairs else 'best_fit'}, positions: document}}"
    if options.pairs:
        deck = "  preference: {name: dpo}\n" + deck
    if options.chat_template or eos:
        write_tokenizer(stem + "_tokenizer", options.tokenizer, tokenizer.chat_template, eos)
        deck = f"  model: {{hf: {options.tokenizer}, tokenizer: {stem}_tokenizer}}\n{deck}"
    print(f"for the deck:\n{deck}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--output", required=True)
    parser.add_argument("--field", default="messages")
    parser.add_argument("--chat-template")
    parser.add_argument("--every-turn", action="store_true")
    parser.add_argument("--labels", choices=["assistant", "all"], default="assistant")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--most-tokens", type=int)
    parser.add_argument("--most-bad", type=float, default=1)
    line = parser.parse_args()
    if line.most_tokens and not line.pairs:
        parser.error(f"--most-tokens {line.most_tokens} without --pairs: a longer chat is cut by the training")
    if line.pairs and (line.labels == "all" or line.every_turn or line.field != "messages"):
        parser.error("--pairs with --labels all, --every-turn or --field: labels are the last turns")
    if not line.output.endswith(".bin"):
        parser.error(f"--output {line.output}: legal: a name that ends in .bin")
    try:
        tokenizer = load_tokenizer(line)
        made = convert(tokenizer, line)
        if min(made.ids) < 0 or max(made.ids) >= len(tokenizer):
            raise Refused(f"an id outside the vocabulary of {len(tokenizer)}")
        report(made, line, tokenizer, write(line.output, len(tokenizer), made))
    except OSError as error:
        print(f"prepare_chat: {error.filename}: {error.strerror}" if error.filename else f"prepare_chat: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, (FileNotFoundError, IsADirectoryError, NotADirectoryError)) else 5)
    except Refused as error:
        print(f"prepare_chat: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
