#include "serve/api/ollama/ollama_dialect.h"

#include <fmt/format.h>

#include "base/deadline.h"
#include "serve/api/ollama/ollama.h"
#include "serve/api/openai/logprobs.h"

namespace weft::serve {
namespace {

int64_t Nanoseconds(double seconds) {
    return static_cast<int64_t>(seconds * 1e9);
}

// Ollama returns arguments as an object.
Json ObjectOf(const chat::ToolCall& call) {
    if (call.arguments.is_object()) return call.arguments;
    return {{"arguments", call.arguments}};
}

class OllamaDialect final : public Dialect {
  public:
    OllamaDialect(const Served& served, OllamaOptions words)
        : served_(served),
          words_(std::move(words)),
          head_(fmt::format(R"({{"model":{},"created_at":")", Quoted(words_.model))) {}

    bool repeats() const override { return true; }  // "context"
    const char* StreamType() const override { return "application/x-ndjson"; }
    void Begin(std::string&) override {}
    void Delta(int, const chat::AnswerDelta& delta, std::span<const engine::GeneratedToken> tokens,
               std::string& out) override {
        out += fmt::format(R"({}{}","{}":{},"done":false{}}})"
                           "\n",
                           head_, OllamaTime(), kind(), MessageJson(delta), Chances(tokens));
    }
    void EndChoice(int, const ChoiceEnd& end, std::string&) override { end_ = end; }
    void End(const Usage& usage, std::string& out) override {
        out += Line({}, {}, end_, usage);
        out += '\n';
    }
    void Fail(const ApiError& error, std::string& out) override {
        out += OllamaError(error);
        out += '\n';
    }
    std::string ErrorBody(const ApiError& error) override { return OllamaError(error); }
    std::string Whole(const std::vector<Choice>& choices, const Usage& usage) override {
        const Choice& choice = choices.front();
        return Line(choice.said, choice.tokens, choice.end, usage);
    }

    std::string Nothing(const char* reason) {
        return fmt::format(R"({}{}","{}":{},"done":true,"done_reason":"{}"}})", head_, OllamaTime(),
                           kind(), MessageJson({}), reason);
    }

  private:
    const char* kind() const { return words_.chat ? "message" : "response"; }

    // chat: {"role", "content", "thinking", "tool_calls"}. generate: the text, with the others as
    // members of the line.
    std::string MessageJson(const chat::AnswerDelta& delta) {
        std::string more;
        if (!delta.reasoning.empty()) {
            more += fmt::format(R"(,"thinking":{})", Quoted(delta.reasoning));
        }
        if (!delta.tool_calls.empty()) {
            more += fmt::format(R"(,"tool_calls":{})", Dump(CallsJson(delta.tool_calls)));
        }
        const std::string content = Quoted(delta.content);
        return words_.chat ? fmt::format(R"({{"role":"assistant","content":{}{}}})", content, more)
                           : content + more;
    }
    Json CallsJson(const std::vector<chat::ToolCall>& calls) {
        Json list = Json::array();
        for (const chat::ToolCall& call : calls) {
            list.push_back(
                {{"id", MakeCallId(served_, "call_")},
                 {"function",
                  {{"index", calls_++}, {"name", call.name}, {"arguments", ObjectOf(call)}}}});
        }
        return list;
    }
    std::string Chances(std::span<const engine::GeneratedToken> tokens) const {
        if (!words_.logprobs || tokens.empty()) return {};
        std::string list;
        for (const engine::GeneratedToken& token : tokens) {
            Json json = TokenJson(served_.tokenizer(), token);
            if (token.best.empty()) json.erase("top_logprobs");
            list += (list.empty() ? "" : ",") + Dump(json);
        }
        return fmt::format(R"(,"logprobs":[{}])", list);
    }
    // The last line of a stream, or a complete answer. The queueing time is reported as
    // load_duration.
    std::string Line(const chat::AnswerDelta& said, std::span<const engine::GeneratedToken> tokens,
                     const ChoiceEnd& end, const Usage& usage) {
        const int64_t total_ns = NowNs() - words_.begin_ns;
        return fmt::format(
            R"({}{}","{}":{},"done":true,"done_reason":"{}"{}{},"total_duration":{},)"
            R"("load_duration":{},"prompt_eval_count":{},"prompt_eval_duration":{},)"
            R"("eval_count":{},"eval_duration":{}}})",
            head_, OllamaTime(), kind(), MessageJson(said),
            end.finish == "length" ? "length" : "stop", Context(end), Chances(tokens), total_ns,
            Nanoseconds(usage.queue_s), usage.prompt_tokens,
            Nanoseconds(usage.first_token_s - usage.queue_s), usage.generated_tokens,
            Nanoseconds(usage.total_s - usage.first_token_s));
    }
    std::string Context(const ChoiceEnd& end) const {
        if (words_.context.empty()) return {};
        std::string list;
        for (const int32_t id : words_.context) list += fmt::format("{},", id);
        for (const int32_t id : end.tokens) list += fmt::format("{},", id);
        list.pop_back();
        return fmt::format(R"(,"context":[{}])", list);
    }

    const Served& served_;
    const OllamaOptions words_;
    const std::string head_;  // JSON prefix of every line
    int calls_ = 0;
    ChoiceEnd end_;
};

}  // namespace

std::unique_ptr<Dialect> MakeOllamaDialect(const Served& served, OllamaOptions words) {
    return std::make_unique<OllamaDialect>(served, std::move(words));
}

std::string OllamaNothing(const OllamaOptions& words, const char* reason) {
    const Served none;
    return OllamaDialect(none, words).Nothing(reason);
}

std::string OllamaWaiting(const OllamaOptions& words) {
    const Served none;
    std::string line;
    OllamaDialect(none, words).Waiting(0, line);
    return line;
}

}  // namespace weft::serve
