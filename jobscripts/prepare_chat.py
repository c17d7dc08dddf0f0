#!/usr/bin/env python3
"""prepare_chat.py TOKENIZER FILE.jsonl… --output chat.bin [--field messages] [--labels assistant|all]

Chats as token files for fine-tuning. Each line of a file is an object whose field (default "messages") is a list of {"role", "content"}; the
chat template of TOKENIZER, a Hugging Face directory, makes tokens of it (PyPI: transformers). Writes, of --output chat.bin:

  chat.bin, chat.idx   a Megatron pair: the ids, and where each chat begins
  chat.mask.npy        of each token 1 where it may be a label: what the assistant says and what ends its turn; --labels all: every token

A template that marks generations says itself what the assistant says. For any other, the tokens of the first i messages must begin those of
the whole chat: a turn is what its message adds. A chat that breaks this, or has no turn of the assistant, is an error that names its line.
Nothing is left behind by a failure."""
import argparse
import array
import json
import os
import struct
import sys


class Refused(Exception):
    pass


def ids_of(tokenizer, messages, **options):
    made = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, **options)
    return [int(i) for i in made["input_ids"]], made


def marked(tokenizer, messages):
    """Tokens and mask by the template's own marks."""
    ids, made = ids_of(tokenizer, messages, return_assistant_tokens_mask=True)
    return ids, [int(bool(m)) for m in made["assistant_masks"]]


def by_prefixes(tokenizer, messages):
    """Tokens and mask by what each message of the assistant adds."""
    ids, _ = ids_of(tokenizer, messages)
    mask = [0] * len(ids)
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        begin, _ = ids_of(tokenizer, messages[:i], add_generation_prompt=True) if i > 0 else ([], None)
        end, _ = ids_of(tokenizer, messages[: i + 1])
        if ids[: len(begin)] != begin or ids[: len(end)] != end or len(end) <= len(begin):
            raise Refused(f"message {i}: its tokens depend on other messages than those before; the template has to mark generations")
        mask[len(begin) : len(end)] = [1] * (len(end) - len(begin))
    return ids, mask


def check(messages):
    if not isinstance(messages, list) or not messages:
        raise Refused("no list of messages")
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str) or "content" not in message:
            raise Refused('a message that isn\'t {"role": …, "content": …}')


def chats(paths, field):
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                where = f"{path}:{number}"
                try:
                    yield where, json.loads(line).get(field)
                except (ValueError, AttributeError) as error:
                    raise Refused(f"{where}: no JSON object: {error}") from error


def convert(tokenizer, paths, field, labels):
    """The ids of all chats, their mask, and the length of each."""
    ids, mask, lengths = array.array("i"), bytearray(), []
    template = tokenizer.chat_template
    if not template:
        raise Refused("the tokenizer has no chat template")
    marks = "generation" in str(template) and "endgeneration" in str(template)
    for where, messages in chats(paths, field):
        try:
            check(messages)
            if labels == "all":
                tokens, _ = ids_of(tokenizer, messages)
                keep = [1] * len(tokens)
            else:
                tokens, keep = (marked if marks else by_prefixes)(tokenizer, messages)
                if not any(keep):
                    raise Refused("no turn of the assistant")
        except Refused as error:
            raise Refused(f"{where}: {error}") from error
        if len(tokens) != len(keep):
            raise Refused(f"{where}: {len(tokens)} tokens, {len(keep)} of the mask")
        ids.extend(tokens)
        mask.extend(keep)
        lengths.append(len(tokens))
    if not lengths:
        raise Refused("no chat in " + ", ".join(paths))
    return ids, mask, lengths


def npy_header(count):
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({count},), }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def write(output, vocabulary, ids, mask, lengths):
    narrow = vocabulary <= 65536
    tokens = array.array("H", ids) if narrow else ids
    if sys.byteorder == "big":
        tokens.byteswap()
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    n = len(lengths)
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8 if narrow else 4, n, n + 1)
    index += struct.pack(f"<{n}i", *lengths)
    index += struct.pack(f"<{n}q", *(start * tokens.itemsize for start in starts[:-1]))
    index += struct.pack(f"<{n + 1}q", *range(n + 1))
    stem = output[: -len(".bin")]
    files = {output: tokens.tobytes(), stem + ".mask.npy": npy_header(len(mask)) + bytes(mask), stem + ".idx": index}
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tokenizer")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--output", required=True)
    parser.add_argument("--field", default="messages")
    parser.add_argument("--labels", choices=["assistant", "all"], default="assistant")
    line = parser.parse_args()
    if not line.output.endswith(".bin"):
        parser.error(f"--output {line.output}: legal: a name that ends in .bin")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(line.tokenizer)
    try:
        ids, mask, lengths = convert(tokenizer, line.files, line.field, line.labels)
        if min(ids) < 0 or max(ids) >= len(tokenizer):
            raise Refused(f"an id outside the vocabulary of {len(tokenizer)}")
        files = write(line.output, len(tokenizer), ids, mask, lengths)
    except (Refused, OSError) as error:
        sys.exit(f"prepare_chat: {error}")
    print(f"{len(lengths)} chats, {len(ids)} tokens, {sum(mask)} of them labels: {', '.join(files)}")


if __name__ == "__main__":
    main()
