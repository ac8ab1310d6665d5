// Members of vLLM and llama-server that cut, forbid or end tokens in rarer ways.
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "serve/api/sampling.h"

namespace weft::serve {
namespace {

constexpr size_t kMostRules = 10'000;    // entries of a list of tokens or words
constexpr size_t kMostWordBytes = 1024;  // of a bad word
constexpr size_t kMostWordsBytes = size_t{1} << 20;
constexpr size_t kMostBreakers = 64;
constexpr int64_t kMostLength = int64_t{1} << 30;

// A list of token ids of this model; empty if absent.
std::vector<int32_t> TokenIds(Fields& fields, const Served& served, const char* name, size_t most) {
    std::vector<int32_t> ids;
    const int64_t limit = served.id_limit();
    const Json& list = fields.List(name);
    if (!fields.AtMost(most, name, list)) return ids;
    for (const Json& id : list) {
        if (!id.is_number_integer() || id < 0 || id >= limit) {
            fields.Fail(name, fmt::format("'{}' must be a list of token ids of this model (0 to "
                                          "{}).",
                                          fields.PathOf(name), limit - 1));
            return {};
        }
        ids.push_back(id.get<int32_t>());
    }
    return ids;
}

void ReadAllowed(Fields& fields, const Served& served, engine::SamplerOptions& sampler) {
    constexpr const char* kName = "allowed_token_ids";
    if (!fields.Has(kName)) return;
    const auto limit = static_cast<size_t>(served.id_limit());
    const std::vector<int32_t> ids = TokenIds(fields, served, kName, limit);
    if (ids.empty()) fields.Fail(kName, "'allowed_token_ids' must name at least one token.");
    sampler.allowed.assign((limit + 31) / 32, 0);
    for (const int32_t id : ids) sampler.allowed[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
}

// As in vLLM: the tokens of the word, and of the word behind a space if that changes the first
// token only.
void ReadBadWords(Fields& fields, const Served& served, engine::SamplerOptions& sampler) {
    constexpr const char* kName = "bad_words";
    size_t bytes = 0;
    for (const std::string& word : fields.Texts(kName, kMostRules)) {
        bytes += word.size();
        if (bytes > kMostWordsBytes) {
            return fields.Fail(kName, fmt::format("'bad_words' have more than {} bytes together.",
                                                  kMostWordsBytes));
        }
        const size_t begin = word.find_first_not_of(' ');
        if (begin == std::string::npos || word.size() > kMostWordBytes) {
            return fields.Fail(
                kName, fmt::format("'bad_words' must be texts of 1 to {} bytes.", kMostWordBytes));
        }
        const std::string bare = word.substr(begin);
        std::vector<int32_t> first = PlainTokens(served.tokenizer(), bare);
        std::vector<int32_t> behind = PlainTokens(served.tokenizer(), " " + bare);
        if (first.empty()) continue;  // the vocabulary lacks its characters
        const bool other = behind.size() == first.size() && behind[0] != first[0];
        sampler.banned.push_back(std::move(first));
        if (other) sampler.banned.push_back(std::move(behind));
    }
}

// A list of texts, or, as text-generation-webui sends it, the JSON of such a list.
std::vector<std::string> ReadBreakers(Fields& fields) {
    constexpr const char* kName = "dry_sequence_breakers";
    const Json& given = fields.Get(kName);
    if (given.is_null()) return engine::UsualDryBreakers();
    const bool json = given.is_string() && given.get_ref<const std::string&>().starts_with('[');
    const Json list{{kName, json ? OrderedJsonOrDiscarded(given.get<std::string>()) : given}};
    Fields inner(list);
    std::vector<std::string> texts = inner.Texts(kName, kMostBreakers);
    if (inner.error()) fields.Fail(kName, inner.error()->message, inner.error()->code);
    return texts;
}

}  // namespace

void ReadRareCuts(Fields& fields, const engine::SamplerOptions& usual,
                  engine::SamplerOptions& sampler) {
    const auto number = [&](const char* name, double otherwise, double least, double most) {
        return static_cast<float>(fields.Number(name, otherwise, least, most));
    };
    sampler.typical_p = std::max(number("typical_p", usual.typical_p, 0, 1), 1e-6f);
    // (llama-server's -1 is off.)
    sampler.top_n_sigma = std::max(number("top_n_sigma", usual.top_n_sigma, -1000, 1000), 0.0f);
    sampler.xtc_probability = number("xtc_probability", usual.xtc_probability, 0, 1);
    sampler.xtc_threshold = number("xtc_threshold", usual.xtc_threshold, 0, 1);
}

void ReadDry(Fields& fields, const Served& served, engine::DryOptions& dry) {
    const engine::DryOptions& usual = served.sampling.dry;
    dry.multiplier = static_cast<float>(fields.Number("dry_multiplier", usual.multiplier, 0, 100));
    dry.base = static_cast<float>(fields.Number("dry_base", usual.base, 0, 100));
    if (dry.base < 1) dry.base = usual.base;  // as llama-server
    dry.allowed =
        static_cast<int>(fields.Integer("dry_allowed_length", usual.allowed, 0, kMostLength));
    const int64_t last = fields.Integer("dry_penalty_last_n", -1, -1, INT64_MAX);
    dry.last = fields.Has("dry_penalty_last_n") ? last : usual.last;
    if (dry.last < 0) dry.last = INT64_MAX;
    const std::vector<std::string> breakers = ReadBreakers(fields);
    if (!dry.on() || fields.error()) return;
    const Status set = SetDryBreakers(served.tokenizer(), breakers, dry);
    if (!set.ok()) {
        fields.Fail("dry_sequence_breakers",
                    fmt::format("'dry_sequence_breakers': {}.", set.error().message));
    }
}

void ReadTokenRules(Fields& fields, const Served& served, engine::Request& request) {
    ReadAllowed(fields, served, request.sampler);
    ReadBadWords(fields, served, request.sampler);
    for (const int32_t id : TokenIds(fields, served, "stop_token_ids", kMostRules)) {
        request.end_tokens.push_back(id);
    }
    for (const int32_t id : TokenIds(fields, served, "suppress_tokens", kMostRules)) {
        request.sampler.banned.push_back({id});
    }
    request.min_tokens = fields.Integer("min_tokens", 0, 0, INT64_MAX);
    request.includes_stop = fields.Bool("include_stop_str_in_output", false);
}

std::optional<int64_t> ReadKeptTokens(Fields& fields, const Served& served, int64_t max_tokens) {
    constexpr const char* kName = "truncate_prompt_tokens";
    if (!fields.Has(kName)) return std::nullopt;
    const int64_t context = served.engine->context();
    const int64_t most = fields.Integer(kName, -1, -1, context);
    if (most == 0) fields.Fail(kName, "'truncate_prompt_tokens' must be -1 or at least 1.");
    if (most > 0) return most;
    const int64_t answer = max_tokens < 0 ? 1 : std::min(max_tokens, context - 1);
    return context - answer;
}

void KeepLast(std::vector<int32_t>& tokens, int64_t most, int32_t begin) {
    if (std::ssize(tokens) <= most) return;
    const bool begins = begin >= 0 && most > 1 && tokens.front() == begin;
    tokens.erase(tokens.begin() + (begins ? 1 : 0),
                 tokens.end() - static_cast<ptrdiff_t>(most - (begins ? 1 : 0)));
}

}  // namespace weft::serve
