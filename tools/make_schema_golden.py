#!/usr/bin/env python3
"""Verdicts of an independent JSON schema validator, for tests/grammar/schema_test.cc.

    tools/make_schema_golden.py > tests/data/schema_golden.json

Made with jsonschema 4.26.0 (draft 2020-12, with checks of the formats it knows), seed 5. Each
schema has instances as JSON text in the order of its properties, each with the validator's
verdict; `made` are instances drawn from the schema, which its grammar must accept.
"""
import json
import random
import sys

import jsonschema

SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"]},
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}, "c": {"type": "boolean"}}},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["b"], "additionalProperties": {"type": "string"}},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["z"], "additionalProperties": {"type": "boolean"}},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"type": "array", "items": {"type": "integer", "minimum": -12, "maximum": 1050}, "minItems": 1, "maxItems": 4},
    {"type": "integer", "minimum": 7}, {"type": "integer", "maximum": -3}, {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 11},
    {"type": "integer", "minimum": 99, "maximum": 10001}, {"type": "integer", "minimum": 2.5, "maximum": 5.5},
    {"type": "number", "minimum": 0, "maximum": 1}, {"type": "number", "exclusiveMinimum": -1.25, "maximum": 10.5},
    {"type": "number", "minimum": 0.005}, {"type": "number", "exclusiveMaximum": -3},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": {"type": "null"}, "maxItems": 4},
    {"type": "array", "prefixItems": [{"const": 1}, {"const": "x"}]},
    {"enum": ["red", "gr\u00fcn", "a\"b\\c", 4, None, {"k": [1, True]}]},
    {"type": ["string", "null"], "enum": ["x", None, 3]},
    {"const": {"deep": ["\u20ac", 1.5]}},
    {"type": ["integer", "string", "null"]},
    {"type": "string", "minLength": 2, "maxLength": 5}, {"type": "string", "minLength": 3},
    {"type": "string", "pattern": "^[a-z]{2,4}[0-9]?$"}, {"type": "string", "pattern": "b\"|\\d$"},
    {"type": "string", "format": "date"}, {"type": "string", "format": "uuid"}, {"type": "string", "format": "ipv4"}, {"type": "string", "format": "email"},
    {"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"v": {"type": "string"}}, "required": ["v"]}]},
    {"oneOf": [{"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind", "lives"]},
               {"type": "object", "properties": {"kind": {"const": "dog"}, "name": {"type": "string"}}, "required": ["kind", "name"]}]},
    {"type": "object", "properties": {"t": {"type": "string"}}, "required": ["t"],
     "anyOf": [{"properties": {"x": {"type": "integer"}}, "required": ["x"]}, {"properties": {"y": {"type": "boolean"}}, "required": ["y"]}]},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
               {"properties": {"b": {"type": "string"}, "a": {"minimum": 3}}, "required": ["b"]}]},
    {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["v", "next"]}}},
    {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}, "n": {"$ref": "#/definitions/small"}}, "required": ["kids"],
     "definitions": {"small": {"type": "integer", "minimum": 0, "maximum": 9}}},
    {"type": "object", "properties": {"p": {"$ref": "#/$defs/base", "properties": {"q": {"type": "boolean"}}, "required": ["q"]}}, "required": ["p"],
     "$defs": {"base": {"type": "object", "properties": {"r": {"type": "string"}}, "required": ["r"]}}},
]
TEXTS = ["", "a", "ab", "x1", "abc", "Zoe", "gr\u00fcn", "\u20ac5", "\U0001F600", "a\"b\\c", "line\nend", "ab1", "b\"", "7", "tab\t", "abcdef"]
SAMPLES = {
    "date": ["2024-02-29", "1999-12-31", "2000-02-29", "2023-04-30"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"], "ipv4": ["0.0.0.0", "192.168.1.254"], "email": ["ada@example.org"],
    "^[a-z]{2,4}[0-9]?$": ["ab", "abcd7", "zzz"], "b\"|\\d$": ["ab\"c", "x7", "b\"", "1"],
}
WRONG = {"date": ["2023-02-29", "1900-02-29", "2024-13-01", "2024-04-31"], "uuid": ["123"], "ipv4": ["256.1.1.1", "1.2.3"], "email": ["ada"]}


class Maker:
    def __init__(self, root, rng):
        self.root, self.rng = root, rng

    def resolve(self, ref):
        at = self.root
        for key in ref.split("/")[1:]:
            at = at[key]
        return at

    def merged(self, schema):
        parts = [{k: v for k, v in schema.items() if k not in ("allOf", "$ref", "anyOf")}]
        if "$ref" in schema:
            parts.append(self.merged(self.resolve(schema["$ref"])))
        parts += [self.merged(part) for part in schema.get("allOf", [])]
        if "anyOf" in schema:
            parts.append(self.merged(self.rng.choice(schema["anyOf"])))
        out = {}
        for part in parts:
            for key, value in part.items():
                if key == "properties":
                    both = out.setdefault("properties", {})
                    for name, inner in value.items():
                        both[name] = {**both.get(name, {}), **inner}
                elif key == "required":
                    out.setdefault("required", [])
                    out["required"] = out["required"] + [n for n in value if n not in out["required"]]
                else:
                    out[key] = value
        return out

    def value(self, schema, depth=0):
        rng = self.rng
        schema = self.merged(schema)
        if "oneOf" in schema:
            schema = self.merged(rng.choice(schema["oneOf"]))
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return rng.choice(schema["enum"])
        kind = schema.get("type", "object" if "properties" in schema else "integer")
        kind = rng.choice(kind) if isinstance(kind, list) else kind
        if kind == "null":
            return None
        if kind == "boolean":
            return rng.random() < 0.5
        if kind in ("integer", "number"):
            return self.number(schema, kind)
        if kind == "string":
            for key in ("format", "pattern"):
                if key in schema:
                    return rng.choice(SAMPLES[schema[key]])
            fits = [t for t in TEXTS if schema.get("minLength", 0) <= len(t) <= schema.get("maxLength", 99)]
            return rng.choice(fits)
        if kind == "array":
            first = [self.value(s, depth + 1) for s in schema.get("prefixItems", [])]
            if "items" not in schema:
                return first
            least, most = schema.get("minItems", 0), schema.get("maxItems", 0 if depth > 3 else 3)
            count = rng.randint(max(least - len(first), 0), max(most - len(first), 0))
            return first + [self.value(schema["items"], depth + 1) for _ in range(count)]
        out = {}
        for name, inner in schema.get("properties", {}).items():
            if name in schema.get("required", []) or rng.random() < 0.6:
                if name == "next" and depth > 3:
                    out[name] = None
                else:
                    out[name] = self.value(inner, depth + 1)
        more = schema.get("additionalProperties")
        for name in schema.get("required", []):
            if name not in out:
                out[name] = self.value(more, depth + 1)
        if isinstance(more, dict):
            for name in ["k", "ab", "b c", "gr\u00fcn"]:
                if rng.random() < 0.4:
                    out[name] = self.value(more, depth + 1)
        return out

    def number(self, schema, kind):
        rng = self.rng
        low = schema.get("minimum", schema.get("exclusiveMinimum", schema.get("maximum", schema.get("exclusiveMaximum", 20)) - 60))
        high = schema.get("maximum", schema.get("exclusiveMaximum", low + 120))
        while True:
            made = rng.randint(int(low) - 1, int(high) + 1) if kind == "integer" or rng.random() < 0.4 else round(rng.uniform(low, high), rng.randint(1, 5))
            if "e" not in str(made) and jsonschema.Draft202012Validator({**schema, "type": kind}).is_valid(made):
                return made


def mutate(value, rng):
    roll = rng.random()
    if isinstance(value, dict) and value and roll < 0.8:
        key = rng.choice(list(value))
        if roll < 0.2:
            return {k: v for k, v in value.items() if k != key}
        if roll < 0.3:
            return {**value, "extra": rng.choice([1, "s", True])}
        return {k: mutate(v, rng) if k == key else v for k, v in value.items()}
    if isinstance(value, list) and value and roll < 0.8:
        at = rng.randrange(len(value))
        if roll < 0.2:
            return value[:at] + value[at + 1:]
        if roll < 0.4:
            return value + [value[at]]
        return [mutate(v, rng) if i == at else v for i, v in enumerate(value)]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and roll < 0.7:
        return value + rng.choice([-1000, -1, 1, 9, 0.5, 100000])
    if isinstance(value, str) and roll < 0.7:
        return value + rng.choice(["x", "1", "\u00e9", "\""]) if rng.random() < 0.5 else value[1:]
    return rng.choice([None, 0, 1, -1, 2.5, "", "cat", True, [], {}, [1], {"v": "s"}, {"v": 1}, 5, 12, 1051])


def main():
    rng = random.Random(5)
    out = []
    for schema in SCHEMAS:
        maker = Maker(schema, rng)
        judge = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
        made, other = {}, {}
        for _ in range(12):
            value = maker.value(schema)
            if judge.is_valid(value):  # an enum may list what another keyword excludes
                made[json.dumps(value, ensure_ascii=False, separators=(",", ":"))] = True
        for _ in range(40):
            value = mutate(maker.value(schema), rng)
            if rng.random() < 0.3:
                value = mutate(value, rng)
            other[json.dumps(value, ensure_ascii=False)] = judge.is_valid(value)
        for text in WRONG.get(schema.get("format"), []):
            other[json.dumps(text)] = judge.is_valid(text)
        for text in made:
            other.pop(text, None)
        out.append({"schema": schema, "made": list(made), "valid": [t for t in other if other[t]], "invalid": [t for t in other if not other[t]]})
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in out)
    sys.stdout.write("[\n" + lines + "\n]\n")


main()
