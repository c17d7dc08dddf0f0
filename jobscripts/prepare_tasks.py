#!/usr/bin/env python3
"""prepare_tasks.py TOKENIZER FILE.jsonl --output task.jsonl [--begin] [--forge build/cpu/forge]

Multiple-choice questions as ids, for data.tasks of a deck: the accuracies of the file are a training's, at the start and at each validation.
TOKENIZER is a file or directory that `forge tokenize` reads. A line is a map:

  "context" or "question"   the text before a choice; "question" becomes "Question: …\nAnswer:"
  "choices"                 texts, at least two; a space goes before one that begins with none
  "answer"                  the right one: its number, from 0, its letter, from A, or its text

As lm-eval does it, context and choice are tokenized as one text, whose tokens behind those of the context are the choice's, and accuracies are
also by the characters of the choices. --begin puts the id that begins a document before each context, where the model was trained so. Nothing is
left behind by a failure."""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from refusal import Refused, ended


def question_of(line, place):
    """(context, choices, number of the right one)."""
    if not isinstance(line, dict):
        raise Refused(f"{place}: no map")
    context, choices, answer = line.get("context"), line.get("choices"), line.get("answer")
    if context is None and isinstance(line.get("question"), str):
        context = f"Question: {line['question']}\nAnswer:"
    if not isinstance(context, str) or not context.strip():
        raise Refused(f"{place}: no text as context or question")
    if not isinstance(choices, list) or len(choices) < 2 or not all(isinstance(c, str) and c.strip() for c in choices):
        raise Refused(f"{place}: choices is no list of at least two texts")
    if isinstance(answer, str) and answer in choices:
        answer = choices.index(answer)
    elif isinstance(answer, str) and len(answer) == 1 and "A" <= answer <= "Z":
        answer = ord(answer) - ord("A")
    if type(answer) is not int or not 0 <= answer < len(choices):
        raise Refused(f"{place}: answer is neither the number, the letter nor the text of a choice")
    return context.rstrip(), [c if c[0].isspace() else " " + c for c in choices], answer


def read(path):
    questions = []
    if not os.path.isfile(path):
        raise Refused(f"{path}: no such file")
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            place = f"{path}, line {number}"
            try:
                questions.append(question_of(json.loads(line), place))
            except json.JSONDecodeError as error:
                raise Refused(f"{place}: no JSON: {error}") from error
    if not questions:
        raise Refused(f"{path}: no questions")
    return questions


def ids_of(texts, line, work):
    """Of each text, by forge tokenize: a token file with an index of its documents' ends."""
    lines, tokens = Path(work, "texts.jsonl"), Path(work, "texts.ds")
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    call = [line.forge, "tokenize", str(lines), "--tokenizer", line.tokenizer, "--format", "ds", "--output", str(tokens)]
    done = subprocess.run(call + ["--document-begin"] * line.begin, capture_output=True, text=True)
    if done.returncode:
        raise Refused(done.stderr.strip())
    index, raw = Path(f"{tokens}.index").read_bytes(), tokens.read_bytes()
    ends = struct.unpack(f"<{len(index) // 8}Q", index)
    if len(ends) != len(texts):
        raise Refused(f"{line.tokenizer}: {len(texts)} texts became {len(ends)} documents")
    ids = struct.unpack(f"<{ends[-1]}{'H' if len(raw) == 2 * ends[-1] else 'I'}", raw)
    return [list(ids[begin:end]) for begin, end in zip((0, *ends), ends)]


def convert(line):
    questions = read(line.file)
    texts = [text for context, choices, _ in questions for text in (context, *(context + choice for choice in choices))]
    with tempfile.TemporaryDirectory() as work:
        ids = iter(ids_of(texts, line, work))
    partial = f"{line.output}.partial"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            for context, choices, answer in questions:
                begin = next(ids)
                own = [next(ids)[len(begin) :] for _ in choices]
                if not begin or not all(own):
                    raise Refused(f"{line.tokenizer}: a context or a choice of {json.dumps(context)} has no token of its own")
                row = {"context": begin, "choices": own, "characters": [len(choice.strip()) for choice in choices], "answer": answer}
                file.write(json.dumps(row) + "\n")
        os.replace(partial, line.output)
    finally:
        Path(partial).unlink(missing_ok=True)
    print(f"{line.output}: {len(questions)} questions; for the deck:\n  data: {{tasks: [{line.output}]}}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("file")
    parser.add_argument("--output", required=True)
    parser.add_argument("--begin", action="store_true")
    parser.add_argument("--forge", default=str(Path(__file__).parents[1] / "build/cpu/forge"))
    line = parser.parse_args()
    sys.exit(ended("prepare_tasks", lambda: convert(line)))


if __name__ == "__main__":
    main()
