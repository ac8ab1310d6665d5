#!/usr/bin/env python3
"""Makes tests/data/arrow: records as the package datasets, pyarrow, pandas and polars save them.

    python3 tools/make_arrow_golden.py tests/data/arrow

Made with datasets 5.2.0, pyarrow 26.0.1, pandas 3.1.1 and polars 2.1.0; polars1.arrow with polars
1.9.0 (with that version, the script makes no other file). saved.arrow is a stream (save_to_disk, in batches of 2
records), file.arrow an Arrow file, packed.arrow a compressed one, and records.jsonl has the records
of the first two without members that are null. json.arrow and json.parquet have columns of the type
Json, and json.jsonl has their records. types.arrow, types.parquet and pandas.arrow have columns of
all other types, and so have polars1.arrow and polars2.arrow.
"""
import datetime
import decimal
import json
import pathlib
import shutil
import sys
import tempfile

import polars
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

RECORDS = [
    {"messages": [{"role": "user", "content": "Hé?"}, {"role": "assistant", "content": "\"Ja\"\n"}],
     "input_ids": [1, -2, 70000], "score": 0.5, "good": True, "empty": None, "n": 2 ** 40},
    {"messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": None}],
     "input_ids": [], "score": -1.25, "good": False, "empty": None, "n": -1},
    {"messages": None, "input_ids": None, "score": None, "good": None, "empty": None, "n": None},
    {"messages": [], "input_ids": [5], "score": 3e300, "good": True, "empty": None, "n": 0},
    {"messages": [{"role": "system", "content": "x" * 300}], "input_ids": list(range(40)),
     "score": 0.0, "good": None, "empty": None, "n": 7},
]


# Members whose types or members differ, and texts that are almost JSON.
JSON_RECORDS = [
    {"top": "yes", "list": [{"role": "user", "content": "a\n\"b\""}, None], "in": {"x": {"city": "é"}}},
    {"top": 42, "list": [], "in": {"x": [1, 2.5, True, None]}},
    {"list": [{"role": "tool", "calls": [{"n": {"k": None}}]}, "3."], "in": {}},
    {"top": [{"type": "text"}], "list": [], "in": {"x": "{"}},
]


LONG = "a text of more than twelve bytes"
WHEN = datetime.datetime(2024, 2, 29, 23, 59, 58, 123456)
UNREAD = {"unread": True}
# By column: type, two values (the second record also has nulls), their JSON values.
TYPES = {
    "text": (pa.string(), ["plain", LONG], ["plain", LONG]),
    "view": (pa.string_view(), [LONG, "é"], [LONG, "é"]),
    "views": (pa.list_(pa.string_view()), [["a", LONG * 2, None], []], [["a", LONG * 2, None], []]),
    "kind": (pa.dictionary(pa.int8(), pa.string()), ["b", "a"], ["b", "a"]),
    "kinds": (pa.list_(pa.dictionary(pa.int32(), pa.large_string())), [["x", None], ["y", "x"]],
              [["x", None], ["y", "x"]]),
    "level": (pa.dictionary(pa.uint16(), pa.int64()), [-7, None], [-7, None]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], []],
            [[{"key": "a", "value": 1}, {"key": "b"}], []]),
    "pair": (pa.list_(pa.float32(), 2), [[0.5, -1], None], [[0.5, -1.0], None]),
    "time": (pa.time64("us"), [WHEN.time(), None], ["23:59:58.123456", None]),
    "second": (pa.time32("s"), [WHEN.time().replace(microsecond=0), None], ["23:59:58", None]),
    "duration": (pa.duration("ms"), [datetime.timedelta(seconds=1.5), None], [1500, None]),
    "when": (pa.timestamp("us"), [WHEN, None], ["2024-02-29T23:59:58.123456", None]),
    "price": (pa.decimal128(9, 2), [decimal.Decimal("-12.05"), None], [-12.05, None]),
    "half": (pa.float16(), [0.5, None], [0.5, None]),
    "bytes": (pa.binary(), [b"text", b"\xff\xd8\xff"], ["text", UNREAD]),
    "uuid": (pa.binary(16), [bytes(range(16)), None], [UNREAD, None]),
    "huge": (pa.decimal128(38, 0), [decimal.Decimal(10 ** 21), decimal.Decimal(-5)], [UNREAD, -5]),
    "far": (pa.timestamp("s"), [2 ** 50, 0], [UNREAD, "1970-01-01T00:00:00"]),
}


def write_types(out):
    made = {name: pa.array(values, type) for name, (type, values, _) in TYPES.items()}
    table = pa.table(made | {"nest": pa.StructArray.from_arrays([made["bytes"]], ["bytes"])})
    pyarrow.feather.write_feather(table, out / "types.arrow", compression="uncompressed",
                                  chunksize=1)
    pyarrow.parquet.write_table(table, out / "types.parquet", store_schema=False)
    frame = table.select(["text", "kind", "pair", "time", "duration", "when"]).to_pandas()
    frame.to_feather(out / "pandas.arrow", compression="uncompressed")
    records = [{name: json[i] for name, (_, _, json) in TYPES.items()} for i in range(2)]
    with open(out / "types.jsonl", "w", encoding="utf-8") as lines:
        for record in records:
            lines.write(json.dumps(without_null(record | {"nest": {"bytes": record["bytes"]}})) + "\n")


def write_polars(out):
    columns = {name: TYPES[name][1] for name in ("text", "view", "views", "when", "bytes", "price")}
    schema = {"kind": polars.Categorical, "kinds": polars.List(polars.Enum(["x", "y"])),
              "pair": polars.Array(polars.Float32, 2), "duration": polars.Duration("ms")}
    frame = polars.DataFrame(columns | {name: TYPES[name][1] for name in schema},
                             schema_overrides=schema)
    frame.write_ipc(out / f"polars{polars.__version__[0]}.arrow")


def write_json(datasets, out):
    features = datasets.Features({"top": datasets.Json(), "list": [datasets.Json()],
                                  "in": {"x": datasets.Json()}})
    records = [{"top": None} | one | {"in": {"x": None} | one["in"]} for one in JSON_RECORDS]
    made = datasets.Dataset.from_list(records, features=features)
    with tempfile.TemporaryDirectory() as folder:
        made.save_to_disk(folder)
        file, = pathlib.Path(folder).glob("*.arrow")
        shutil.copy(file, out / "json.arrow")
    made.to_parquet(out / "json.parquet")
    with open(out / "json.jsonl", "w", encoding="utf-8") as lines:
        for record in JSON_RECORDS:
            lines.write(json.dumps(record) + "\n")


def without_null(value):
    if isinstance(value, dict):
        return {key: without_null(one) for key, one in value.items() if one is not None}
    return [without_null(one) for one in value] if isinstance(value, list) else value


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(exist_ok=True)
    write_polars(out)
    if polars.__version__.startswith("1."):
        return
    import datasets
    write_types(out)
    features = datasets.Features({
        "messages": [{"role": datasets.Value("string"), "content": datasets.Value("large_string")}],
        "input_ids": datasets.LargeList(datasets.Value("int32")),
        "score": datasets.Value("float64"), "good": datasets.Value("bool"),
        "empty": datasets.Value("null"), "n": datasets.Value("int64")})
    made = datasets.Dataset.from_list(RECORDS, features=features)
    with tempfile.TemporaryDirectory() as folder:
        made.save_to_disk(folder)
        file, = pathlib.Path(folder).glob("*.arrow")
        shutil.copy(file, out / "saved.arrow")
    table = made.data.table.cast(pa.schema([
        field if field.name != "score" else pa.field("score", pa.float64())
        for field in made.data.table.schema]))
    pyarrow.feather.write_feather(table, out / "file.arrow", compression="uncompressed", chunksize=2)
    pyarrow.feather.write_feather(table, out / "packed.arrow", compression="zstd")
    write_json(datasets, out)
    with open(out / "records.jsonl", "w", encoding="utf-8") as lines:
        for record in RECORDS:
            lines.write(json.dumps(without_null(record)) + "\n")


if __name__ == "__main__":
    main()
