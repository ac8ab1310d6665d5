#include "serve/api/openai/chat.h"

#include <fmt/format.h>

#include "serve/api/openai/openai_dialect.h"
#include "serve/api/openai/tool_choice.h"
#include "serve/api/reasoning.h"
#include "serve/api/sampling.h"

namespace weft::serve {
namespace {

void ReadMessages(Fields& fields, chat::ChatInput& input) {
    const Json& messages = fields.List("messages");
    if (messages.empty()) {
        return fields.Fail("messages", "'messages' must be a non-empty list of messages.",
                           "invalid_value");
    }
    if (!fields.AtMost(kMostMessages, "messages", messages)) return;
    fields.Each("messages", messages, [&](Fields& message, const Json& json) {
        const std::string role = message.Choice(
            "role", "", {"system", "developer", "user", "assistant", "tool", "function"});
        std::vector<size_t> parts;
        std::string thought;
        Json content = message.Has("content") ? ReadContent(message, "content", &parts, &thought)
                                              : Json(nullptr);
        if (role == "assistant" && (content.is_null() || content == "")) {
            content = message.Text("refusal", "");  // `refusal` replaces an absent content
        }
        // A function without a result gives null.
        if ((role == "tool" || role == "function") && content.is_null()) content = "";
        if (content.is_null()) {
            message.Fail("content", fmt::format("'{}' is missing.", message.PathOf("content")),
                         "missing");
        }
        if (message.error()) return;
        Json copy = json;
        copy["content"] = content;
        copy.erase(chat::kPartsMember);
        if (!parts.empty()) copy[chat::kPartsMember] = parts;
        chat::AddThought(std::move(thought), copy);
        input.messages.push_back(std::move(copy));
    });
}

// Reads `tools`, or the legacy `functions` converted to tools.
void ReadFunctions(Fields& fields, Conversation& conversation, Json& tools) {
    const Json& functions = fields.List("functions");
    tools = fields.List("tools");
    conversation.older_calls = !functions.empty();
    if (conversation.older_calls && !tools.empty()) {
        return fields.Fail("functions",
                           "'functions' is the older form of 'tools'; send only one of them.");
    }
    const char* const member = conversation.older_calls ? "functions" : "tools";
    const Json& list = conversation.older_calls ? functions : tools;
    if (!fields.AtMost(kMostTools, member, list)) return;
    if (conversation.older_calls) chat::WrapFunctions(tools = functions);
    for (size_t i = 0; i < tools.size(); ++i) {
        const bool sound = tools[i].is_object() && tools[i].contains("function") &&
                           tools[i]["function"].is_object() &&
                           tools[i]["function"].contains("name") &&
                           tools[i]["function"]["name"].is_string();
        if (sound) continue;
        const std::string name = fmt::format("{}[{}]", member, i);
        const char* const form = conversation.older_calls
                                     ? R"({"name": ..., ...})"
                                     : R"({"type": "function", "function": {"name": ..., ...}})";
        return fields.Fail(name.c_str(), fmt::format("'{}' must be {}.", name, form));
    }
}

void ReadTools(Fields& fields, Conversation& conversation) {
    Json tools;
    ReadFunctions(fields, conversation, tools);
    if (fields.error()) return;
    if (!tools.empty()) conversation.input.tools = tools;
    if (conversation.older_calls && fields.Has("function_call")) {
        const Json& call = fields.Get("function_call");
        if (call.is_object()) {
            return ForceTool(fields, Fields(call).Text("name", ""), conversation, "function_call");
        }
        if (fields.Choice("function_call", "auto", {"none", "auto"}) == "none") {
            conversation.input.tools = nullptr;
        }
        return;
    }
    const Json& choice = fields.Get("tool_choice");
    if (choice.is_object()) {
        if (Fields(choice).Get("type") == "allowed_tools") {
            return AllowTools(fields, Fields(choice).Object("allowed_tools"),
                              "tool_choice.allowed_tools.", conversation);
        }
        Fields function(Fields(choice).Object("function"));
        return ForceTool(fields, function.Text("name", ""), conversation);
    }
    const std::string word = fields.Choice("tool_choice", "auto", {"none", "auto", "required"});
    if (word == "none") conversation.input.tools = nullptr;
    if (word == "required") {
        conversation.forced_tool.assign(1, '*');
        if (tools.empty()) fields.Fail("tool_choice", "'tool_choice' is set, but 'tools' is not.");
    }
}

// Formats stream deltas and complete messages.
class ChatDialect final : public OpenAiDialect {
  public:
    // older_calls: the request has `functions`, so calls are returned as `function_call`.
    ChatDialect(const Served& served, int32_t adapter, bool usage, bool logprobs, bool older_calls)
        : OpenAiDialect(served, adapter, "chatcmpl-", "chat.completion", "chat.completion.chunk",
                        usage, logprobs),
          older_calls_(older_calls) {}
    void Delta(int choice, const chat::AnswerDelta& delta,
               std::span<const engine::GeneratedToken> tokens, std::string& out) override {
        Greet(choice, out);
        std::string fields;
        const auto add = [&](const char* name, const std::string& json) {
            fields += fmt::format("{}\"{}\":{}", fields.empty() ? "" : ",", name, json);
        };
        if (!delta.reasoning.empty()) add("reasoning_content", Quoted(delta.reasoning));
        if (!delta.content.empty()) add("content", Quoted(delta.content));
        const Json calls = older_calls_ ? OlderCallJson(delta) : CallsJson(choice, delta);
        if (!calls.empty()) add(older_calls_ ? "function_call" : "tool_calls", Dump(calls));
        Say(choice, fields, "null", tokens, out);
    }
    void EndChoice(int choice, const ChoiceEnd& end, std::string& out) override {
        Greet(choice, out);
        Say(choice, "", Quoted(FinishOf(end)), {}, out);
    }

  private:
    // The first delta of a choice has the role.
    void Greet(int choice, std::string& out) {
        const auto at = static_cast<size_t>(choice);
        if (greeted_.size() <= at) {
            greeted_.resize(at + 1);
            calls_.resize(at + 1);
        }
        if (greeted_[at]) return;
        greeted_[at] = true;
        Say(choice, R"("role":"assistant","content":"")", "null", {}, out);
    }
    void Say(int choice, const std::string& delta, const std::string& finish,
             std::span<const engine::GeneratedToken> tokens, std::string& out) {
        std::string logprobs = "null";
        if (logprobs_ && !tokens.empty())
            logprobs = ChatLogprobs(served_.tokenizer(), tokens, token_names);
        Chunk(choice, fmt::format(R"("delta":{{{}}})", delta), logprobs, finish, out);
    }
    // Each call has an index; chunks after the first contain arguments only.
    Json CallsJson(int choice, const chat::AnswerDelta& delta) {
        int& next = calls_[static_cast<size_t>(choice)];
        Json list = Json::array();
        for (const chat::ToolCall& call : delta.tool_calls) {
            Json json{{"index", next++}};
            json.update(CallJson(call.name, call.ArgumentsText()));
            list.push_back(std::move(json));
        }
        for (const chat::CallPart& part : delta.call_parts) {
            if (part.begins) {
                Json json{{"index", next++}};
                json.update(CallJson(part.name, part.arguments));
                list.push_back(std::move(json));
            } else if (!part.arguments.empty()) {
                list.push_back(
                    {{"index", next - 1}, {"function", {{"arguments", part.arguments}}}});
            }
        }
        return list;
    }
    // A request with `functions` gets at most one call (PlanChat), without index and id.
    static Json OlderCallJson(const chat::AnswerDelta& said) {
        Json call = Json::object();
        const auto add = [&](const std::string& arguments) {
            call["arguments"] = call.value("arguments", "") + arguments;
        };
        for (const chat::ToolCall& whole : said.tool_calls) {
            call["name"] = whole.name;
            add(whole.ArgumentsText());
        }
        for (const chat::CallPart& part : said.call_parts) {
            if (part.begins) call["name"] = part.name;
            if (part.begins || !part.arguments.empty()) add(part.arguments);
        }
        return call;
    }
    std::string FinishOf(const ChoiceEnd& end) const {
        return older_calls_ && end.finish == "tool_calls" ? "function_call" : end.finish;
    }
    Json CallJson(const std::string& name, const std::string& arguments) const {
        return {{"id", MakeCallId(served_, "call_")},
                {"type", "function"},
                {"function", {{"name", name}, {"arguments", arguments}}}};
    }
    Json ChoiceJson(const Choice& choice, size_t /*index*/) override {
        const chat::AnswerDelta& said = choice.said;
        Json message{{"role", "assistant"}, {"content", said.content}, {"refusal", nullptr}};
        if (!said.reasoning.empty()) message["reasoning_content"] = said.reasoning;
        const bool calls = !said.tool_calls.empty() || !said.call_parts.empty();
        if (calls && older_calls_) message["function_call"] = OlderCallJson(said);
        if (calls && said.content.empty()) message["content"] = nullptr;
        for (const chat::ToolCall& call : said.tool_calls) {
            if (older_calls_) break;
            message["tool_calls"].push_back(CallJson(call.name, call.ArgumentsText()));
        }
        for (const chat::CallPart& begun : said.call_parts) {
            if (older_calls_) break;
            message["tool_calls"].push_back(CallJson(begun.name, begun.arguments));
        }
        return {{"message", std::move(message)}, {"finish_reason", FinishOf(choice.end)}};
    }
    std::string LogprobsOf(const Choice& choice, size_t /*index*/) override {
        return ChatLogprobs(served_.tokenizer(), choice.tokens, token_names);
    }

    const bool older_calls_;
    std::vector<bool> greeted_;
    std::vector<int> calls_;
};

// Decides whether the answer continues the last message: always if the assistant wrote it, as in
// llama-server, unless the request sets otherwise.
void ReadContinuation(Fields& fields, Conversation& conversation) {
    chat::ChatInput& input = conversation.input;
    Json& last = input.messages.back();
    input.add_generation_prompt = fields.Bool("add_generation_prompt", true);
    const Json& member = fields.Get("continue_final_message");
    const bool reasons = member == "reasoning_content";
    const bool named = reasons || member == "content";
    Fields message(last, fmt::format("messages[{}].", input.messages.size() - 1));
    const bool prefix = message.Bool("prefix", false);
    if (message.error()) return fields.Fail("messages", message.error()->message, "invalid_type");
    last.erase("prefix");
    const bool asks = named || prefix || fields.Bool("continue_final_message", false);
    const bool told = asks || !member.is_null() || fields.Has("add_generation_prompt");
    const auto refuse = [&](const char* why) {
        fields.Fail(prefix ? "messages" : "continue_final_message", why, "invalid_value");
    };
    if (asks && fields.Has("add_generation_prompt") && input.add_generation_prompt) {
        return refuse(
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True.");
    }
    const bool says = last["role"] == "assistant";
    const auto calls = last.find("tool_calls");
    const auto call = last.find("function_call");
    const bool has_calls =
        (call != last.end() && !call->is_null()) || (calls != last.end() && !calls->empty());
    if (asks && !says) return refuse("The last message must be the assistant's to be continued.");
    if (asks && has_calls) {
        return refuse("Cannot continue an assistant message that contains tool calls.");
    }
    if (!asks && (told || !says || has_calls)) return;
    conversation.continued = reasons ? chat::ContinuedPart::kReasoning
                             : named ? chat::ContinuedPart::kContent
                                     : chat::ContinuedPart::kLast;
}

}  // namespace

Json ReadContent(Fields& fields, const char* name, std::vector<size_t>* parts,
                 std::string* thought) {
    std::string text;
    const auto fault = chat::ReadContentText(fields.Get(name), fields.Get("role") == "assistant",
                                             fields.PathOf(name), text, parts, thought);
    if (fault) fields.Fail(name, fault->message, fault->code);
    return text;
}

void ReadTemplateVariables(Fields& fields, Json& variables) {
    const Json& given = fields.Object("chat_template_kwargs");
    Json named = Json::object();
    if (!fields.List("documents").empty()) named["documents"] = fields.Get("documents");
    for (const Json* more : std::initializer_list<const Json*>{&named, &given}) {
        if (!more->empty() && !variables.is_object()) variables = Json::object();
        if (!more->empty()) variables.update(*more);
    }
}

Conversation ReadConversation(Fields& fields) {
    Conversation conversation;
    ReadMessages(fields, conversation.input);
    if (fields.error()) return conversation;
    ReadTools(fields, conversation);
    conversation.parallel_calls =
        fields.Bool("parallel_tool_calls", true) && !conversation.older_calls;
    ReadTemplateVariables(fields, conversation.input.extra);
    ReadThinking(fields, conversation);
    conversation.adds_special = fields.Bool("add_special_tokens", true);
    ReadContinuation(fields, conversation);
    return conversation;
}

namespace {

Result<chat::ContinuedPrompt> RenderPrompt(const Served& served, Conversation& conversation) {
    chat::ChatInput& input = conversation.input;
    if (conversation.continued) {
        return chat::RenderContinued(*served.chat, input, served.family, *conversation.continued);
    }
    WEFT_ASSIGN(chat::Text text, served.chat->Render(input));
    chat::ContinuedPrompt prompt{std::move(text)};
    prompt.in_reasoning = chat::EndsInReasoning(prompt.text.view());
    return prompt;
}

std::optional<ApiError> CheckConversationBytes(const Served& served, size_t bytes, PromptUse use) {
    auto error = CheckPromptBytes(served, bytes, "messages");
    if (!error || use == PromptUse::kComputed) return error;
    if (bytes <= kMostPlainBytes) return {};
    error->message = fmt::format("the conversation has {} bytes; at most {} are tokenized", bytes,
                                 kMostPlainBytes);
    error->code = "invalid_value";
    error->full.reset();
    return error;
}

// Removes a begin token that the template did not write.
void DropAddedBegin(const Served& served, ChatPrompt& prompt) {
    const tokenizer::TokenizerData& data = served.tokenizer().data();
    const bool begins = !prompt.tokens.empty() && prompt.tokens.front() == data.bos;
    if (!data.add_bos || !begins) return;
    const std::vector<int32_t> own = served.tokenizer().Encode(
        std::string_view(prompt.text).substr(0, served.tokenizer().Piece(data.bos).size()),
        {.add_special = false, .parse_special = true});
    if (own.empty() || own.front() != data.bos) prompt.tokens.erase(prompt.tokens.begin());
}

}  // namespace

std::optional<ApiError> MakePrompt(const Served& served, Conversation& conversation,
                                   ChatPrompt& out, PromptUse use) {
    if (!served.chat) return ApiError{400, served.chat_error, "messages", "unsupported_value"};
    Json& messages = conversation.input.messages;
    if (conversation.continued && !chat::HasWords(messages.back())) {
        conversation.continued.reset();
        messages.erase(messages.size() - 1);
    }
    // (The messages may also come from items that have no part in the conversation.)
    if (messages.empty()) {
        return ApiError{400, "The conversation has no message with content.", "messages",
                        "invalid_value"};
    }
    // Checked before rendering, because a template may copy the text several times. Assistant
    // messages are not counted, since the template may drop part of them.
    size_t bytes = 0;
    for (const Json& message : messages) {
        const auto content = message.find("content");
        if (message["role"] == "assistant" || content == message.end()) continue;
        bytes += content->is_string() ? content->get_ref<const std::string&>().size() : 0;
    }
    if (auto error = CheckConversationBytes(served, bytes, use)) return error;
    if (const auto fault = chat::PrepareConversation(served.forms, conversation.input)) {
        const std::string dot = fault->member.empty() ? "" : ".";
        return ApiError{400, fault->message,
                        fmt::format("messages[{}]{}{}", fault->at, dot, fault->member), fault->code,
                        true};
    }
    FillVariables(served, conversation);
    const auto prompt = RenderPrompt(served, conversation);
    if (!prompt.ok()) {  // the error is the request's fault, whatever its code
        const ApiError error = ErrorOf(prompt.error());
        return ApiError{400, error.message, "messages",
                        error.status == 400 ? error.code : "invalid_value", true};
    }
    const chat::Text& text = prompt->text;
    if (auto error = CheckConversationBytes(served, text.size(), use)) return error;
    out = {served.chat->Encode(text), prompt->in_reasoning, text.bytes(), prompt->begun,
           prompt->words};
    if (!conversation.adds_special) DropAddedBegin(served, out);
    return {};
}

namespace {

// The reasoning before a forced call; families with messages begin the call at once.
engine::Reasoning CallReasoning(const Served& served, const Conversation& conversation,
                                const ChatPrompt& prompt) {
    if (!chat::HeadsOf(served.family).end.empty()) return {};
    return ReasoningOf(served, conversation, prompt, true);
}

// Forces the tool call that the API demands. The start of the call, in the family's format, is
// appended to the prompt; a grammar constrains the rest. If the model may reason first, the grammar
// covers the whole call. If the family's format cannot express the names or arguments, the default
// format is used.
std::optional<ApiError> ForceCall(const Conversation& conversation, const ChatPrompt& prompt,
                                  const Served& served, AnswerPlan& plan, ChoicePlan& choice) {
    const chat::CallFrame usual;
    const bool plain = PlainNames(conversation.input.tools, conversation.forced_tool);
    const chat::CallFrame* frame = plain ? &served.call_frame : &usual;
    const engine::Reasoning reasoning = CallReasoning(served, conversation, prompt);
    const auto reasons = [&] {
        return !reasoning.end.empty() &&
               chat::ThinkEnd(frame->family) == chat::ThinkEnd(served.family);
    };
    const auto named = [&] {
        return CallConstraint(conversation.input.tools, conversation.forced_tool, *frame,
                              reasons());
    };
    DemandedCall call = named();
    auto matcher = CompileFor(plan, served, call.constraint);
    if (!matcher.ok() && *frame != usual) {
        frame = &usual;
        call = named();
        matcher = CompileFor(plan, served, call.constraint);
    }
    if (!matcher.ok())
        return ApiError{400, matcher.error().message, "tools", "invalid_value", true};
    choice.request.matcher = std::move(*matcher);
    choice.given = call.given;
    choice.closing = call.closing;
    choice.demanded = std::make_shared<const chat::CallFrame>(*frame);
    plan.family = frame->family;
    if (reasons()) {
        choice.request.reasoning = reasoning;
        return {};
    }
    plan.begins_in_reasoning = false;
    const std::string thought = prompt.in_reasoning ? chat::ClosedThought(served.family) : "";
    const std::vector<int32_t> more = served.tokenizer().Encode(
        thought + call.given, {.add_special = false, .parse_special = true});
    choice.request.prompt.insert(choice.request.prompt.end(), more.begin(), more.end());
    return {};
}

// A constraint that allows the demanded format or a tool call. If the family's format cannot
// express the arguments, calls use the default format.
Result<grammar::Matcher> FormOrCall(const Conversation& conversation, const Served& served,
                                    AnswerPlan& plan) {
    const chat::CallFrame usual;
    const Json& tools = conversation.input.tools;
    for (const chat::CallFrame* frame : {&served.call_frame, &usual}) {
        if (frame != &usual && !PlainNames(tools, "*")) continue;
        auto matcher =
            CompileFor(plan, served, OrCallConstraint(tools, conversation.constraint, *frame));
        if (!matcher.ok() && frame != &usual) continue;
        if (matcher.ok()) plan.family = frame->family;
        return matcher;
    }
    return MakeError(ErrorCode::kUsage, "tools: no call can be expressed for any of the functions");
}

bool MayCall(const Conversation& conversation) {
    const std::string& kind = conversation.constraint.kind;
    return (kind == "json_schema" || kind == "json_object") &&
           conversation.input.tools.is_array() && !conversation.input.tools.empty();
}

// The constraint covers the whole message: the matcher reads the content that the answer continues.
// A message that does not fit the constraint is followed by a whole constrained text.
grammar::Matcher AfterWords(const Served& served, grammar::Matcher matcher,
                            const ChatPrompt& prompt) {
    if (prompt.in_reasoning) return matcher;
    grammar::Matcher after = matcher;
    for (const int32_t token : PlainTokens(served.tokenizer(), prompt.words)) {
        if (!after.Accept(token).ok()) return matcher;
    }
    return after;
}

// Applies response_format and tool_choice to the plan and the choice.
std::optional<ApiError> Constrain(const Conversation& conversation, const ChatPrompt& prompt,
                                  const Served& served, AnswerPlan& plan, ChoicePlan& choice) {
    if (!conversation.forced_tool.empty()) {
        return ForceCall(conversation, prompt, served, plan, choice);
    }
    const ConstraintText& constraint = conversation.constraint;
    if (constraint.kind.empty()) {
        choice.request.reasoning = ReasoningOf(served, conversation, prompt, false);
        return {};
    }
    // A client's grammar may describe calls and reasoning.
    const bool own_grammar = constraint.kind == "grammar" && !constraint.param.ends_with("choice");
    auto matcher = CompileFor(plan, served, constraint);
    std::string param = constraint.param;
    // Compiled alone first, so that its own errors are not reported for 'tools'.
    // A message with a head may still be a call: the constraint covers the final message only.
    if (matcher.ok() && MayCall(conversation) && chat::HeadsOf(served.family).end.empty()) {
        matcher = FormOrCall(conversation, served, plan);
        param = "tools";
    } else if (!own_grammar) {
        plan.tools = std::make_shared<const chat::ToolTypes>();  // no call can come
    }
    plan.verbatim = !own_grammar;
    if (!matcher.ok()) return ApiError{400, matcher.error().message, param, "invalid_value", true};
    choice.request.matcher = AfterWords(served, *std::move(matcher), prompt);
    // A grammar of the client covers a turn of messages with their heads.
    const bool heads = !chat::HeadsOf(served.family).end.empty();
    if (heads && constraint.kind == "grammar") return {};
    // One that names the markers of the reasoning covers the reasoning, too.
    const auto names = [&](std::string_view marker) {
        return !marker.empty() && constraint.text.find(marker) != constraint.text.npos;
    };
    if (own_grammar &&
        (names(chat::ThinkBegin(served.family)) || names(chat::ThinkEnd(served.family)))) {
        return {};
    }
    choice.request.reasoning = ReasoningOf(served, conversation, prompt, true);
    return {};
}

}  // namespace

std::optional<ApiError> PlanConversation(const Served& served, Conversation& conversation,
                                         engine::Request request, int64_t n, AnswerPlan& plan) {
    plan.prompt_name = "messages";
    // If the template can render only one call per turn, only one is generated.
    const chat::TemplateCapabilities& form = served.forms.Of(conversation.input);
    plan.one_call = !conversation.parallel_calls || form.one_call;
    plan.tools = std::make_shared<const chat::ToolTypes>(conversation.input.tools);
    ChatPrompt prompt;
    const PromptUse use = conversation.kept ? PromptUse::kReturned : PromptUse::kComputed;
    if (auto error = MakePrompt(served, conversation, prompt, use)) return error;
    AddNames(plan.left.left_out, conversation.left_out);
    if (conversation.hides_reasoning) plan.hides_reasoning = true;
    if (conversation.kept) KeepLast(prompt.tokens, *conversation.kept, -1);
    request.prompt = prompt.tokens;
    plan.reading = {.tokenizer = &served.tokenizer(), .shows_special = request.show_special};
    if (served.family != chat::ToolCallFormat::kPlain) request.show_special = true;
    // A model that gets its tools as plain text uses the call format of that text.
    plan.family = plan.tools->empty() ? served.family : chat::CallFamily(served.family, form);
    plan.begins_in_reasoning = prompt.in_reasoning;
    plan.begun = prompt.begun;
    ChoicePlan choice;
    choice.request = std::move(request);
    if (auto error = Constrain(conversation, prompt, served, plan, choice)) return error;
    // A client's grammar may describe the reasoning, too.
    using enum chat::TokenReading::Letters;
    plan.reading.letters = !choice.request.matcher                   ? kNowhere
                           : choice.request.reasoning.end_token >= 0 ? kBehindReasoning
                                                                     : kAnywhere;
    // Without markers, all text is content, and the engine matches the stop strings.
    if (plan.family != chat::ToolCallFormat::kPlain) {
        choice.content_stops = std::exchange(choice.request.stop, {});
    }
    plan.n = n;
    if (auto error = CheckCopies(served, choice, n, plan.prompt_name)) return error;
    for (int64_t i = 0; i < n; ++i) {
        plan.choices.push_back(choice);
        plan.choices.back().counts_prompt = i == 0;
        Reseed(plan.choices.back().request, static_cast<int>(i));
    }
    return {};
}

std::optional<ApiError> PlanChat(const Json& body, const Served& served, AnswerPlan& plan) {
    Fields fields(body);
    if (auto error = CheckModel(fields, served)) return error;
    Conversation conversation = ReadConversation(fields);
    engine::Request request;
    ReadSampling(fields, served, request);
    request.max_tokens =
        ReadLength(fields, "max_completion_tokens", ReadLength(fields, "max_tokens", -1));
    const bool logprobs = fields.Bool("logprobs", false);
    const int64_t best = fields.Integer("top_logprobs", 0, 0, kMostLogprobs);
    if (logprobs) request.logprobs = static_cast<int>(best);
    if (best > 0 && !logprobs) {
        fields.Fail("top_logprobs", "'top_logprobs' requires 'logprobs': true.");
    }
    const int64_t n = fields.Integer("n", 1, 1, kMostChoices);
    conversation.constraint = ReadConstraint(fields);
    plan.stream = fields.Bool("stream", false);
    Fields options(fields.Object("stream_options"), "stream_options.");
    const bool usage = options.Bool("include_usage", false);
    if (options.error()) return options.error();
    request.prompt_logprobs = ReadPromptLogprobs(fields, plan.stream);
    const TokenNames token_names = ReadTokenNames(fields);
    ReadReports(fields, plan);
    plan.hides_reasoning = !fields.Bool("include_reasoning", true);
    conversation.kept = ReadKeptTokens(fields, served, request.max_tokens);
    if (auto error = FinishRequest(fields, served, request, plan.left)) return error;
    auto dialect = std::make_unique<ChatDialect>(served, request.adapter, usage, logprobs,
                                                 conversation.older_calls);
    dialect->prompt_logprobs = request.prompt_logprobs >= 0;
    dialect->token_names = token_names;
    dialect->timings = plan.timings;
    plan.dialect = std::move(dialect);
    if (auto error = PlanConversation(served, conversation, std::move(request), n, plan)) {
        return error;
    }
    return CheckPromptLogprobs(plan.choices);
}

}  // namespace weft::serve
