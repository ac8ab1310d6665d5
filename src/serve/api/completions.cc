#include "serve/api/completions.h"

#include <fmt/format.h>

#include <algorithm>

#include "serve/api/chat.h"
#include "serve/api/logprobs.h"
#include "serve/api/openai_dialect.h"
#include "serve/api/prompts.h"
#include "serve/api/sampling.h"

namespace weft::serve {
namespace {

constexpr size_t kMostPrompts = 64;
// Of /tokenize and /detokenize, which no context bounds: a second's work.
constexpr size_t kMostTextBytes = size_t{4} << 20;
constexpr size_t kMostTokens = size_t{1} << 20;

class CompletionDialect final : public OpenAiDialect {
  public:
    CompletionDialect(const Served& served, int32_t adapter, bool usage, bool chances)
        : OpenAiDialect(served, adapter, "cmpl-", "text_completion", "text_completion", usage,
                        chances) {}
    void Delta(int choice, const chat::AnswerDelta& delta,
               std::span<const engine::SaidToken> tokens, std::string& out) override {
        Say(choice, delta.content, "null", tokens, out);
    }
    void EndChoice(int choice, const ChoiceEnd& end, std::string& out) override {
        Say(choice, "", Quoted(end.finish), {}, out);
    }

  private:
    Json ChoiceJson(const Choice& choice) override {
        int64_t offset = 0;
        return {{"text", choice.said.content},
                {"logprobs", chances_ ? TextLogprobs(served_.tokenizer(), choice.tokens, offset)
                                      : Json(nullptr)}};
    }
    void Say(int choice, const std::string& text, const std::string& finish,
             std::span<const engine::SaidToken> tokens, std::string& out) {
        const auto at = static_cast<size_t>(choice);
        if (offsets_.size() <= at) offsets_.resize(at + 1);
        std::string chances = "null";
        if (chances_ && !tokens.empty()) {
            chances = Dump(TextLogprobs(served_.tokenizer(), tokens, offsets_[at]));
        }
        Chunk(choice, fmt::format(R"("text":{})", Quoted(text)), chances, finish, out);
    }

    std::vector<int64_t> offsets_;
};

}  // namespace

std::optional<ApiError> PlanCompletion(const Json& body, const Served& served, AnswerPlan& plan) {
    Fields fields(body);
    if (auto error = CheckModel(fields, served)) return error;
    std::vector<Prompt> prompts = ReadPrompts(fields, served, "prompt", kMostPrompts);
    engine::Request request;
    ReadSampling(fields, served, request);
    request.max_tokens = ReadLength(fields, "max_tokens", 16);
    if (fields.Has("logprobs") && !fields.Get("logprobs").is_boolean()) {
        request.logprobs = static_cast<int>(fields.Integer("logprobs", 0, 0, kMostLogprobs));
    } else if (fields.Bool("logprobs", false)) {
        request.logprobs = 0;
    }
    const int64_t n = fields.Integer("n", 1, 1, kMostChoices);
    if (fields.Integer("best_of", n, 1, kMostChoices) != n) {
        fields.Fail("best_of", "'best_of' is not supported, unless it equals 'n'.",
                    "unsupported_value");
    }
    if (!fields.Text("suffix", "").empty()) {
        fields.Fail("suffix", "'suffix' is not supported.", "unsupported_value");
    }
    if (n * static_cast<int64_t>(prompts.size()) > kMostChoices) {
        fields.Fail("n", fmt::format("{} prompts with n = {} ask for more than {} answers.",
                                     prompts.size(), n, kMostChoices));
    }
    const bool echo = fields.Bool("echo", false);
    if (echo && request.logprobs >= 0) {
        fields.Fail("echo", "'echo' with 'logprobs' is not supported.", "unsupported_value");
    }
    plan.stream = fields.Bool("stream", false);
    Fields options(fields.Object("stream_options"), "stream_options.");
    const bool usage = options.Bool("include_usage", false);
    if (options.error()) return options.error();
    const ConstraintText constraint = ReadConstraint(fields);
    if (fields.error()) return fields.error();
    if (!constraint.kind.empty()) {
        auto matcher = served.constraints->Compile(constraint, plan.tenant);
        if (!matcher.ok()) {
            return ApiError{400, matcher.error().message, constraint.param, "invalid_value", true};
        }
        request.matcher = std::move(*matcher);
    }
    plan.dialect =
        std::make_unique<CompletionDialect>(served, request.adapter, usage, request.logprobs >= 0);
    plan.n = n;
    for (Prompt& prompt : prompts) {
        for (int64_t i = 0; i < n; ++i) {
            ChoicePlan choice;
            choice.request = request;
            choice.request.prompt = prompt.tokens;
            choice.counts_prompt = i == 0;
            if (echo && prompt.text.empty()) {
                choice.echo = served.tokenizer().Decode(prompt.tokens);
            } else if (echo) {
                choice.echo = prompt.text;
            }
            Reseed(choice.request, static_cast<int>(plan.choices.size()));
            plan.choices.push_back(std::move(choice));
        }
    }
    return {};
}

std::optional<ApiError> Tokenize(const Json& body, const Served& served, Json& answer) {
    Fields fields(body);
    if (auto error = CheckModel(fields, served)) return error;
    const bool special = fields.Bool("add_special_tokens", fields.Bool("add_special", true));
    const bool pieces = fields.Bool("with_pieces", fields.Bool("return_token_strs", false));
    std::vector<int32_t> tokens;
    if (fields.Has("messages")) {
        Conversation conversation = ReadConversation(fields);
        if (fields.error()) return fields.error();
        ChatPrompt prompt;
        if (auto error = MakePrompt(served, conversation, prompt)) return error;
        tokens = std::move(prompt.tokens);
    } else {
        const std::string text = fields.Text("prompt", fields.Text("content", ""));
        if (!fields.Has("prompt") && !fields.Has("content")) {
            fields.Fail("prompt", "Give a text as 'prompt', or a conversation as 'messages'.");
        }
        if (text.size() > kMostTextBytes) {
            fields.Fail("prompt", fmt::format("The text has {} bytes; at most {} are taken.",
                                              text.size(), kMostTextBytes));
        }
        if (fields.error()) return fields.error();
        tokens = served.tokenizer().Encode(text, {.add_special = special});
    }
    answer = {{"count", tokens.size()}, {"max_model_len", served.engine->context()}};
    answer["tokens"] = tokens;
    if (!pieces) return {};
    Json texts = Json::array();
    for (const int32_t token : tokens)
        texts.push_back(std::string(served.tokenizer().Piece(token)));
    answer["token_strs"] = std::move(texts);
    return {};
}

std::optional<ApiError> Detokenize(const Json& body, const Served& served, Json& answer) {
    Fields fields(body);
    if (auto error = CheckModel(fields, served)) return error;
    const Json& list = fields.List("tokens");
    if (!list.empty() && (!IsIds(list) || list.size() > kMostTokens)) {
        fields.Fail("tokens",
                    fmt::format("'tokens' must be a list of at most {} token ids.", kMostTokens),
                    "invalid_type");
    }
    if (fields.error()) return fields.error();
    const std::vector<int32_t> tokens = Ids(list);
    // The embedding may have more rows than the tokenizer has tokens: those stand for nothing.
    const int64_t vocab =
        std::max<int64_t>(served.engine->hyper().vocab, served.tokenizer().vocab_size());
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] >= 0 && tokens[i] < vocab) continue;
        return ApiError{400,
                        fmt::format("Token {} is not in the vocabulary (0 to {}).",
                                    list.at(i).dump(), vocab - 1),
                        "tokens", "invalid_value"};
    }
    answer = {{"prompt", served.tokenizer().Decode(tokens, false)}};
    return {};
}

}  // namespace weft::serve
