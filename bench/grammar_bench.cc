// Measures the cost of constrained decoding: building a grammar, and the mask of each token of a
// text, the first time (with empty caches) and again.
//     build/bench/grammar_bench MODEL [SCHEMA.json TEXT.json]
// Without a schema: several made-up schemas, and texts that follow them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/deadline.h"
#include "base/file.h"
#include "grammar/json_schema.h"
#include "grammar/matcher.h"
#include "model_files/model_file.h"
#include "model_files/read_tokenizer.h"

namespace {

using namespace weft::grammar;

struct Case {
    std::string name, schema, text;
};

std::vector<Case> Cases() {
    std::string story = "{\"title\": \"A day\", \"body\": \"";
    for (int i = 0; i < 20; ++i) story += "It was a fine day, and nobody said \\\"no\\\" to it. ";
    return {
        {"person",
         R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer",
            "minimum":0,"maximum":150},"email":{"type":"string"},"tags":{"type":"array",
            "items":{"type":"string"}},"address":{"type":"object","properties":{"street":
            {"type":"string"},"city":{"type":"string"}},"required":["street","city"]}},
            "required":["name","age","email","tags","address"]})",
         R"({"name": "Ada Lovelace", "age": 36, "email": "ada@example.org", "tags": )"
         R"(["mathematics", "engines", "poetry"], "address": )"
         R"({"street": "12 St James's Square", "city": "London"}})"},
        {"story",
         R"({"type":"object","properties":{"title":{"type":"string"},"body":{"type":"string"}},
            "required":["title","body"]})",
         story + "\"}"},
        {"counted",
         R"({"type":"object","properties":{"title":{"type":"string","maxLength":80},
            "body":{"type":"string","minLength":10,"maxLength":2000}},
            "required":["title","body"]})",
         story + "\"}"},
        {"tree",
         R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"v":{"type":
            "number"},"kids":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":
            ["v","kids"]}}})",
         R"({"v": 1.5, "kids": [{"v": -2e3, "kids": []}, )"
         R"({"v": 3, "kids": [{"v": 4, "kids": []}]}]})"},
        {"any object", "{\"type\":\"object\"}",
         R"({"name": "Ada", "list": [1, 2, {"deep": [true, null]}], "more": {"x": "y"}})"},
    };
}

double Microseconds(int64_t since_ns) {
    return static_cast<double>(weft::NowNs() - since_ns) * 1e-3;
}

weft::Status Follow(const Matcher& fresh, const TokenTrie& trie, const std::vector<int32_t>& tokens,
                    const char* label) {
    std::vector<uint32_t> bits(trie.mask_words());
    std::vector<double> masks;
    double accepts_us = 0;
    Matcher matcher = fresh;
    for (const int32_t token : tokens) {
        const int64_t begin = weft::NowNs();
        WEFT_TRY(matcher.Allowed(bits));
        masks.push_back(Microseconds(begin));
        if ((bits[static_cast<size_t>(token) / 32] >> (token % 32) & 1) == 0) {
            return weft::MakeError(weft::ErrorCode::kUsage, "token {} '{}' is not allowed", token,
                                   trie.Bytes(token));
        }
        const int64_t accept = weft::NowNs();
        WEFT_TRY(matcher.Accept(token));
        accepts_us += Microseconds(accept);
    }
    std::sort(masks.begin(), masks.end());
    double total = 0;
    for (const double mask : masks) total += mask;
    const auto count = static_cast<double>(masks.size());
    fmt::print(
        "  {:6} {:4} tokens  mask: mean {:7.1f} us  median {:7.1f}  p90 {:7.1f}  max {:8.1f}"
        "   accept: mean {:5.1f} us\n",
        label, masks.size(), total / count, masks[masks.size() / 2], masks[masks.size() * 9 / 10],
        masks.back(), accepts_us / count);
    return {};
}

weft::Status Run(int argc, char** argv) {
    WEFT_ASSIGN(const auto model, weft::model_files::OpenModel(argv[1]));
    WEFT_ASSIGN(const auto tokenizer, weft::model_files::LoadTokenizer(*model));
    int64_t begin = weft::NowNs();
    const auto trie = TokenTrie::Make(*tokenizer);
    fmt::print("{} tokens, {} nodes: {:.1f} ms\n", trie->vocab_size(), trie->nodes().size(),
               Microseconds(begin) * 1e-3);
    std::vector<Case> cases = Cases();
    if (argc > 3) {
        WEFT_ASSIGN(const std::string schema, weft::ReadTextFile(argv[2]));
        WEFT_ASSIGN(const std::string text, weft::ReadTextFile(argv[3]));
        cases = {{argv[2], schema, text}};
    }
    for (const Case& one : cases) {
        begin = weft::NowNs();
        WEFT_ASSIGN(const GrammarPtr grammar, GrammarFromJsonSchemaText(one.schema));
        const double made_us = Microseconds(begin);
        fmt::print("{}: {} states, {} KB, made in {:.1f} ms\n", one.name, grammar->num_states(),
                   grammar->size_bytes() >> 10, made_us * 1e-3);
        WEFT_ASSIGN(const Matcher fresh, Matcher::Make(grammar, trie));
        const std::vector<int32_t> tokens = tokenizer->Encode(one.text, {.add_special = false});
        WEFT_TRY(Follow(fresh, *trie, tokens, "first"));
        WEFT_TRY(Follow(fresh, *trie, tokens, "again"));
    }
    return {};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        fmt::print(stderr, "usage: grammar_bench MODEL [SCHEMA.json TEXT.json]\n");
        return 2;
    }
    const weft::Status status = Run(argc, argv);
    if (status.ok()) return 0;
    fmt::print(stderr, "{}\n", status.error().message);
    return 1;
}
