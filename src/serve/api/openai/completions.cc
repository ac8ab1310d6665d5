#include "serve/api/openai/completions.h"

#include <fmt/format.h>

#include <algorithm>

#include "serve/api/llama/fim.h"
#include "serve/api/llama/llama_server.h"
#include "serve/api/openai/openai_dialect.h"
#include "serve/api/prompts.h"
#include "serve/api/sampling.h"

namespace weft::serve {
namespace {

constexpr size_t kMostPrompts = 64;

class CompletionDialect final : public OpenAiDialect {
  public:
    // Per choice: offset of the next token in its text. See TextLogprobs.
    std::vector<int64_t> offsets{};

    CompletionDialect(const Served& served, int32_t adapter, bool usage, bool logprobs)
        : OpenAiDialect(served, adapter, "cmpl-", "text_completion", "text_completion", usage,
                        logprobs) {}
    void Delta(int choice, const chat::AnswerDelta& delta,
               std::span<const engine::GeneratedToken> tokens, std::string& out) override {
        Say(choice, delta.content, "null", tokens, out);
    }
    void EndChoice(int choice, const ChoiceEnd& end, std::string& out) override {
        Say(choice, "", Quoted(end.finish), {}, out);
    }

  private:
    Json ChoiceJson(const Choice& choice, size_t /*index*/) override {
        return {{"text", choice.said.content}};
    }
    std::string LogprobsOf(const Choice& choice, size_t index) override {
        int64_t offset = index < offsets.size() ? offsets[index] : 0;
        return TextLogprobs(served_.tokenizer(), choice.tokens, offset, token_names);
    }
    void Say(int choice, const std::string& text, const std::string& finish,
             std::span<const engine::GeneratedToken> tokens, std::string& out) {
        const auto at = static_cast<size_t>(choice);
        if (offsets.size() <= at) offsets.resize(at + 1);
        std::string logprobs = "null";
        if (logprobs_ && !tokens.empty()) {
            logprobs = TextLogprobs(served_.tokenizer(), tokens, offsets[at], token_names);
        }
        Chunk(choice, fmt::format(R"("text":{})", Quoted(text)), logprobs, finish, out);
    }
};

// Turns each prompt into a FIM prompt with the given suffix.
std::optional<ApiError> FillIn(const Served& served, const std::string& suffix, bool markers,
                               std::vector<Prompt>& prompts) {
    if (auto error = CheckFim(served, "suffix")) return error;
    if (auto error = CheckPromptBytes(served, suffix.size(), "suffix")) return error;
    const tokenizer::Tokenizer& tokenizer = served.tokenizer();
    const std::vector<int32_t> behind = PlainTokens(tokenizer, suffix);
    // Each prompt gets a copy.
    if (std::ssize(behind) >= served.engine->context()) {
        return TooLong({std::ssize(behind), served.engine->context()}, "suffix");
    }
    for (Prompt& prompt : prompts) {
        // Retokenized without the begin token, because a FIM prompt has its own.
        std::vector<int32_t> prefix =
            prompt.is_text
                ? tokenizer.Encode(prompt.text, {.add_special = false, .parse_special = markers})
                : prompt.tokens;
        if (!prompt.is_text) prompt.text = tokenizer.Decode(prompt.tokens);
        prompt.tokens = FimPrompt(served.fim, tokenizer, {std::move(prefix), behind});
    }
    return {};
}

// The echoed text. Special tokens in a list of ids are shown by name, since they have scores.
std::string EchoOf(const tokenizer::Tokenizer& tokenizer, const Prompt& prompt, bool scored) {
    const bool text = prompt.is_text || !prompt.text.empty();
    return text ? prompt.text : tokenizer.Decode(prompt.tokens, !scored);
}

}  // namespace

std::optional<ApiError> PlanCompletion(const Json& body, const Served& served, AnswerPlan& plan) {
    Fields fields(body);
    if (auto error = CheckModel(fields, served)) return error;
    engine::Request request;
    ReadSampling(fields, served, request);
    request.max_tokens = ReadLength(fields, "max_tokens", 16, 0);
    const auto kept = ReadKeptTokens(fields, served, request.max_tokens);
    std::vector<Prompt> prompts =
        ReadPrompts(fields, served, "prompt", kMostPrompts, true, nullptr, kept);
    if (fields.Has("logprobs") && !fields.Get("logprobs").is_boolean()) {
        request.logprobs = static_cast<int>(fields.Integer("logprobs", 0, 0, kMostLogprobs));
    } else if (fields.Bool("logprobs", false)) {
        request.logprobs = 0;
    }
    const int64_t n = fields.Integer("n", 1, 1, kMostChoices);
    if (fields.Integer("best_of", n, 1, kMostChoices) != n) {
        fields.Fail("best_of", "'best_of' is supported only if it equals 'n'.",
                    "unsupported_value");
    }
    const std::string suffix = fields.Text("suffix", "");
    if (n * static_cast<int64_t>(prompts.size()) > kMostChoices) {
        fields.Fail("n", fmt::format("{} prompts with n = {} exceed the limit of {} answers.",
                                     prompts.size(), n, kMostChoices));
    }
    const bool echo = fields.Bool("echo", false);
    const TokenNames token_names = ReadTokenNames(fields);
    ReadReports(fields, plan);
    plan.stream = fields.Bool("stream", false);
    const int prompt_logprobs = ReadPromptLogprobs(fields, plan.stream);
    const bool echo_logprobs = echo && request.logprobs >= 0;
    request.prompt_logprobs = std::max(prompt_logprobs, echo_logprobs ? request.logprobs : -1);
    Fields options(fields.Object("stream_options"), "stream_options.");
    const bool usage = options.Bool("include_usage", false);
    if (options.error()) return options.error();
    const ConstraintText constraint = ReadConstraint(fields);
    if (auto error = FinishRequest(fields, served, request, plan.left)) return error;
    if (!suffix.empty()) {
        if (auto error = FillIn(served, suffix, ReadsMarkers(fields), prompts)) return error;
        EndAtFim(served.fim, request);
    }
    if (auto error = ConstrainText(plan, served, constraint, request)) return error;
    auto dialect =
        std::make_unique<CompletionDialect>(served, request.adapter, usage, request.logprobs >= 0);
    dialect->prompt_logprobs = prompt_logprobs >= 0;
    dialect->token_names = token_names;
    dialect->timings = plan.timings;
    plan.n = n;
    for (Prompt& prompt : prompts) {
        const std::string shown = echo ? EchoOf(served.tokenizer(), prompt, echo_logprobs) : "";
        const int64_t hidden = echo_logprobs ? Characters(served.tokenizer(), prompt.tokens) : 0;
        ChoicePlan choice;
        choice.request = request;
        choice.request.prompt = std::move(prompt.tokens);
        choice.echo_logprobs = echo_logprobs;
        choice.echo = shown;
        const int64_t all = n * std::ssize(prompts);
        if (auto error = CheckCopies(served, choice, all, plan.prompt_name)) return error;
        for (int64_t i = 0; i < n; ++i) {
            if (echo_logprobs) dialect->offsets.push_back(Characters(shown) - hidden);
            plan.choices.push_back(choice);
            plan.choices.back().counts_prompt = i == 0;
            Reseed(plan.choices.back().request, static_cast<int>(plan.choices.size() - 1));
        }
    }
    plan.dialect = std::move(dialect);
    return CheckPromptLogprobs(plan.choices);
}

}  // namespace weft::serve
