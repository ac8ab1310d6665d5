#!/usr/bin/env python3
"""Makes tests/data/parquet: the same records as pyarrow, polars and duckdb write them.

    python3 tools/make_parquet_golden.py tests/data/parquet

Made with pyarrow 26.0.1, polars 2.1.0, duckdb 2.0.1 and datasets 5.2.0. records.jsonl has the records
of all files without members that are null. times.parquet and types.parquet have columns of other
types, json.parquet columns of datasets' type Json, and the JSON lines of these names their records.
"""
import datetime
import decimal
import json
import pathlib
import sys

import datasets
import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

CODECS = ["none", "snappy", "gzip", "zstd", "lz4", "brotli"]
ENCODINGS = {"text": "DELTA_BYTE_ARRAY", "id": "DELTA_BINARY_PACKED", "score": "BYTE_STREAM_SPLIT",
             "n": "DELTA_BINARY_PACKED", "source": "DELTA_LENGTH_BYTE_ARRAY",
             "messages.list.element.content": "DELTA_LENGTH_BYTE_ARRAY",
             "messages.list.element.role": "DELTA_BYTE_ARRAY", "good": "RLE",
             "input_ids.list.element": "DELTA_BINARY_PACKED"}


def record(i):
    messages = [{"role": ["user", "assistant"][j % 2], "content": f"Hé {i} \"{j}\"\n" * (j + 1)}
                for j in range(i % 4)]
    if i % 5 == 2:
        messages[-1:] = [{"role": "tool", "content": None}, None]
    return {
        "id": i * 7 - 40, "n": (-1) ** i * 2 ** (i % 63), "score": None if i % 6 == 1 else i / 8 - 1,
        "good": [True, False, None][i % 3], "source": f"source {i % 3}", "text": "word " * (i % 9),
        "messages": None if i % 7 == 3 else messages,
        "input_ids": None if i % 4 == 3 else [i * i * j - 3 for j in range(i % 13)],
        "tags": None if i % 5 == 4 else [[f"t{j}"] * j if j != 2 else None for j in range(i % 4)],
        "meta": None if i % 3 == 2 else {"url": None if i % 2 else f"u{i}", "depth": {"d": i % 2}},
    }


SCHEMA = pa.schema([
    ("id", pa.int32()), ("n", pa.int64()), ("score", pa.float64()), ("good", pa.bool_()),
    ("source", pa.string()), ("text", pa.string()),
    ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
    ("input_ids", pa.list_(pa.int32())), ("tags", pa.list_(pa.list_(pa.string()))),
    ("meta", pa.struct([("url", pa.string()), ("depth", pa.struct([("d", pa.int8())]))]))])


def without_null(value):
    if isinstance(value, dict):
        return {key: without_null(one) for key, one in value.items() if one is not None}
    return [without_null(one) for one in value] if isinstance(value, list) else value


def write_lines(path, records):
    with open(path, "w", encoding="utf-8") as lines:
        for one in records:
            lines.write(json.dumps(without_null(one)) + "\n")


def write_records(out):
    records = [record(i) for i in range(120)]
    write_lines(out / "records.jsonl", records)
    table = pa.Table.from_pylist(records, schema=SCHEMA)
    for codec in CODECS:
        pq.write_table(table, out / f"{codec}.parquet", compression=codec, row_group_size=50,
                       data_page_version="2.0" if codec in ("snappy", "lz4") else "1.0",
                       data_page_size=300, write_batch_size=8, use_dictionary=codec != "gzip")
    pq.write_table(table, out / "plain.parquet", use_dictionary=False, compression="none",
                   data_page_version="2.0", use_compliant_nested_type=False)
    for version in ("1.0", "2.0"):
        pq.write_table(table, out / f"deltas{version[0]}.parquet", use_dictionary=False,
                       column_encoding=ENCODINGS, data_page_version=version, data_page_size=300,
                       write_batch_size=16)
    frame = polars.from_arrow(table)
    frame.write_parquet(out / "polars.parquet", row_group_size=64, data_page_size=500)
    duckdb.sql(f"COPY (SELECT * FROM '{out}/none.parquet') TO '{out}/duckdb.parquet' (FORMAT parquet)")
    duckdb.sql(f"COPY (SELECT * FROM '{out}/none.parquet') TO '{out}/duckdb2.parquet' "
               "(FORMAT parquet, PARQUET_VERSION v2, CODEC lz4_raw, ROW_GROUP_SIZE 2048)")


def write_times(out):
    when = datetime.datetime(2024, 2, 29, 23, 59, 58, 123456)
    old = datetime.datetime(1969, 12, 31, 23, 59, 59, 500000)
    columns = {
        "day": pa.array([when.date(), old.date()], pa.date32()),
        "ms": pa.array([when.replace(microsecond=123000), old], pa.timestamp("ms")),
        "us": pa.array([when, old], pa.timestamp("us", tz="UTC")),
        "price": pa.array([decimal.Decimal("-12.05"), decimal.Decimal("0.07")], pa.decimal128(9, 2)),
        "large": pa.array([decimal.Decimal("-1234567890123.5"), None], pa.decimal128(30, 1)),
        "u8": pa.array([255, 0], pa.uint8()), "u64": pa.array([2 ** 64 - 1, 1], pa.uint64()),
        "half": pa.array([0.5, -2.0], pa.float16()), "none": pa.array([None, None], pa.null()),
        "float": pa.array([0.1, float("nan")], pa.float32()),
        "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
        "bytes": pa.array([b"text", b""], pa.binary())}
    pq.write_table(pa.table(columns), out / "times.parquet")
    pq.write_table(pa.table({"old": columns["ms"]}), out / "int96.parquet",
                   use_deprecated_int96_timestamps=True)
    write_lines(out / "times.jsonl", [
        {"day": "2024-02-29", "ms": "2024-02-29T23:59:58.123", "us": "2024-02-29T23:59:58.123456+00:00",
         "price": -12.05, "large": -1234567890123.5, "u8": 255, "u64": 2 ** 64 - 1, "half": 0.5,
         "float": float(pa.array([0.1], pa.float32())[0].as_py()), "map": [{"key": "a", "value": 1}],
         "bytes": "text"},
        {"day": "1969-12-31", "ms": "1969-12-31T23:59:59.500", "us": "1969-12-31T23:59:59.500000+00:00",
         "price": 0.07, "u8": 0, "u64": 1, "half": -2.0, "map": [], "bytes": ""}])


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
    pq.write_table(table, out / "types.parquet", store_schema=False)
    records = [{name: json[i] for name, (_, _, json) in TYPES.items()} for i in range(2)]
    write_lines(out / "types.jsonl",
                [record | {"nest": {"bytes": record["bytes"]}} for record in records])


def write_json(out):
    features = datasets.Features({"top": datasets.Json(), "list": [datasets.Json()],
                                  "in": {"x": datasets.Json()}})
    records = [{"top": None} | one | {"in": {"x": None} | one["in"]} for one in JSON_RECORDS]
    datasets.Dataset.from_list(records, features=features).to_parquet(out / "json.parquet")
    with open(out / "json.jsonl", "w", encoding="utf-8") as lines:
        for record in JSON_RECORDS:
            lines.write(json.dumps(record) + "\n")


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(exist_ok=True)
    write_records(out)
    write_times(out)
    write_types(out)
    write_json(out)


if __name__ == "__main__":
    main()
