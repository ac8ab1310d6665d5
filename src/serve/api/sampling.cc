#include "serve/api/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <random>

namespace weft::serve {

std::optional<int32_t> Served::AdapterOf(std::string_view model) const {
    if (model == name || std::ranges::find(aliases, model) != aliases.end()) return 0;
    const auto found = std::ranges::find(adapters, model);
    if (found == adapters.end()) return std::nullopt;
    return static_cast<int32_t>(found - adapters.begin()) + 1;
}

namespace {

// {"50256": -100}: token ids as texts, biases from -100 (never) to 100.
void ReadBias(Fields& fields, const Served& served, engine::SamplerOptions& sampler) {
    const Json& bias = fields.Object("logit_bias");
    if (bias.is_null()) return;
    const auto vocab = static_cast<int64_t>(served.engine->hyper().vocab);
    for (const auto& [word, value] : bias.items()) {
        int64_t id = -1;
        const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), id);
        if (code != std::errc() || end != word.data() + word.size() || id < 0 || id >= vocab) {
            return fields.Fail("logit_bias",
                               fmt::format("Invalid key in 'logit_bias': '{}' is no token of this "
                                           "model (0 to {}).",
                                           word.substr(0, 40), vocab - 1));
        }
        if (!value.is_number() || !(std::abs(value.get<double>()) <= 100)) {
            return fields.Fail("logit_bias",
                               fmt::format("Invalid bias of token {}: expected a number between "
                                           "-100 and 100.",
                                           id));
        }
        // -100 means never, whatever the logits are.
        const double number = value.get<double>();
        const double strength = number == -100 ? -1e6 : number;
        sampler.bias.emplace_back(static_cast<int32_t>(id), static_cast<float>(strength));
    }
}

uint64_t RandomSeed() {
    thread_local std::mt19937_64 random{std::random_device{}()};
    return random();
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
    s.top_p = std::max(number("top_p", usual.top_p, 0, 1), 1e-6f);
    // vLLM's -1 means all, too.
    s.top_k =
        static_cast<int>(std::max<int64_t>(0, fields.Integer("top_k", usual.top_k, -1, 1 << 24)));
    s.min_p = std::min(number("min_p", usual.min_p, 0, 1), 0.999999f);
    s.presence_penalty = number("presence_penalty", 0, -2, 2);
    s.frequency_penalty = number("frequency_penalty", 0, -2, 2);
    s.repeat_penalty = number("repetition_penalty",
                              number("repeat_penalty", usual.repeat_penalty, 0.01, 100), 0.01, 100);
    s.repeat_last =
        static_cast<int>(fields.Integer("repeat_last_n", usual.repeat_last, 0, 1 << 24));
    s.seed = fields.Has("seed")
                 ? static_cast<uint64_t>(fields.Integer("seed", 0, INT64_MIN, INT64_MAX))
                 : RandomSeed();
    ReadBias(fields, served, s);
    request.stop = fields.Texts("stop", kMostStops);
    if (std::ranges::any_of(request.stop, [](const auto& text) { return text.size() > 1024; })) {
        fields.Fail("stop", "A stop text may have 1024 bytes at most.");
    }
    request.ignore_eos = fields.Bool("ignore_eos", false);
    request.cached = fields.Bool("cache_prompt", true);
}

double Decimal(float value) {
    return std::isfinite(value) ? std::stod(fmt::format("{}", value)) : 0;
}

int64_t ReadLength(Fields& fields, const char* name, int64_t otherwise) {
    const int64_t length = fields.Integer(name, otherwise, -1, INT64_MAX);
    if (length == 0) fields.Fail(name, fmt::format("'{}' must be at least 1.", name));
    return length;
}

std::optional<ApiError> CheckPromptBytes(const Served& served, size_t bytes, const char* param) {
    const auto longest = std::max<size_t>(served.longest_piece_bytes, 1);
    const size_t least = bytes / longest;
    const auto context = static_cast<size_t>(served.engine->context());
    if (least <= context) return {};
    return ApiError{400,
                    fmt::format("the prompt has {} bytes, which are at least {} tokens; the "
                                "context of {} tokens is too short",
                                bytes, least, context),
                    param, kContextExceeded};
}

std::optional<ApiError> CheckModel(Fields& fields, const Served& served) {
    const std::string model = fields.Text("model", served.name);
    if (fields.error()) return fields.error();
    if (served.AdapterOf(model)) return {};
    std::string names = fmt::format("'{}'", served.name);
    for (const std::string& adapter : served.adapters) names += fmt::format(", '{}'", adapter);
    return ApiError{404,
                    fmt::format("The model '{}' does not exist here; this server has {}.",
                                model.substr(0, 200), names),
                    "model", "model_not_found"};
}

int32_t ReadAdapter(Fields& fields, const Served& served) {
    return served.AdapterOf(fields.Text("model", served.name)).value_or(0);
}

void Reseed(engine::Request& request, int choice) {
    request.sampler.seed += 0x9e3779b97f4a7c15 * static_cast<uint64_t>(choice);
}

}  // namespace weft::serve
