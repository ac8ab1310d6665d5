#!/usr/bin/env python3
"""Makes tests/data/arrow: records as the package datasets and pyarrow save them.

    python3 tools/make_arrow_golden.py tests/data/arrow

Made with datasets 5.2.0 and pyarrow 26.0.1. saved.arrow is a stream (save_to_disk, in batches of 2
records), file.arrow an Arrow file, packed.arrow a compressed one, and records.jsonl has the records
of the first two without members that are null. json.arrow and json.parquet have columns of the type
Json, and json.jsonl has their records.
"""
import json
import pathlib
import shutil
import sys
import tempfile

import datasets
import pyarrow as pa
import pyarrow.feather

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


def write_json(out):
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
    write_json(out)
    with open(out / "records.jsonl", "w", encoding="utf-8") as lines:
        for record in RECORDS:
            lines.write(json.dumps(without_null(record)) + "\n")


if __name__ == "__main__":
    main()
