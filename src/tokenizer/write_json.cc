#include "tokenizer/write_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/utf8.h"
#include "tokenizer/families.h"
#include "tokenizer/model.h"

namespace weft::tokenizer {
namespace {

using nlohmann::json;

// Longer tokens are not results of merges; they would slow down the search.
constexpr size_t kMostMergedBytes = 256;

#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD R"([^\r\n\p{L}\p{N}]?\p{L}+)"
#define SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define TAIL R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|)" SPACES
#define SLASH_TAIL R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" SPACES
#define UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define CASED(endings)                                                                           \
    R"([^\r\n\p{L}\p{N}]?)" UPPER "*" LOWER "+" endings R"(|[^\r\n\p{L}\p{N}]?)" UPPER "+" LOWER \
    "*" endings

// One row per FamilyName. pattern nullptr: GPT-2's expression, built into the "ByteLevel" step.
struct Row {
    std::string_view family;
    const char* pattern;
    bool single_digits = false;  // a first step splits digits
    bool composes = false;
};
constexpr Row kRows[] = {
    {"llama3", ENDINGS "|" WORD R"(|\p{N}{1,3})" TAIL},
    {"glm4", ENDINGS "|" WORD R"(|\p{N}{1,3})" TAIL},
    {"dbrx", ENDINGS "|" WORD R"(|\p{N}{1,3})" TAIL},
    {"qwen2", ENDINGS "|" WORD R"(|\p{N})" TAIL, false, true},
    {"gpt-4o", CASED(ENDINGS "?") R"(|\p{N}{1,3})" SLASH_TAIL},
    {"tekken", CASED("") R"(|\p{N})" SLASH_TAIL},
    {"gpt-2", nullptr},
    {"smollm", nullptr, true},
};

json ByteLevel(bool regex) {
    return {{"type", "ByteLevel"},
            {"add_prefix_space", false},
            {"trim_offsets", true},
            {"use_regex", regex}};
}

json PreTokenizerOf(const Row& row) {
    json steps = json::array();
    if (row.single_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
    if (row.pattern != nullptr) {
        steps.push_back({{"type", "Split"},
                         {"pattern", {{"Regex", row.pattern}}},
                         {"behavior", "Isolated"},
                         {"invert", false}});
    }
    steps.push_back(ByteLevel(row.pattern == nullptr));
    return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

bool IsAdded(const TokenizerData& data, size_t id) {
    if (id >= data.types.size()) return false;
    const auto type = static_cast<TokenType>(data.types[id]);
    return type == TokenType::kControl || type == TokenType::kUserDefined ||
           type == TokenType::kUnknown;
}

bool IsUnused(const TokenizerData& data, size_t id) {
    return id < data.types.size() && static_cast<TokenType>(data.types[id]) == TokenType::kUnused;
}

json AddedTokens(const TokenizerData& data) {
    json added = json::array();
    const auto set = [](const std::vector<int32_t>& ids) {
        return std::unordered_set<size_t>(ids.begin(), ids.end());
    };
    const auto left = set(data.lstrip), right = set(data.rstrip), alone = set(data.single_word);
    for (size_t id = 0; id < data.tokens.size(); ++id) {
        if (!IsAdded(data, id)) continue;
        const bool special = static_cast<TokenType>(data.types[id]) != TokenType::kUserDefined;
        added.push_back({{"id", id},
                         {"content", data.tokens[id]},
                         {"single_word", alone.contains(id)},
                         {"lstrip", left.contains(id)},
                         {"rstrip", right.contains(id)},
                         {"normalized", false},
                         {"special", special}});
    }
    return added;
}

// Tokens added around a text: bos and eos if the file uses them.
json PostProcessorOf(const TokenizerData& data) {
    const bool bos = data.add_bos && data.bos >= 0, eos = data.add_eos && data.eos >= 0;
    if (!bos && !eos) return ByteLevel(true);
    json single = json::array(), pair = json::array(), tokens = json::object();
    const auto special = [&](json& list, int32_t id, int type) {
        const std::string& text = data.tokens[static_cast<size_t>(id)];
        list.push_back({{"SpecialToken", {{"id", text}, {"type_id", type}}}});
        tokens[text] = {{"id", text}, {"ids", json::array({id})}, {"tokens", json::array({text})}};
    };
    const auto sequence = [](json& list, const char* name, int type) {
        list.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    };
    for (json* list : {&single, &pair}) {
        if (bos) special(*list, data.bos, 0);
        sequence(*list, "A", 0);
        if (eos) special(*list, data.eos, 0);
    }
    if (bos) special(pair, data.bos, 1);
    sequence(pair, "B", 1);
    if (eos) special(pair, data.eos, 1);
    return {{"type", "TemplateProcessing"},
            {"single", single},
            {"pair", pair},
            {"special_tokens", tokens}};
}

Status CheckData(const TokenizerData& data) {
    const auto size = static_cast<int64_t>(data.tokens.size());
    for (const int32_t id : {data.bos, data.eos, data.unk, data.pad}) {
        // Unused tokens are written only if they have names.
        if (id < size && (id < 0 || IsUtf8(data.tokens[static_cast<size_t>(id)]))) continue;
        return MakeError(ErrorCode::kCorrupt,
                         "tokenizer: id {} of {} tokens is out of range, or its token is not UTF-8",
                         id, size);
    }
    std::unordered_set<std::string_view> seen;
    for (size_t id = 0; id < data.tokens.size(); ++id) {
        if (IsUnused(data, id)) continue;
        if (!IsUtf8(data.tokens[id]) || !seen.insert(data.tokens[id]).second) {
            return MakeError(ErrorCode::kCorrupt,
                             "tokenizer: token {} is not UTF-8, or is a duplicate", id);
        }
    }
    return {};
}

json Root(const TokenizerData& data, json model) {
    return {{"version", "1.0"},         {"truncation", nullptr},
            {"padding", nullptr},       {"added_tokens", AddedTokens(data)},
            {"normalizer", json()},     {"pre_tokenizer", json()},
            {"decoder", json()},        {"post_processor", PostProcessorOf(data)},
            {"model", std::move(model)}};
}

Result<std::string> ByteLevelJson(const TokenizerData& data, const Row& row) {
    json vocabulary = json::object();
    for (size_t id = 0; id < data.tokens.size(); ++id) {
        if (!IsUnused(data, id)) vocabulary[data.tokens[id]] = id;
    }
    json merges = json::array();
    for (const std::string& merge : data.merges) {
        if (!IsUtf8(merge))
            return MakeError(ErrorCode::kCorrupt, "tokenizer: a merge is not UTF-8");
        merges.push_back(merge);
    }
    json root = Root(data, {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"ignore_merges", TraitsOf(data.pre).whole_words},
                            {"vocab", std::move(vocabulary)},
                            {"merges", std::move(merges)}});
    if (row.composes) root["normalizer"] = {{"type", "NFC"}};
    root["pre_tokenizer"] = PreTokenizerOf(row);
    root["decoder"] = ByteLevel(true);
    return root.dump();
}

// ---- SentencePiece BPE --------------------------------------------------------------------------

struct Merge {
    std::string_view left, right;
    float score;  // score of the joined token
};

// SentencePiece merges the pair whose joined token has the highest score; tokenizer.json lists the
// pairs in that order. kUnsupported: an unused token takes part in further merges, which BPE cannot
// express.
Result<std::vector<Merge>> MergesOfScores(const TokenizerData& data) {
    std::unordered_map<std::string_view, size_t> ids;
    const auto joins = [&](size_t id) {
        const auto type =
            id < data.types.size() ? static_cast<TokenType>(data.types[id]) : TokenType::kNormal;
        return type == TokenType::kNormal || type == TokenType::kUserDefined;
    };
    for (size_t id = 0; id < data.tokens.size(); ++id) {
        const std::string& token = data.tokens[id];
        if (!joins(id) && !(IsUnused(data, id) && IsUtf8(token))) continue;
        if (token.size() <= kMostMergedBytes) {
            ids.emplace(token, id);
        } else if (!IsAdded(data, id) && !IsUnused(data, id)) {
            return MakeError(ErrorCode::kUnsupported, "tokenizer: token {} has {} bytes", id,
                             token.size());
        }
    }
    std::vector<Merge> merges;
    for (const auto& [token, id] : ids) {
        for (size_t at = CodePointLength(token, 0); at > 0 && at < token.size();
             at += CodePointLength(token, at)) {
            const std::string_view left = token.substr(0, at), right = token.substr(at);
            if (!ids.contains(left) || !ids.contains(right)) continue;
            if (IsUnused(data, id)) {
                return MakeError(ErrorCode::kUnsupported,
                                 "tokenizer: the unused token {} takes part in merges, which "
                                 "tokenizer.json cannot express",
                                 id);
            }
            merges.push_back({left, right, data.scores[id]});
        }
    }
    std::ranges::sort(merges, [&](const Merge& a, const Merge& b) {
        const auto key = [&](const Merge& m) {
            return std::tuple(-m.score, ids.at(m.left), ids.at(m.right));
        };
        return key(a) < key(b);
    });
    return merges;
}

Result<std::string> SentencePieceJson(const TokenizerData& data) {
    if (data.scores.size() != data.tokens.size()) {
        return MakeError(ErrorCode::kCorrupt, "tokenizer: {} scores for {} tokens",
                         data.scores.size(), data.tokens.size());
    }
    WEFT_ASSIGN(const std::vector<Merge> ordered, MergesOfScores(data));
    json vocabulary = json::object(), merges = json::array();
    for (size_t id = 0; id < data.tokens.size(); ++id) {
        if (!IsUnused(data, id)) vocabulary[data.tokens[id]] = id;
    }
    for (const Merge& merge : ordered) {
        merges.push_back(json::array({std::string(merge.left), std::string(merge.right)}));
    }
    const bool unknown = data.unk >= 0;
    json root = Root(
        data, {{"type", "BPE"},
               {"dropout", nullptr},
               {"unk_token", unknown ? json(data.tokens[static_cast<size_t>(data.unk)]) : json()},
               {"continuing_subword_prefix", nullptr},
               {"end_of_word_suffix", nullptr},
               {"fuse_unk", true},
               {"byte_fallback", true},
               {"ignore_merges", false},
               {"vocab", std::move(vocabulary)},
               {"merges", std::move(merges)}});
    const std::string space(kSpaceMark);
    const json mark = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space}};
    const json unmark = {{"type", "Replace"}, {"pattern", {{"String", space}}}, {"content", " "}};
    json steps = json::array({mark});
    json decoder = json::array({unmark, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
    if (data.add_space_prefix) {
        steps.insert(steps.begin(), json{{"type", "Prepend"}, {"prepend", space}});
        decoder.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    root["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
    root["decoder"] = {{"type", "Sequence"}, {"decoders", decoder}};
    if (root["post_processor"].at("type") == "ByteLevel") root["post_processor"] = nullptr;
    return root.dump();
}

}  // namespace

Result<std::string> TokenizerJson(const TokenizerData& data) {
    WEFT_TRY(CheckData(data));
    if (data.model == "llama") return SentencePieceJson(data);
    const auto* row = std::ranges::find(kRows, FamilyName(data.pre), &Row::family);
    if (data.model == "gpt2" && row != std::end(kRows)) return ByteLevelJson(data, *row);
    std::string names;
    for (const Row& each : kRows) names += (names.empty() ? "" : ", ") + std::string(each.family);
    return MakeError(ErrorCode::kUnsupported,
                     "tokenizer: model '{}' with pre-tokenizer '{}' cannot be written as "
                     "tokenizer.json; supported: SentencePiece BPE ('llama'), and byte-level BPE "
                     "('gpt2') with these pre-tokenizers and their relatives: {}",
                     data.model.substr(0, 80), data.pre.substr(0, 80), names);
}

std::string TokenizerConfigJson(const TokenizerData& data, std::string_view chat) {
    json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                   {"clean_up_tokenization_spaces", false}};
    const std::pair<const char*, int32_t> named[] = {{"bos_token", data.bos},
                                                     {"eos_token", data.eos},
                                                     {"unk_token", data.unk},
                                                     {"pad_token", data.pad}};
    for (const auto& [name, id] : named) {
        if (id >= 0) config[name] = data.tokens[static_cast<size_t>(id)];
    }
    if (!chat.empty() && IsUtf8(chat)) config["chat_template"] = chat;
    json decoder = json::object();
    for (json& token : AddedTokens(data)) {
        const std::string id = std::to_string(token["id"].get<int64_t>());
        token.erase("id");
        decoder[id] = token;
    }
    config["added_tokens_decoder"] = decoder;
    return config.dump(2) + "\n";
}

}  // namespace weft::tokenizer
