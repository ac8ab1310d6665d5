"""Writes GGUF files with other keys, such as another chat template, for tests on a small model.
Format: github.com/ggml-org/ggml/blob/master/docs/gguf.md (version 3)."""
import struct

STRING, ARRAY = 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
ALIGNMENT = 32


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        self.at += size
        return self.data[self.at - size:self.at]

    def number(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]

    def string(self):
        return self.take(self.number("Q"))

    def skip(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            inner, count = self.number("I"), self.number("Q")
            for _ in range(count):
                self.skip(inner)
        else:
            self.take(SIZES[kind])


def string(data):
    return struct.pack("<Q", len(data)) + data


def value(given):
    """A key's type and value: bool, float32, int32 or string."""
    if isinstance(given, bool):
        return struct.pack("<IB", 7, given)
    if isinstance(given, float):
        return struct.pack("<If", 6, given)
    if isinstance(given, int):
        return struct.pack("<Ii", 5, given)
    return struct.pack("<I", STRING) + string(given.encode())


def rewrite(source, target, change, added, keeps=lambda tensor: True):
    """Copies `source` to `target` with each entry replaced by change(key, entry) (None: removed),
    plus the entries of `added`, and with the tensors whose names `keeps` takes."""
    with open(source, "rb") as file:
        data = file.read()
    reader = Reader(data)
    magic, version = reader.take(4), reader.number("I")
    assert magic == b"GGUF" and version == 3
    tensors, entries = reader.number("Q"), reader.number("Q")
    kept = []
    for _ in range(entries):
        begin = reader.at
        key = reader.string()
        reader.skip(reader.number("I"))
        entry = change(key, data[begin:reader.at])
        if entry is not None:
            kept.append(entry)
    kept += added(kept)
    infos = []
    for _ in range(tensors):
        begin = reader.at
        name = reader.string()
        reader.take(8 * reader.number("I") + 4 + 8)
        if keeps(name.decode()):
            infos.append(data[begin:reader.at])
    tensor_data = data[(reader.at + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT:]
    head = magic + struct.pack("<IQQ", version, len(infos), len(kept)) + b"".join(kept + infos)
    head += b"\0" * (-len(head) % ALIGNMENT)
    with open(target, "wb") as out:
        out.write(head + tensor_data)


def with_keys(source, target, keys):
    """Copies `source` to `target` with these keys (name: value) replaced."""
    rewrite(source, target, lambda key, entry: None if key.decode() in keys else entry,
            lambda _: [string(key.encode()) + value(given) for key, given in keys.items()])


def with_layers(source, target, layers):
    """Copies `source`, a Llama, to `target` with its first layers only."""
    def keeps(tensor):
        return not tensor.startswith("blk.") or int(tensor.split(".")[1]) < layers

    rewrite(source, target,
            lambda key, entry: None if key == b"llama.block_count" else entry,
            lambda _: [string(b"llama.block_count") + value(layers)], keeps)


def with_template(source, target, template, context=8192):
    """Copies `source` to `target` with `template` and that context. If the file has no begin token,
    token 0 becomes it, because templates write it."""
    def change(key, entry):
        if key == b"tokenizer.chat_template":
            return None
        longer = key.endswith(b".context_length")
        return string(key) + struct.pack("<II", 4, context) if longer else entry

    def added(kept):
        entries = [string(b"tokenizer.chat_template") + value(template)]
        if not any(b"tokenizer.ggml.bos_token_id" in entry[:64] for entry in kept):
            entries.append(string(b"tokenizer.ggml.bos_token_id") + struct.pack("<II", 4, 0))
        return entries

    rewrite(source, target, change, added)


def with_tokens(source, target, renamed):
    """Copies `source` to `target` with tokens of the vocabulary renamed (old: new)."""
    names = {old.encode(): new.encode() for old, new in renamed.items()}

    def change(key, entry):
        if key != b"tokenizer.ggml.tokens":
            return entry
        reader = Reader(entry)
        reader.string()
        head = reader.take(8)  # the array's type and its elements' type
        count = reader.number("Q")
        tokens = [reader.string() for _ in range(count)]
        tokens = [names.get(token, token) for token in tokens]
        return string(key) + head + struct.pack("<Q", count) + b"".join(map(string, tokens))

    rewrite(source, target, change, lambda _: [])
