"""TensorBoard's event files, read by their format alone: TFRecords with their checks, and the fields of tensorflow.Event."""

import struct


def table():
    rows = []
    for i in range(256):
        for _ in range(8):
            i = (i >> 1) ^ (0x82F63B78 if i & 1 else 0)
        rows.append(i)
    return rows


TABLE = table()


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    """The events' bytes. ValueError: a record is torn, or its check is wrong."""
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        event = data[at + 12 : at + 12 + size]
        if struct.unpack_from("<I", data, at + 8)[0] != masked_crc(data[at : at + 8]):
            raise ValueError(f"the check of the length at byte {at}")
        if struct.unpack_from("<I", data, at + 12 + size)[0] != masked_crc(event):
            raise ValueError(f"the check of the event at byte {at}")
        yield event
        at += size + 16


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """Field numbers of a protocol buffer, each with its values: integers, numbers, or bytes."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            size, form = {1: (8, "<d"), 5: (4, "<f")}[kind]
            value, at = struct.unpack_from(form, data, at)[0], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def doubles(data):
    return list(struct.unpack(f"<{len(data) // 8}d", data))


def value_of(value):
    """Of a Summary.Value: a number, a text, or a histogram as a dictionary."""
    if 2 in value:
        return value[2][0]
    if 8 in value:
        if fields(fields(value[9][0])[1][0])[1] != [b"text"] or fields(value[8][0])[1] != [7]:
            raise ValueError("a tensor that is no text")
        return fields(value[8][0])[8][0].decode()
    told = fields(value[5][0])
    return {"min": told[1][0], "max": told[2][0], "num": told[3][0], "sum": told[4][0], "squares": told[5][0],
            "limits": doubles(told[6][0]), "counts": doubles(told[7][0])}


def read(path, values):
    """Adds a file's values to {tag: [(step, value)]} as TensorBoard does: a start ends what earlier files have from its step on."""
    for number, data in enumerate(records(path.read_bytes())):
        event = fields(data)
        step = event.get(2, [0])[0]
        if (number == 0) != (event.get(3) == [b"brain.Event:2"]):
            raise ValueError(f"event {number} of {path}: {event}")
        if 7 in event and fields(event[7][0]) == {1: [1]}:
            for tag in values:
                values[tag] = [(s, v) for s, v in values[tag] if s < step]
        for value in map(fields, fields(event[5][0])[1] if 5 in event else []):
            values.setdefault(value[1][0].decode(), []).append((step, value_of(value)))
    return values
