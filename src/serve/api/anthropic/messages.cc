#include "serve/api/anthropic/messages.h"

#include <fmt/format.h>

#include <set>
#include <string_view>

#include "serve/api/anthropic/message_input.h"
#include "serve/api/constraint.h"
#include "serve/api/openai/chat.h"
#include "serve/api/reasoning.h"
#include "serve/api/sampling.h"

namespace weft::serve {
namespace {

// The code upon which Anthropic's clients send the whole conversation without `thread`.
constexpr std::string_view kThreadUnsupported = "thread_unsupported_request";

// notices: as AnswerPlan's.
Conversation ReadConversationOf(Fields& fields, std::set<std::string>& notices) {
    Conversation conversation;
    if (fields.Has("thread")) {
        fields.Fail("thread",
                    "thread: this server keeps no threads. Send the whole conversation as "
                    "'messages', without 'thread'.",
                    std::string(kThreadUnsupported));
        return conversation;
    }
    ReadTurnsAndTools(fields, conversation, notices);
    if (fields.error()) return conversation;
    Fields output(fields.Object("output_config"));
    if (output.Has("format")) {
        conversation.constraint =
            ReadConstraintOf(fields, output.Get("format"), "output_config.format");
    } else if (fields.Has("output_format")) {  // its name in the beta
        conversation.constraint =
            ReadConstraintOf(fields, fields.Get("output_format"), "output_format");
    } else {
        conversation.constraint = ReadConstraint(fields);
    }
    ReadTemplateVariables(fields, conversation.input.extra);
    ReadThinking(fields, conversation);
    // A final assistant message is a prefill that the answer continues.
    Json& messages = conversation.input.messages;
    const Json& last = messages.back();
    if (!fields.error() && last["role"] == "assistant" && !last.contains("tool_calls")) {
        conversation.continued = chat::ContinuedPart::kLast;
        if (messages.size() == 1)
            fields.Fail("messages", "messages: the first message must have the role 'user'.");
    }
    return conversation;
}

Json MessageUsage(const Usage& usage) {
    return {
        {"input_tokens", usage.prompt_tokens - usage.cached_tokens},
        {"cache_creation_input_tokens", 0},
        {"cache_creation", {{"ephemeral_5m_input_tokens", 0}, {"ephemeral_1h_input_tokens", 0}}},
        {"service_tier", "standard"},
        {"cache_read_input_tokens", usage.cached_tokens},
        {"output_tokens", usage.generated_tokens}};
}

Json InputOf(const chat::ToolCall& call) {
    if (call.arguments.is_object()) return call.arguments;
    return {{"arguments", call.arguments}};
}

class MessagesDialect final : public Dialect {
  public:
    MessagesDialect(const Served& served, int32_t adapter, int64_t prompt_tokens)
        : served_(served),
          model_(served.NameOf(adapter)),
          prompt_tokens_(prompt_tokens),
          id_(MakeId("msg_")) {}

    void Begin(std::string& out) override {
        const Usage usage{prompt_tokens_, 0, 0};
        const Json message = Message(Json::array(), nullptr, nullptr, usage);
        Event("message_start", fmt::format(R"("message":{})", Dump(message)), out);
        Waiting(0, out);
    }
    void Waiting(int, std::string& out) override { out += AnthropicPing(); }
    void Delta(int, const chat::AnswerDelta& delta, std::span<const engine::GeneratedToken>,
               std::string& out) override {
        if (!delta.reasoning.empty()) {
            Open(Block::kThinking, out);
            DeltaOf("thinking_delta", "thinking", Quoted(delta.reasoning), out);
        }
        if (!delta.content.empty()) {
            Open(Block::kText, out);
            DeltaOf("text_delta", "text", Quoted(delta.content), out);
        }
        for (const chat::ToolCall& call : delta.tool_calls) {
            OpenCall(call.name, out);
            DeltaOf("input_json_delta", "partial_json", Quoted(Dump(InputOf(call))), out);
            Close(out);
        }
        for (const chat::CallPart& part : delta.call_parts) {
            if (part.begins) OpenCall(part.name, out);
            if (!part.arguments.empty()) {
                DeltaOf("input_json_delta", "partial_json", Quoted(part.arguments), out);
            }
            if (part.ends) Close(out);
        }
    }
    void EndChoice(int, const ChoiceEnd& end, std::string& out) override {
        Close(out);
        end_ = end;
    }
    void End(const Usage& usage, std::string& out) override {
        const Json delta{{"stop_reason", Reason(end_)},
                         {"stop_sequence", StopText(end_)},
                         {"stop_details", nullptr},
                         {"container", nullptr}};
        Event("message_delta",
              fmt::format(R"("delta":{},"usage":{})", Dump(delta), Dump(MessageUsage(usage))), out);
        Event("message_stop", "", out);
    }
    void Fail(const ApiError& error, std::string& out) override {
        out += fmt::format("event: error\ndata: {}\n\n", AnthropicError(error));
    }
    std::string ErrorBody(const ApiError& error) override { return AnthropicError(error); }

    std::string Whole(const std::vector<Choice>& choices, const Usage& usage) override {
        const Choice& choice = choices.front();
        Json content = Json::array();
        if (!choice.said.reasoning.empty()) {
            content.push_back(
                {{"type", "thinking"}, {"thinking", choice.said.reasoning}, {"signature", ""}});
        }
        if (!choice.said.content.empty()) {
            content.push_back({{"type", "text"}, {"text", choice.said.content}});
        }
        for (const chat::ToolCall& call : choice.said.tool_calls) {
            content.push_back({{"type", "tool_use"},
                               {"id", MakeCallId(served_, "toolu_")},
                               {"name", call.name},
                               {"input", InputOf(call)}});
        }
        for (const chat::CallPart& begun : choice.said.call_parts) {
            // `input` must be an object, so an unfinished call has none.
            content.push_back({{"type", "tool_use"},
                               {"id", MakeCallId(served_, "toolu_")},
                               {"name", begun.name},
                               {"input", Json::object()}});
        }
        return Dump(Message(std::move(content), Reason(choice.end), StopText(choice.end), usage));
    }

  private:
    enum class Block { kNone, kText, kThinking, kTool };

    static const char* Reason(const ChoiceEnd& end) {
        if (end.finish == "tool_calls") return "tool_use";
        if (!end.stop_text.empty()) return "stop_sequence";
        if (end.finish == "stop") return "end_turn";
        return end.context_full ? "model_context_window_exceeded" : "max_tokens";
    }
    static Json StopText(const ChoiceEnd& end) {
        return end.stop_text.empty() || end.finish == "tool_calls" ? Json(nullptr)
                                                                   : Json(end.stop_text);
    }
    Json Message(Json content, Json reason, Json stop, const Usage& usage) const {
        return {{"id", id_},
                {"type", "message"},
                {"role", "assistant"},
                {"model", model_},
                {"content", std::move(content)},
                {"stop_reason", std::move(reason)},
                {"stop_sequence", std::move(stop)},
                {"stop_details", nullptr},
                {"container", nullptr},
                {"usage", MessageUsage(usage)}};
    }
    static void Event(const char* type, const std::string& members, std::string& out) {
        out += fmt::format("event: {}\ndata: {{\"type\":\"{}\"{}{}}}\n\n", type, type,
                           members.empty() ? "" : ",", members);
    }
    void DeltaOf(const char* type, const char* name, const std::string& json, std::string& out) {
        Event(
            "content_block_delta",
            fmt::format(R"("index":{},"delta":{{"type":"{}","{}":{}}})", index_, type, name, json),
            out);
    }
    void Start(const std::string& block, std::string& out) {
        ++index_;
        Event("content_block_start", fmt::format(R"("index":{},"content_block":{})", index_, block),
              out);
    }
    void OpenCall(const std::string& name, std::string& out) {
        Close(out);
        Start(fmt::format(R"({{"type":"tool_use","id":"{}","name":{},"input":{{}}}})",
                          MakeCallId(served_, "toolu_"), Quoted(name)),
              out);
        open_ = Block::kTool;
    }
    void Open(Block kind, std::string& out) {
        if (open_ == kind) return;
        Close(out);
        Start(kind == Block::kText ? R"({"type":"text","text":""})"
                                   : R"({"type":"thinking","thinking":"","signature":""})",
              out);
        open_ = kind;
    }
    void Close(std::string& out) {
        if (open_ == Block::kNone) return;
        if (open_ == Block::kThinking) DeltaOf("signature_delta", "signature", "\"\"", out);
        Event("content_block_stop", fmt::format(R"("index":{})", index_), out);
        open_ = Block::kNone;
    }

    const Served& served_;
    const std::string& model_;
    const int64_t prompt_tokens_;
    const std::string id_;
    int index_ = -1;  // index of the last block opened
    Block open_ = Block::kNone;
    ChoiceEnd end_;
};

}  // namespace

std::string AnthropicPing() {
    return "event: ping\ndata: {\"type\":\"ping\"}\n\n";
}

std::string AnthropicError(const ApiError& error) {
    const auto type = [&] {
        switch (error.status) {
            case 400: return "invalid_request_error";
            case 401: return "authentication_error";
            case 403: return "permission_error";
            case 404: return "not_found_error";
            case 413: return "request_too_large";
            case 429: return "rate_limit_error";
            case 503:
            case 529: return "overloaded_error";
            case 504: return "timeout_error";
        }
        return error.status < 500 ? "invalid_request_error" : "api_error";
    };
    std::string message = error.message;
    if (error.full) {  // Claude Code compacts its conversation upon these words
        const FullContext& full = *error.full;
        message = fmt::format("prompt is too long: {}{} tokens > {} maximum",
                              full.at_least ? "at least " : "", full.tokens,
                              full.context - (full.answers ? 1 : 0));
    }
    Json body{{"type", type()}, {"message", std::move(message)}};
    if (error.code == kThreadUnsupported) body["details"] = {{"error_code", error.code}};
    return Dump({{"type", "error"}, {"error", std::move(body)}});
}

std::unique_ptr<Dialect> MakeMessagesDialect(const Served& served, int64_t prompt_tokens,
                                             int32_t adapter) {
    return std::make_unique<MessagesDialect>(served, adapter, prompt_tokens);
}

std::optional<ApiError> PlanMessages(const Json& body, const Served& served, AnswerPlan& plan) {
    Fields fields(body);
    if (auto error = CheckModel(fields, served)) return error;
    Conversation conversation = ReadConversationOf(fields, plan.notices);
    engine::Request request;
    ReadSampling(fields, served, request);
    const std::string other = fields.RequestName("stop");
    if (!request.stop.empty() && other != fields.RequestName("stop_sequences")) {
        AddNames(plan.left.left_out, other);
    }
    if (fields.Has("stop_sequences")) request.stop = ReadStops(fields, "stop_sequences");
    if (!fields.Has("max_tokens")) {
        fields.Fail("max_tokens", "max_tokens: Field required", "missing");
    }
    request.max_tokens = fields.Integer("max_tokens", 1, 1, INT64_MAX);
    plan.stream = fields.Bool("stream", false);
    conversation.kept = ReadKeptTokens(fields, served, request.max_tokens);
    if (auto error = FinishRequest(fields, served, request, plan.left)) return error;
    if (auto error = PlanConversation(served, conversation, std::move(request), 1, plan)) {
        return error;
    }
    const engine::Request& planned = plan.choices[0].request;
    const auto prompt_tokens = static_cast<int64_t>(planned.prompt.size());
    plan.dialect = MakeMessagesDialect(served, prompt_tokens, planned.adapter);
    return {};
}

std::optional<ApiError> CountMessageTokens(const Json& body, const Served& served,
                                           AnswerPlan& plan) {
    Fields fields(body);
    if (auto error = CheckModel(fields, served)) return error;
    std::set<std::string> notices;  // the request that is counted repeats them
    Conversation conversation = ReadConversationOf(fields, notices);
    CheckMembers(fields, served, plan.left);
    plan.left.notices.clear();
    if (fields.error()) return fields.error();
    ChatPrompt prompt;
    if (auto error = MakePrompt(served, conversation, prompt, PromptUse::kReturned)) return error;
    AddNames(plan.left.left_out, conversation.left_out);
    plan.reply = Dump({{"input_tokens", prompt.tokens.size()}});
    return {};
}

}  // namespace weft::serve
