#include "tokenizer/hints.h"

#include "base/bare_words.h"
#include "base/dangling_link.h"
#include "base/file_kind.h"
#include "base/json.h"

namespace weft::tokenizer {
namespace {

using nlohmann::json;

// The text of a token given as a string or as an object with `content`; else empty.
std::string TokenText(const json* token) {
    if (token == nullptr) return {};
    if (token->is_string()) return token->get<std::string>();
    if (!token->is_object()) return {};
    const auto content = token->find("content");
    return content != token->end() && content->is_string() ? content->get<std::string>()
                                                           : std::string();
}

bool IsId(const json& value) {
    return value.is_number_integer() && value >= 0 && value < kMostTokens;
}

void AddTexts(const Fields& fields, TokenizerHints& hints) {
    const std::pair<const char*, std::string*> named[] = {
        {"bos_token", &hints.bos},  {"eos_token", &hints.eos}, {"unk_token", &hints.unk},
        {"sep_token", &hints.sep},  {"pad_token", &hints.pad}, {"cls_token", &hints.cls},
        {"mask_token", &hints.mask}};
    for (const auto& [key, text] : named) {
        if (fields.Has(key)) hints.given.insert(key);
        if (text->empty()) *text = TokenText(fields.Find(key));
    }
    for (const char* key : {"extra_special_tokens", "additional_special_tokens"}) {
        const json* list = fields.Find(key);
        if (!hints.more.empty() || list == nullptr || !list->is_array()) continue;
        for (const json& token : *list) hints.more.push_back(TokenText(&token));
    }
}

void AddHintIds(const Fields& fields, TokenizerHints& hints) {
    const json* bos = fields.Find("bos_token_id");
    if (bos != nullptr && IsId(*bos) && hints.bos_id < 0) hints.bos_id = *bos;
    const json* eos = fields.Find("eos_token_id");
    if (eos == nullptr) return;
    const json list = eos->is_array() ? *eos : json::array({*eos});
    for (const json& id : list) {
        if (!IsId(id)) continue;
        if (hints.eos_id < 0) hints.eos_id = id;
        hints.ends.push_back(id);
    }
}

Status AddTokenizerConfig(const json& contents, TokenizerHints& hints) {
    Fields fields(contents, "the object");
    AddTexts(fields, hints);
    if (fields.Find("add_bos_token")) hints.add_bos = fields.BoolOr("add_bos_token", false);
    if (fields.Find("add_eos_token")) hints.add_eos = fields.BoolOr("add_eos_token", false);
    hints.add_prefix_space = fields.BoolOr("add_prefix_space", false);
    hints.tokenizer_class = fields.TextOr("tokenizer_class", "");
    const json* added = fields.Find("added_tokens_decoder");
    if (added != nullptr && !added->is_object())
        fields.Fail("added_tokens_decoder is not an object");
    WEFT_TRY(fields.status());
    if (added == nullptr) return {};
    for (const auto& [key, token] : added->items()) {
        const bool digits =
            !key.empty() && key.size() <= 8 && key.find_first_not_of("0123456789") == key.npos;
        if (!digits) {
            return MakeError(ErrorCode::kCorrupt, "added_tokens_decoder: '{}' is not a token id",
                             key.substr(0, 80));
        }
        WEFT_ASSIGN(AddedToken read, ReadAddedToken(token, std::stoll(key)));
        hints.added.push_back(std::move(read));
    }
    return {};
}

}  // namespace

Fields::Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) Fail(std::string("is of type ") + object.type_name());
}

void Fields::Fail(std::string what) {
    if (!status_.ok()) return;
    status_ = MakeError(ErrorCode::kCorrupt, "{}: {}", where_, what);
}

const json* Fields::Find(const char* key) const {
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool Fields::Has(const char* key) const {
    return object_.is_object() && object_.contains(key);
}

std::string Fields::Text(const char* key) {
    if (Find(key) == nullptr) Fail(fmt::format("'{}' is missing", key));
    return TextOr(key, "");
}

std::string Fields::TextOr(const char* key, std::string fallback) {
    const json* found = Find(key);
    if (found == nullptr) return fallback;
    if (found->is_string()) return found->get<std::string>();
    Fail(fmt::format("'{}' is of type {}; expected a string", key, found->type_name()));
    return fallback;
}

bool Fields::BoolOr(const char* key, bool fallback) {
    const json* found = Find(key);
    if (found == nullptr) return fallback;
    if (found->is_boolean()) return found->get<bool>();
    Fail(fmt::format("'{}' is of type {}; expected true or false", key, found->type_name()));
    return fallback;
}

int64_t Fields::IntOr(const char* key, int64_t least, int64_t most, int64_t fallback) {
    const json* found = Find(key);
    if (found == nullptr) return fallback;
    if (found->is_number_integer() && *found >= least && *found <= most) {
        return found->get<int64_t>();
    }
    Fail(fmt::format("'{}' is not an integer from {} to {}", key, least, most));
    return fallback;
}

const json& Fields::Array(const char* key) {
    static const json empty = json::array();
    const json* found = Find(key);
    if (found != nullptr && found->is_array()) return *found;
    Fail(fmt::format("'{}' is not an array", key));
    return empty;
}

Result<json> ParseJson(std::string_view text) {
    // A vocabulary is one object with a member per token; its merges are a list of pairs.
    auto parsed =
        ParseJsonText(WithoutBareWords(text),
                      {.bytes = SIZE_MAX, .values = size_t{1} << 24, .keys = size_t{1} << 23});
    if (parsed.ok()) return parsed;
    return MakeError(ErrorCode::kCorrupt, "not JSON ({} bytes): {}. Was the file cut short?",
                     text.size(), parsed.error().message);
}

Result<AddedToken> ReadAddedToken(const json& object, int64_t id) {
    Fields fields(object, fmt::format("added token {}", id));
    AddedToken token;
    token.id = static_cast<int32_t>(std::clamp<int64_t>(id, -1, kMostTokens));
    token.text = fields.Text("content");
    token.special = fields.BoolOr("special", false);
    token.takes_left = fields.BoolOr("lstrip", false);
    token.takes_right = fields.BoolOr("rstrip", false);
    token.single_word = fields.BoolOr("single_word", false);
    token.normalized = fields.BoolOr("normalized", false);
    if (id < 0 || id >= kMostTokens) fields.Fail("the id is out of range");
    WEFT_TRY(fields.status());
    return token;
}

Status AddHints(const std::string& name, const json& contents, TokenizerHints& hints) {
    if (!contents.is_object()) {
        return MakeError(ErrorCode::kCorrupt, "the file is of type {}; expected an object",
                         contents.type_name());
    }
    Fields fields(contents, "the object");
    if (name == "tokenizer_config.json") return AddTokenizerConfig(contents, hints);
    if (name == "special_tokens_map.json") AddTexts(fields, hints);
    if (name == "generation_config.json") AddHintIds(fields, hints);
    if (name == "config.json") {
        if (hints.ends.empty()) AddHintIds(fields, hints);
        hints.model_type = fields.TextOr("model_type", "");
        const json* text = fields.Find("text_config");
        Fields sizes(text != nullptr && text->is_object() ? *text : contents, "the object");
        hints.vocab_size = sizes.IntOr("vocab_size", 1, kMostTokens, 0);
        WEFT_TRY(sizes.status());
    }
    return fields.status();
}

Result<TokenizerHints> ReadHints(const std::string& folder) {
    TokenizerHints hints;
    for (const char* name : kHintFiles) {
        const std::string path = folder + "/" + name;
        if (!IsListed(path)) continue;
        WEFT_ASSIGN(const std::string text, ReadModelText(path, kMostHintBytes));
        auto parsed = ParseJson(text);
        Status status = parsed.ok() ? AddHints(name, *parsed, hints) : Status(parsed.error());
        if (!status.ok()) return Error{status.error().code, path + ": " + status.error().message};
    }
    return hints;
}

}  // namespace weft::tokenizer
