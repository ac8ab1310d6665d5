#include "serve/api/prompts.h"

#include <fmt/format.h>

#include <algorithm>

#include "serve/api/sampling.h"

namespace weft::serve {
namespace {

constexpr size_t kMostIds = size_t{1} << 24;

// Valid UTF-8 if `text` is.
std::string_view CutBytes(std::string_view text, size_t most, bool cuts_begin) {
    if (text.size() <= most) return text;
    const auto goes_on = [](char byte) { return (byte & 0xC0) == 0x80; };
    if (cuts_begin) {
        text.remove_prefix(text.size() - most);
        while (!text.empty() && goes_on(text.front())) text.remove_prefix(1);
        return text;
    }
    const bool whole = !goes_on(text[most]);
    text = text.substr(0, most);
    while (!whole && !text.empty() && goes_on(text.back())) text.remove_suffix(1);
    if (!whole && !text.empty()) text.remove_suffix(1);
    return text;
}

// The part of `text` with its first (cuts_begin: last) `count` tokens. A tokenizer may drop any
// number of bytes, and may judge a word by its whole length, so parts grow until these tokens no
// longer change. No common tokenizer looks farther ahead than the smallest part is long.
std::string_view PartWith(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                          size_t count, bool markers, bool cuts_begin) {
    constexpr size_t kBytesPerToken = 8, kLeastBytes = 2048;
    std::vector<int32_t> before;
    for (size_t size = std::max(count * kBytesPerToken, kLeastBytes); size < text.size();
         size *= 2) {
        const std::string_view part = CutBytes(text, size, cuts_begin);
        std::vector<int32_t> ids =
            tokenizer.Encode(part, {.add_special = false, .parse_special = markers});
        if (ids.size() < count) continue;
        if (cuts_begin) ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(count));
        ids.resize(count);
        if (ids == before) return part;
        before = std::move(ids);
    }
    return text;
}

Prompt OfText(Fields& fields, const Served& served, std::string text, const char* name,
              tokenizer::EncodeOptions how, const model_files::EmbeddingHead* head, bool cut,
              const std::string& prompt) {
    if (head != nullptr && head->most_tokens > 0 && how.add_special && !cut &&
        head->most_tokens <= served.engine->context()) {
        auto tokens = CutTokens(served.tokenizer(), prompt + text, head->most_tokens,
                                how.parse_special, head->cuts_begin);
        return {std::move(tokens), std::move(text), true};
    }
    const auto error = CheckPromptBytes(served, text.size(), name);
    if (error && !(cut && text.size() <= kMostPlainBytes)) {
        fields.Fail(*error);
        return {};
    }
    std::vector<int32_t> tokens = served.tokenizer().Encode(prompt + text, how);
    return {std::move(tokens), std::move(text), true};
}

}  // namespace

std::string_view Beginning(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                           size_t count, bool markers) {
    return PartWith(tokenizer, text, count, markers, false);
}

std::vector<int32_t> CutTokens(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                               int64_t most, bool markers, bool cuts_begin) {
    const auto room = static_cast<size_t>(most);
    text = PartWith(tokenizer, text, room + 1, markers, cuts_begin);
    std::vector<int32_t> tokens =
        tokenizer.Encode(text, {.add_special = true, .parse_special = markers});
    if (tokens.size() <= room) return tokens;
    const std::vector<int32_t> bare =
        tokenizer.Encode(text, {.add_special = false, .parse_special = markers});
    const size_t around = tokens.size() - std::min(bare.size(), tokens.size());
    if (around >= room) {
        tokens.resize(room);
        return tokens;
    }
    const auto found = std::search(tokens.begin(), tokens.end(), bare.begin(), bare.end());
    const size_t begin = found == tokens.end() ? 0 : static_cast<size_t>(found - tokens.begin());
    const size_t end = tokens.size() - (around - std::min(begin, around));
    const size_t first = cuts_begin ? begin : end - (tokens.size() - room);
    const auto at = tokens.begin() + static_cast<std::ptrdiff_t>(first);
    tokens.erase(at, at + static_cast<std::ptrdiff_t>(tokens.size() - room));
    return tokens;
}

bool IsIds(const Json& json) {
    return json.is_array() && !json.empty() &&
           std::ranges::all_of(json, [](const Json& id) { return id.is_number_integer(); });
}

std::vector<int32_t> Ids(const Json& json) {
    std::vector<int32_t> ids;
    for (const Json& id : json) {
        const bool fits = id.is_number_unsigned()
                              ? id.get<uint64_t>() <= INT32_MAX
                              : id.get<int64_t>() >= 0 && id.get<int64_t>() <= INT32_MAX;
        ids.push_back(fits ? id.get<int32_t>() : -1);
    }
    return ids;
}

bool ReadsMarkers(Fields& fields, bool usual) {
    return fields.Bool("parse_special", usual);
}

bool AddsSpecial(Fields& fields) {
    return fields.Bool("add_special_tokens", true);
}

std::vector<Prompt> ReadPrompts(Fields& fields, const Served& served, const char* name, size_t most,
                                bool markers, const model_files::EmbeddingHead* head,
                                std::optional<int64_t> kept, std::string_view before) {
    const std::string first(before);
    const Json& json = fields.Get(name);
    const tokenizer::EncodeOptions how{.add_special = AddsSpecial(fields),
                                       .parse_special = ReadsMarkers(fields, markers)};
    std::vector<Prompt> prompts;
    if (json.is_string()) {
        prompts.push_back(OfText(fields, served, json.get<std::string>(), name, how, head,
                                 kept.has_value(), first));
    } else if (IsIds(json)) {
        prompts.push_back({Ids(json)});
    } else if (json.is_array() && !json.empty() && json.size() <= most) {
        for (const Json& item : json) {
            if (fields.error()) break;
            if (item.is_string()) {
                prompts.push_back(OfText(fields, served, item.get<std::string>(), name, how, head,
                                         kept.has_value(), first));
            } else if (IsIds(item) && item.size() <= kMostIds) {
                prompts.push_back({Ids(item)});
            } else {
                prompts.clear();
                break;
            }
        }
    }
    if (prompts.empty() && !fields.error()) {
        fields.Fail(name, fmt::format("'{}' must be a string, a list of token ids, or a list of 1 "
                                      "to {} of these.",
                                      name, most));
    }
    if (fields.error()) prompts.clear();
    if (kept && head != nullptr && head->most_tokens > 0) {
        kept = std::min(*kept, head->most_tokens);
    }
    const tokenizer::TokenizerData& data = served.tokenizer().data();
    for (Prompt& prompt : prompts) {
        const int32_t begin = prompt.is_text && data.add_bos && how.add_special ? data.bos : -1;
        if (kept) KeepLast(prompt.tokens, *kept, begin);
    }
    return prompts;
}

}  // namespace weft::serve
