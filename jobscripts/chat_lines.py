"""Lines of chats as lists of messages: "messages", ShareGPT's "conversations", "prompt" with "completion". Serves prepare_chat.py."""
import gzip

from refusal import Refused

SHAREGPT = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant", "system": "system", "tool": "tool",
            "observation": "tool", "function_call": "assistant"}


def mended(value):
    """JSON as Python reads it, halves of surrogate pairs as U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [mended(item) for item in value]
    if isinstance(value, dict):
        return {key: mended(item) for key, item in value.items()}
    return value


def text_of(content):
    """A message's content: text, or parts that are text."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Refused(f"a content that is {type(content).__name__}; legal: text, or a list of parts of text")
    parts = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) and part.get("type", "text") == "text" else part
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise Refused(f"a part of a content is of the type {kind}; legal: text")
        parts.append(text)
    return "".join(parts)


def checked(messages):
    if not isinstance(messages, list) or not messages:
        raise Refused("no list of messages")
    made = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str) or not ("content" in message or message.get("tool_calls")):
            raise Refused('a message that isn\'t {"role": …, "content": …}')
        made.append({**message, "content": text_of(message.get("content"))})
    return made


def from_sharegpt(turns):
    if not isinstance(turns, list) or not all(isinstance(turn, dict) and "from" in turn and "value" in turn for turn in turns):
        raise Refused('conversations that aren\'t a list of {"from": …, "value": …}')
    for turn in turns:
        if turn["from"] not in SHAREGPT:
            raise Refused(f"a turn from {turn['from']}; legal: {', '.join(SHAREGPT)}")
    return [{"role": SHAREGPT[turn["from"]], "content": turn["value"]} for turn in turns]


def messages_of(line, field):
    if field in line:
        found = line[field]
        if isinstance(found, list) and found and isinstance(found[0], dict) and "from" in found[0]:
            found = from_sharegpt(found)
    elif field == "messages" and "conversations" in line:
        found = from_sharegpt(line["conversations"])
    elif field == "messages" and "prompt" in line and "completion" in line:
        sides = [("user", line["prompt"]), ("assistant", line["completion"])]
        found = [message for role, side in sides for message in (side if isinstance(side, list) else [{"role": role, "content": side}])]
    else:
        raise Refused(f"no {field}; its keys are {', '.join(map(str, line)) or 'none'}; legal: messages, conversations, prompt with completion, or --field")
    return checked(found)


def lines_of(path):
    """Numbered lines of a file, decompressed where it is gzip's."""
    with open(path, "rb") as file:
        magic = file.read(4)
    if magic[:4] == b"\x28\xb5\x2f\xfd" or magic[:3] in (b"BZh", b"\xfd7z", b"PK\x03") or magic == b"PAR1":
        raise Refused(f"{path}: compressed, or no lines; legal: JSON lines as text or in gzip")
    if magic[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise Refused(f"{path}: UTF-16 text; legal: JSON lines in UTF-8, as iconv -f UTF-16 -t UTF-8 writes them")
    opened = gzip.open(path, "rb") if magic[:2] == b"\x1f\x8b" else open(path, "rb")
    try:
        with opened as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if number == 1 and line.lstrip().startswith(b"["):
                    raise Refused(f"{path}: an array of JSON; legal: an object on each line, as jq -c .[] writes them")
                if line.strip():
                    yield f"{path}:{number}", line.decode("utf-8", "replace")
    except (EOFError, gzip.BadGzipFile, gzip.zlib.error) as error:
        raise Refused(f"{path}: broken gzip data: {error}") from error
