#include "serve/api/llama/llama_dialect.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "serve/api/sampling.h"

namespace weft::serve {
namespace {

class LlamaDialect final : public Dialect {
  public:
    LlamaDialect(const Served& served, const engine::Request& request, LlamaRequested asked)
        : model_(served.NameOf(request.adapter)),
          prompt_(served.tokenizer().Decode(request.prompt, false)),
          asked_(std::move(asked)),
          settings_(SamplingJson(request.sampler)) {
        settings_["seed"] = request.sampler.seed;
        settings_["n_predict"] = request.max_tokens;
        settings_["ignore_eos"] = request.ignore_eos;
        settings_["stop"] = request.stop;
    }

    bool repeats() const override { return true; }
    void UseSlot(int64_t id) override { slot_ = id; }
    void Progress(const Usage& usage) override { progress_ = usage; }
    void PromptProgress(const serve::PromptProgress& progress) override {
        prompt_progress_ = PromptProgressJson(progress);
    }
    void Begin(std::string&) override {}
    void Delta(int, const chat::AnswerDelta& delta, std::span<const engine::GeneratedToken> tokens,
               std::string& out) override {
        new_line_ |= delta.content.find('\n') != std::string::npos;
        Json event{{"index", 0},
                   {"content", delta.content},
                   {"tokens", IdsOf(tokens)},
                   {"stop", false},
                   {"id_slot", slot_}};
        if (progress_) event["timings"] = TimingsJson(*progress_);
        if (!prompt_progress_.is_null()) {
            event["prompt_progress"] = std::exchange(prompt_progress_, nullptr);
        }
        Event(event, out);
    }
    void EndChoice(int, const ChoiceEnd& end, std::string&) override { end_ = end; }
    void End(const Usage& usage, std::string& out) override {
        Event(Chosen(Final("", Json::array(), usage)), out);
    }
    void Fail(const ApiError& error, std::string& out) override {
        out += fmt::format("error: {}\n\n", OpenAiError(error));
    }
    std::string ErrorBody(const ApiError& error) override { return LlamaError(error); }
    std::string Whole(const std::vector<Choice>& choices, const Usage& usage) override {
        const Choice& choice = choices.front();
        end_ = choice.end;
        new_line_ = choice.said.content.find('\n') != std::string::npos;
        const Json tokens = asked_.tokens ? IdsOf(choice.tokens) : Json::array();
        return Dump(Chosen(Final(choice.said.content, tokens, usage)));
    }

  private:
    static Json IdsOf(std::span<const engine::GeneratedToken> tokens) {
        Json ids = Json::array();
        for (const engine::GeneratedToken& token : tokens) ids.push_back(token.chance.id);
        return ids;
    }
    static void Event(const Json& json, std::string& out) {
        out += fmt::format("data: {}\n\n", Dump(json));
    }
    Json Final(const std::string& content, const Json& tokens, const Usage& usage) const {
        const bool word = !end_.stop_text.empty();
        const char* type = end_.finish == "length" ? "limit" : word ? "word" : "eos";
        return {{"index", 0},
                {"content", content},
                {"tokens", tokens},
                {"id_slot", slot_},
                {"stop", true},
                {"model", model_},
                {"tokens_predicted", usage.generated_tokens},
                {"tokens_evaluated", usage.prompt_tokens},
                {"generation_settings", settings_},
                {"prompt", prompt_},
                {"has_new_line", new_line_},
                {"truncated", end_.context_full},
                {"stop_type", type},
                {"stopping_word", end_.stop_text},
                {"tokens_cached", usage.cached_tokens},
                {"timings", TimingsJson(usage)}};
    }
    // Keeps the members that the client requested; nested members by path.
    Json Chosen(Json answer) const {
        if (asked_.fields.empty()) return answer;
        Json chosen = Json::object();
        for (const std::string& path : asked_.fields) {
            const Json* at = &answer;
            for (size_t begin = 0; at != nullptr && begin <= path.size();) {
                const size_t end = std::min(path.find('/', begin), path.size());
                const auto found =
                    at->is_object() ? at->find(path.substr(begin, end - begin)) : at->end();
                at = found == at->end() ? nullptr : &*found;
                begin = end + 1;
            }
            if (at != nullptr) chosen[path] = *at;
        }
        return chosen;
    }

    const std::string model_, prompt_;
    const LlamaRequested asked_;
    Json settings_;
    int64_t slot_ = -1;
    ChoiceEnd end_;
    bool new_line_ = false;
    std::optional<Usage> progress_;
    Json prompt_progress_;
};

double Rate(int64_t count, double seconds) {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

}  // namespace

std::string LlamaError(const ApiError& error) {
    if (!error.full) return OpenAiError(error);
    const FullContext& full = *error.full;
    return Dump(
        {{"error",
          {{"code", error.code},
           {"message", fmt::format("request ({}{} tokens) exceeds the available context size "
                                   "({} tokens), try increasing it",
                                   full.at_least ? "at least " : "", full.tokens, full.context)},
           {"type", "exceed_context_size_error"},
           {"param", error.param},
           {"n_prompt_tokens", full.tokens},
           {"n_ctx", full.context}}}});
}

Json PromptProgressJson(const PromptProgress& progress) {
    Json json{{"total", progress.total},
              {"cache", progress.cached},
              {"processed", progress.processed},
              {"time_ms", static_cast<int64_t>(progress.seconds * 1e3)}};
    if (progress.left_s >= 0) json["left_ms"] = static_cast<int64_t>(progress.left_s * 1e3);
    return json;
}

Json TimingsJson(const Usage& usage) {
    const int64_t computed = usage.prompt_tokens - usage.cached_tokens;
    const double prompt_s = usage.first_token_s - usage.queue_s;
    const double decode_s = usage.total_s - usage.first_token_s;
    const auto each_ms = [](int64_t count, double seconds) {
        return count > 0 ? 1000 * seconds / static_cast<double>(count) : 0;
    };
    return {{"cache_n", usage.cached_tokens},
            {"prompt_n", computed},
            {"prompt_ms", 1000 * prompt_s},
            {"prompt_per_token_ms", each_ms(computed, prompt_s)},
            {"prompt_per_second", Rate(computed, prompt_s)},
            {"predicted_n", usage.generated_tokens},
            {"predicted_ms", 1000 * decode_s},
            {"predicted_per_token_ms", each_ms(usage.generated_tokens, decode_s)},
            {"predicted_per_second", Rate(usage.generated_tokens, decode_s)}};
}

std::unique_ptr<Dialect> MakeLlamaDialect(const Served& served, const engine::Request& request,
                                          LlamaRequested asked) {
    return std::make_unique<LlamaDialect>(served, request, std::move(asked));
}

Json SamplingJson(const engine::SamplerOptions& options) {
    return {{"temperature", Decimal(options.temperature)},
            {"top_k", options.top_k},
            {"top_p", Decimal(options.top_p)},
            {"min_p", Decimal(options.min_p)},
            {"repeat_last_n", options.repeat_last},
            {"repeat_penalty", Decimal(options.repeat_penalty)},
            {"presence_penalty", Decimal(options.presence_penalty)},
            {"frequency_penalty", Decimal(options.frequency_penalty)},
            {"typical_p", Decimal(options.typical_p)},
            {"top_n_sigma", options.top_n_sigma > 0 ? Decimal(options.top_n_sigma) : -1.0},
            {"xtc_probability", Decimal(options.xtc_probability)},
            {"xtc_threshold", Decimal(options.xtc_threshold)},
            {"dry_multiplier", Decimal(options.dry.multiplier)},
            {"dry_base", Decimal(options.dry.base)},
            {"dry_allowed_length", options.dry.allowed},
            {"dry_penalty_last_n", options.dry.last == INT64_MAX ? -1 : options.dry.last},
            {"mirostat", 0}};
}

}  // namespace weft::serve
