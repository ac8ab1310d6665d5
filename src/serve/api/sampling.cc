#include "serve/api/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/sampling/sampler_defaults.h"
#include "serve/api/openai/model_lists.h"

namespace weft::serve {

// Ollama's clients append a tag to each name.
std::optional<int32_t> Served::AdapterOf(std::string_view model) const {
    constexpr std::string_view kTag = ":latest";
    const std::optional<int32_t> found = AdapterNamed(model);
    if (found || !model.ends_with(kTag)) return found;
    return AdapterNamed(model.substr(0, model.size() - kTag.size()));
}

std::optional<int32_t> Served::AdapterNamed(std::string_view model) const {
    if (model == name || std::ranges::find(aliases, model) != aliases.end()) return 0;
    const auto found = std::ranges::find(adapters, model);
    if (found == adapters.end()) return std::nullopt;
    return static_cast<int32_t>(found - adapters.begin()) + 1;
}

namespace {

constexpr size_t kMostBiasedBytes = 200;  // limit of a text in 'logit_bias'
constexpr int kMostRepeatLast = 1 << 24;
constexpr size_t kMostCopiedBytes = size_t{16} << 20;  // of all choices
constexpr int64_t kMostPromptLogprobs = 1 << 18;       // limit per request; about 25 MB of JSON

// A bias from -100 (never) to 100; llama-server's false also means never.
void AddBias(Fields& fields, int32_t id, const Json& value, engine::SamplerOptions& sampler) {
    const bool number = value.is_number() && std::abs(value.get<double>()) <= 100;
    if (!number && value != false) {
        return fields.Fail("logit_bias", fmt::format("Invalid bias of token {}: expected a number "
                                                     "between -100 and 100.",
                                                     id));
    }
    // -100 excludes the token, whatever its logit.
    const double strength = number ? value.get<double>() : -100;
    sampler.bias.emplace_back(id, static_cast<float>(strength == -100 ? -1e6 : strength));
}

std::vector<int32_t> NoToken(Fields& fields, const Served& served, std::string_view word) {
    fields.Fail(
        "logit_bias",
        fmt::format("Invalid key in 'logit_bias': '{}' is not a token id of this model (0 to {}).",
                    word.substr(0, 40), served.engine->hyper().vocab - 1));
    return {};
}

// The token for a key of the object.
std::vector<int32_t> BiasedToken(Fields& fields, const Served& served, const std::string& word) {
    int64_t id = -1;
    const char* const end = word.data() + word.size();
    const auto [at, code] = std::from_chars(word.data(), end, id);
    const bool good = code == std::errc() && at == end && id >= 0;
    if (!good || id >= served.engine->hyper().vocab) return NoToken(fields, served, word);
    return {static_cast<int32_t>(id)};
}

// The tokens for the first element of a pair: an id, or all tokens of a text.
std::vector<int32_t> BiasedTokens(Fields& fields, const Served& served, const Json& key) {
    const bool text = key.is_string();
    if (text && key.get_ref<const std::string&>().size() <= kMostBiasedBytes) {
        return PlainTokens(served.tokenizer(), key.get<std::string>());
    }
    if (key.is_number_integer()) return BiasedToken(fields, served, key.dump());
    return NoToken(fields, served, text ? key.get<std::string>() : key.type_name());
}

// {"50256": -100}, or llama-server's list [[50256, false], ["word", -1]].
void ReadBias(Fields& fields, const Served& served, engine::SamplerOptions& sampler) {
    const auto add = [&](const std::vector<int32_t>& ids, const Json& value) {
        for (const int32_t id : ids) AddBias(fields, id, value, sampler);
        if (sampler.bias.size() > kMostBodyKeys) {
            fields.Fail("logit_bias",
                        fmt::format("'logit_bias' applies to more than {} tokens.", kMostBodyKeys));
        }
        return !fields.error();
    };
    if (!fields.Get("logit_bias").is_array()) {
        for (const auto& [word, value] : fields.Object("logit_bias").items()) {
            if (!add(BiasedToken(fields, served, word), value)) return;
        }
        return;
    }
    for (const Json& pair : fields.List("logit_bias")) {
        if (!pair.is_array() || pair.size() != 2) {
            return fields.Fail("logit_bias",
                               "'logit_bias' as a list must contain pairs of a token and a bias.");
        }
        if (!add(BiasedTokens(fields, served, pair[0]), pair[1])) return;
    }
}

// Clients of llama-server and vLLM send -1 for a new seed.
uint64_t ReadSeed(Fields& fields) {
    const Json& given = fields.Get("seed");
    if (given.is_number_unsigned()) return given.get<uint64_t>();
    const int64_t seed = fields.Integer("seed", -1, INT64_MIN, INT64_MAX);
    return seed == -1 ? engine::RandomSeed() : static_cast<uint64_t>(seed);
}

}  // namespace

void ReadSampling(Fields& fields, const Served& served, engine::Request& request) {
    request.adapter = ReadAdapter(fields, served);
    engine::SamplerOptions& s = request.sampler;
    const engine::SamplerOptions& usual = served.sampling;
    const auto number = [&](const char* name, double otherwise, double least, double most) {
        return static_cast<float>(fields.Number(name, otherwise, least, most));
    };
    s.temperature = number("temperature", usual.temperature, 0, 100);
    if (!fields.Bool("do_sample", true)) s.temperature = 0;
    request.show_special = !fields.Bool("skip_special_tokens", true);
    s.top_p = std::max(number("top_p", usual.top_p, 0, 1), 1e-6f);
    // vLLM's -1 also means all.
    s.top_k =
        static_cast<int>(std::max<int64_t>(0, fields.Integer("top_k", usual.top_k, -1, 1 << 24)));
    s.min_p = std::min(number("min_p", usual.min_p, 0, 1), 0.999999f);
    s.presence_penalty = number("presence_penalty", 0, -2, 2);
    s.frequency_penalty = number("frequency_penalty", 0, -2, 2);
    s.repeat_penalty = number("repetition_penalty", usual.repeat_penalty, 0.01, 100);
    s.repeat_last =
        static_cast<int>(fields.Integer("repeat_last_n", usual.repeat_last, -1, kMostRepeatLast));
    if (s.repeat_last < 0) s.repeat_last = kMostRepeatLast;  // llama-server's -1: the whole context
    s.seed = ReadSeed(fields);
    ReadBias(fields, served, s);
    ReadRareCuts(fields, usual, s);
    ReadDry(fields, served, s.dry);
    ReadTokenRules(fields, served, request);
    request.stop = ReadStops(fields, "stop");
    request.ignore_eos = fields.Bool("ignore_eos", false);
    ReadCaching(fields, request);
}

void ReadCaching(Fields& fields, engine::Request& request) {
    constexpr const char* kName = "cache_salt";
    constexpr size_t kMostBytes = 1024;
    request.cached = fields.Bool("cache_prompt", true);
    if (!fields.Has(kName)) return;
    request.tenant = fields.Text(kName, "");
    if (request.tenant.empty() || request.tenant.size() > kMostBytes) {
        fields.Fail(kName, fmt::format("'{}' must be a text of 1 to {} bytes.", kName, kMostBytes));
    }
}

std::optional<ApiError> FinishRequest(Fields& fields, const Served& served,
                                      const engine::Request& request, LeftMembers& left) {
    const bool limited = request.max_tokens >= 0 && !fields.error();
    if (limited && request.min_tokens > request.max_tokens) {
        const char* const name = fields.RequestName("min_tokens");
        fields.Fail(name, fmt::format("'{}' is {}, more than the {} tokens that the answer may "
                                      "have.",
                                      name, request.min_tokens, request.max_tokens));
    }
    const engine::SamplerOptions& s = request.sampler;
    const bool penalizes =
        s.repeat_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0;
    for (const char* name : {"penalize_nl", "penalize_newline"}) {
        if (fields.Bool(name, true) || !penalizes) continue;
        fields.Fail(name,
                    fmt::format("'{}' is not supported: penalties count line breaks, too.",
                                fields.PathOf(name)),
                    "unsupported_value");
    }
    CheckMembers(fields, served, left);
    return fields.error();
}

// The length is limited because each token is compared with the text held back.
std::vector<std::string> ReadStops(Fields& fields, const char* name) {
    std::vector<std::string> stops = fields.Texts(name, kMostStops);
    if (std::ranges::any_of(stops, [](const auto& text) { return text.size() > 1024; })) {
        fields.Fail(fields.RequestName(name), "A stop string may have at most 1024 bytes.");
    }
    return stops;
}

double Decimal(float value) {
    return std::isfinite(value) ? std::stod(fmt::format("{}", value)) : 0;
}

int64_t ReadLength(Fields& fields, const char* name, int64_t otherwise, int64_t least) {
    name = fields.RequestName(name);
    const int64_t length = fields.Integer(name, otherwise, -1, INT64_MAX);
    if (length == 0 && least > 0) fields.Fail(name, fmt::format("'{}' must be at least 1.", name));
    return length;
}

int ReadPromptLogprobs(Fields& fields, bool stream) {
    const int64_t best = fields.Integer("prompt_logprobs", -1, 0, kMostLogprobs);
    if (best >= 0 && stream) {
        fields.Fail("prompt_logprobs", "'prompt_logprobs' is not available with 'stream': true.",
                    "unsupported_value");
    }
    return static_cast<int>(best);
}

std::optional<ApiError> CheckPromptLogprobs(const std::vector<ChoicePlan>& choices) {
    int64_t logprobs = 0;
    for (const ChoicePlan& choice : choices) {
        const auto tokens = static_cast<int64_t>(choice.request.prompt.size());
        logprobs += tokens * (1 + choice.request.prompt_logprobs);
    }
    if (logprobs <= kMostPromptLogprobs) return {};
    return ApiError{
        400,
        fmt::format("The request asks for {} log-probabilities of prompt tokens; the limit is {}. "
                    "Ask for fewer per token, or send fewer or shorter prompts.",
                    logprobs, kMostPromptLogprobs),
        "logprobs", "invalid_value"};
}

std::optional<ApiError> CheckPromptBytes(const Served& served, size_t bytes, const char* param) {
    const auto longest = std::max<size_t>(served.longest_piece_bytes, 1);
    const size_t least = bytes / longest;
    const auto context = static_cast<size_t>(served.engine->context());
    if (least <= context) return {};
    return TooLong({.tokens = static_cast<int64_t>(least),
                    .context = static_cast<int64_t>(context),
                    .answers = false,
                    .at_least = true},
                   param);
}

std::optional<ApiError> CheckModel(Fields& fields, const Served& served) {
    const std::string model = fields.Text("model", served.name);
    if (fields.error()) return fields.error();
    if (served.AdapterOf(model)) return {};
    return UnknownModel(model, {&served, 1});
}

int32_t ReadAdapter(Fields& fields, const Served& served) {
    return served.AdapterOf(fields.Text("model", served.name)).value_or(0);
}

std::optional<ApiError> CheckCopies(const Served& served, const ChoicePlan& choice, int64_t n,
                                    const std::string& prompt_name) {
    if (n == 1) return {};
    if (auto error = WhyNotRun(*served.engine, choice.request, prompt_name)) return error;
    const engine::SamplerOptions& sampler = choice.request.sampler;
    size_t bytes = choice.echo.size() +
                   sampler.dry.long_breakers.size() * sizeof(engine::DryOptions::LongBreaker);
    for (const std::vector<int32_t>& word : sampler.banned) {
        bytes += sizeof(std::vector<int32_t>) + 4 * word.size();
    }
    if (bytes <= kMostCopiedBytes / static_cast<size_t>(n)) return {};
    return ApiError{400,
                    fmt::format("Each of {} choices repeats {} bytes of 'echo', 'bad_words' and "
                                "'dry_sequence_breakers'; the limit is {} for all together.",
                                n, bytes, kMostCopiedBytes),
                    "n", "invalid_value"};
}

void Reseed(engine::Request& request, int choice) {
    request.sampler.seed += 0x9e3779b97f4a7c15 * static_cast<uint64_t>(choice);
}

}  // namespace weft::serve
