#include "serve/api/prompts.h"

#include <fmt/format.h>

#include <algorithm>

#include "serve/api/sampling.h"

namespace weft::serve {
namespace {

constexpr size_t kMostIds = size_t{1} << 24;

Prompt OfText(Fields& fields, const Served& served, std::string text, const char* name,
              bool markers, const std::string& before, bool cut) {
    const auto error = CheckPromptBytes(served, text.size(), name);
    if (error && !(cut && text.size() <= kMostPlainBytes)) {
        fields.Fail(name, error->message, error->code);
        return {};
    }
    std::vector<int32_t> tokens =
        served.tokenizer().Encode(before + text, {.add_special = true, .parse_special = markers});
    return {std::move(tokens), std::move(text), true};
}

}  // namespace

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

std::vector<Prompt> ReadPrompts(Fields& fields, const Served& served, const char* name, size_t most,
                                bool markers, const std::string& before,
                                std::optional<int64_t> kept) {
    const Json& json = fields.Get(name);
    markers = ReadsMarkers(fields, markers);
    std::vector<Prompt> prompts;
    if (json.is_string()) {
        prompts.push_back(OfText(fields, served, json.get<std::string>(), name, markers, before,
                                 kept.has_value()));
    } else if (IsIds(json)) {
        prompts.push_back({Ids(json)});
    } else if (json.is_array() && !json.empty() && json.size() <= most) {
        for (const Json& item : json) {
            if (fields.error()) break;
            if (item.is_string()) {
                prompts.push_back(OfText(fields, served, item.get<std::string>(), name, markers,
                                         before, kept.has_value()));
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
    const tokenizer::TokenizerData& data = served.tokenizer().data();
    for (Prompt& prompt : prompts) {
        const int32_t begin = prompt.is_text && data.add_bos ? data.bos : -1;
        if (kept) KeepLast(prompt.tokens, *kept, begin);
    }
    return prompts;
}

}  // namespace weft::serve
