#include "tokenizer/write_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/utf8.h"
#include "tokenizer/families.h"

namespace weft::tokenizer {
namespace {

using nlohmann::json;

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

// By FamilyName. pattern nullptr: GPT-2's, which the step "ByteLevel" knows.
struct Row {
    std::string_view family;
    const char* pattern;
    bool single_digits = false;  // a step in front cuts digits apart
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
    for (size_t id = 0; id < data.tokens.size(); ++id) {
        if (!IsAdded(data, id)) continue;
        const bool special = static_cast<TokenType>(data.types[id]) != TokenType::kUserDefined;
        added.push_back({{"id", id},
                         {"content", data.tokens[id]},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", special}});
    }
    return added;
}

// What is put around a text: bos and eos where the file wants them.
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
        // (Unused tokens are not written, but where they are named.)
        if (id < size && (id < 0 || IsUtf8(data.tokens[static_cast<size_t>(id)]))) continue;
        return MakeError(ErrorCode::kCorrupt,
                         "tokenizer: id {} of {} tokens, or its token is not UTF-8", id, size);
    }
    std::unordered_set<std::string_view> seen;
    for (size_t id = 0; id < data.tokens.size(); ++id) {
        if (IsUnused(data, id)) continue;
        if (!IsUtf8(data.tokens[id]) || !seen.insert(data.tokens[id]).second) {
            return MakeError(ErrorCode::kCorrupt,
                             "tokenizer: token {} is not UTF-8, or is there twice", id);
        }
    }
    return {};
}

}  // namespace

Result<std::string> TokenizerJson(const TokenizerData& data) {
    const auto* row = std::ranges::find(kRows, FamilyName(data.pre), &Row::family);
    if (data.model != "gpt2" || row == std::end(kRows)) {
        std::string names;
        for (const Row& each : kRows)
            names += (names.empty() ? "" : ", ") + std::string(each.family);
        return MakeError(ErrorCode::kUnsupported,
                         "tokenizer: model '{}' with pre-tokenizer '{}' can't be written as a "
                         "tokenizer.json; byte-level BPE ('gpt2') with these and their relatives "
                         "can: {}",
                         data.model.substr(0, 80), data.pre.substr(0, 80), names);
    }
    WEFT_TRY(CheckData(data));
    json vocabulary = json::object();
    for (size_t id = 0; id < data.tokens.size(); ++id) {
        if (!IsUnused(data, id)) vocabulary[data.tokens[id]] = id;
    }
    json merges = json::array();
    for (const std::string& merge : data.merges) {
        if (!IsUtf8(merge)) return MakeError(ErrorCode::kCorrupt, "tokenizer: a merge is no UTF-8");
        merges.push_back(merge);
    }
    const json model = {{"type", "BPE"},
                        {"dropout", nullptr},
                        {"unk_token", nullptr},
                        {"continuing_subword_prefix", nullptr},
                        {"end_of_word_suffix", nullptr},
                        {"fuse_unk", false},
                        {"byte_fallback", false},
                        {"ignore_merges", TraitsOf(data.pre).whole_words},
                        {"vocab", std::move(vocabulary)},
                        {"merges", std::move(merges)}};
    const json root = {{"version", "1.0"},
                       {"truncation", nullptr},
                       {"padding", nullptr},
                       {"added_tokens", AddedTokens(data)},
                       {"normalizer", row->composes ? json{{"type", "NFC"}} : json()},
                       {"pre_tokenizer", PreTokenizerOf(*row)},
                       {"post_processor", PostProcessorOf(data)},
                       {"decoder", ByteLevel(true)},
                       {"model", model}};
    return root.dump();
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
