#include "serve/api/openai/responses_dialect.h"

#include <fmt/format.h>

#include <ctime>

#include "serve/api/openai/logprobs.h"
#include "serve/api/openai/response_input.h"

namespace weft::serve {
namespace {

Json ResponseUsage(const Usage& usage) {
    return {{"input_tokens", usage.prompt_tokens},
            {"input_tokens_details",
             {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
            {"output_tokens", usage.generated_tokens},
            {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
            {"total_tokens", usage.prompt_tokens + usage.generated_tokens}};
}

// A text that was cut off, without its unfinished last sentence; the text itself if it has no
// other.
std::string WholeSentences(const std::string& text) {
    const std::string_view all = text;
    for (size_t end = all.size(); end > 0; --end) {
        const bool apart = end == all.size() || all[end] == ' ' || all[end] == '\n';
        const std::string_view head = all.substr(0, end);
        const auto ends = [&](std::string_view mark) { return head.ends_with(mark); };
        const bool ascii = apart && (ends(".") || ends("!") || ends("?"));
        const bool wide = ends("\u3002") || ends("\uFF01") || ends("\uFF1F");
        if (ascii || wide || (end > 1 && ends("\n"))) return std::string(head);
    }
    return text;
}

std::string WordsOf(const ApiError& error) {
    return (error.full ? "Your input exceeds the context window of this model. " : "") +
           OpenAiMessage(error);
}

class ResponsesDialect final : public Dialect {
  public:
    ResponsesDialect(const Served& served, ResponseForm form)
        : served_(served), form_(std::move(form)) {}

    bool repeats() const override { return true; }
    void Begin(std::string& out) override {
        const std::string response = Dump(ResponseOf("in_progress", Json::array(), nullptr));
        Event("response.created", fmt::format(R"("response":{})", response), out);
        Waiting(0, out);
    }
    void Waiting(int, std::string& out) override {
        const std::string response = Dump(ResponseOf("in_progress", Json::array(), nullptr));
        Event("response.in_progress", fmt::format(R"("response":{})", response), out);
    }
    void Delta(int, const chat::AnswerDelta& delta, std::span<const engine::GeneratedToken> tokens,
               std::string& out) override {
        if (!delta.reasoning.empty()) {
            Open(Item::kReasoning, out);
            text_ += delta.reasoning;
            Part("response.reasoning_text.delta",
                 fmt::format(R"("delta":{})", Quoted(delta.reasoning)), out);
        }
        if (!delta.content.empty() && form_.compacts) summary_ += delta.content;
        if (!delta.content.empty() && !form_.compacts) {
            Open(Item::kMessage, out);
            text_ += delta.content;
            Json logprobs = ChancesOf(tokens);
            Part("response.output_text.delta",
                 fmt::format(R"("delta":{},"logprobs":{})", Quoted(delta.content), Dump(logprobs)),
                 out);
            for (Json& chance : logprobs) text_logprobs_.push_back(std::move(chance));
        }
        for (const chat::ToolCall& call : delta.tool_calls) {
            BeginCall(call.name, out);
            AddToCall(call.ArgumentsText(), out);
            EndCall("completed", out);
        }
        for (const chat::CallPart& part : delta.call_parts) {
            if (part.begins) BeginCall(part.name, out);
            if (!part.arguments.empty()) AddToCall(part.arguments, out);
            if (part.ends) EndCall("completed", out);
        }
    }
    void EndChoice(int, const ChoiceEnd& end, std::string& out) override {
        end_ = end;
        Close(out);
        if (form_.compacts) {
            Json item = CompactionItem(summary_);
            ItemEvent("response.output_item.added", item, out);
            ItemEvent("response.output_item.done", item, out);
            output_.push_back(std::move(item));
        } else if (output_.empty() || (output_.back()["type"] == "reasoning" && !cut_off())) {
            Open(Item::kMessage, out);
            Close(out);
        }
    }
    void End(const Usage& usage, std::string& out) override {
        const Json response = ResponseOf(Status(), output_, ResponseUsage(usage));
        const std::string text = Dump(response);
        if (form_.keep) form_.keep(response);  // before the client can refer to it
        Event(cut_off() ? "response.incomplete" : "response.completed",
              fmt::format(R"("response":{})", text), out);
    }
    void Fail(const ApiError& error, std::string& out) override {
        Json response = ResponseOf("failed", output_, nullptr);
        response["error"] = {{"code", error.full ? kContextExceeded : "server_error"},
                             {"message", WordsOf(error)}};
        Event("response.failed", fmt::format(R"("response":{})", Dump(response)), out);
    }
    // Codex recognizes a full context by this event only.
    bool StreamsRefusal(const ApiError& error) const override { return error.full.has_value(); }
    std::string ErrorBody(const ApiError& error) override { return ResponsesError(error); }

    std::string Whole(const std::vector<Choice>& choices, const Usage& usage) override {
        const Choice& choice = choices.front();
        end_ = choice.end;
        if (form_.compacts) return Compacted(choice.said.content, usage);
        if (!choice.said.reasoning.empty()) {
            output_.push_back(ReasoningItem(NextId("rs_"), choice.said.reasoning));
        }
        const bool calls = !choice.said.tool_calls.empty() || !choice.said.call_parts.empty();
        const bool only_reasons = !choice.said.reasoning.empty() && cut_off();
        if (!choice.said.content.empty() || !(calls || only_reasons)) {
            output_.push_back(MessageItem(NextId("msg_"), choice.said.content,
                                          ChancesOf(choice.tokens), Status()));
        }
        for (const chat::ToolCall& call : choice.said.tool_calls) {
            PushCall(call.name, call.ArgumentsText(), "completed");
        }
        for (const chat::CallPart& begun : choice.said.call_parts) {
            PushCall(begun.name, begun.arguments, "incomplete");
        }
        const Json response = ResponseOf(Status(), std::move(output_), ResponseUsage(usage));
        if (form_.keep) form_.keep(response);
        return Dump(response);
    }

  private:
    enum class Item { kNone, kReasoning, kMessage, kCall };

    std::string NextId(std::string_view prefix) const {
        return OutputItemId(prefix, form_.head["id"].get_ref<const std::string&>(), output_.size());
    }
    Json CompactionItem(const std::string& summary) const {
        return {{"id", NextId("cmp_")},
                {"type", "compaction"},
                {"encrypted_content", Sealed(cut_off() ? WholeSentences(summary) : summary)}};
    }
    // The whole answer, if it is a summary.
    std::string Compacted(const std::string& summary, const Usage& usage) {
        if (form_.kept) output_ = *form_.kept;
        output_.push_back(CompactionItem(summary));
        if (!form_.kept) {
            const Json response = ResponseOf(Status(), std::move(output_), ResponseUsage(usage));
            if (form_.keep) form_.keep(response);
            return Dump(response);
        }
        return Dump({{"id", form_.head["id"]},
                     {"object", "response.compaction"},
                     {"created_at", form_.head["created_at"]},
                     {"output", std::move(output_)},
                     {"usage", ResponseUsage(usage)}});
    }
    bool cut_off() const { return end_.finish == "length"; }
    const char* Status() const { return cut_off() ? "incomplete" : "completed"; }

    Json ResponseOf(const char* status, Json output, Json usage) const {
        Json json = form_.head;
        json["status"] = status;
        json["error"] = nullptr;
        json["incomplete_details"] = nullptr;
        if (json["status"] == "incomplete") {
            json["incomplete_details"] = {{"reason", "max_output_tokens"}};
        }
        if (json["status"] == "completed") json["completed_at"] = std::time(nullptr);
        json["output"] = std::move(output);
        json["usage"] = std::move(usage);
        return json;
    }
    Json ReasoningItem(const std::string& id, const std::string& text) const {
        Json item{{"id", id},
                  {"type", "reasoning"},
                  {"summary", Json::array()},
                  {"content", Json::array({{{"type", "reasoning_text"}, {"text", text}}})}};
        if (form_.seals_reasoning) item["encrypted_content"] = Sealed(text);
        return item;
    }
    static Json TextPart(const std::string& text, Json logprobs) {
        return {{"type", "output_text"},
                {"text", text},
                {"annotations", Json::array()},
                {"logprobs", std::move(logprobs)}};
    }
    static Json MessageItem(const std::string& id, const std::string& text, Json logprobs,
                            const char* status) {
        return {{"id", id},
                {"type", "message"},
                {"status", status},
                {"role", "assistant"},
                {"content", Json::array({TextPart(text, std::move(logprobs))})}};
    }
    // text: the arguments as JSON, or a custom tool's input.
    static Json CallItem(const std::string& id, const std::string& call_id,
                         const ResponseTool& tool, const std::string& text, const char* status) {
        Json item{{"id", id},          {"type", tool.custom ? "custom_tool_call" : "function_call"},
                  {"status", status},  {"call_id", call_id},
                  {"name", tool.name}, {tool.custom ? kCustomInput : "arguments", text}};
        if (!tool.name_space.empty()) item["namespace"] = tool.name_space;
        return item;
    }
    void PushCall(const std::string& shown, const std::string& arguments, const char* status) {
        const ResponseTool tool = form_.tools.Of(shown);
        output_.push_back(CallItem(NextId(tool.custom ? "ctc_" : "fc_"),
                                   MakeCallId(served_, "call_"), tool,
                                   tool.custom ? CustomTextOf(arguments) : arguments, status));
    }
    // The item being streamed.
    Json CallItem(const char* status) const {
        return CallItem(item_id_, call_id_, tool_, text_, status);
    }
    Json ChancesOf(std::span<const engine::GeneratedToken> tokens) const {
        Json list = Json::array();
        if (!form_.logprobs) return list;
        for (const engine::GeneratedToken& token : tokens) {
            list.push_back(TokenJson(served_.tokenizer(), token));
        }
        return list;
    }

    void Event(const char* type, const std::string& members, std::string& out) {
        out += fmt::format("event: {}\ndata: {{\"type\":\"{}\",\"sequence_number\":{},{}}}\n\n",
                           type, type, sequence_++, members);
    }
    // An event with a complete item.
    void ItemEvent(const char* type, const Json& item, std::string& out) {
        Event(type, fmt::format(R"("output_index":{},"item":{})", output_.size(), Dump(item)), out);
    }
    // An event about the item being streamed.
    void Part(const char* type, const std::string& members, std::string& out) {
        Event(type,
              fmt::format(R"("item_id":"{}","output_index":{},"content_index":0,{})", item_id_,
                          output_.size(), members),
              out);
    }
    Json OpenPart(const std::string& text) const {
        if (open_ == Item::kMessage) return TextPart(text, text_logprobs_);
        return {{"type", "reasoning_text"}, {"text", text}};
    }
    void Open(Item kind, std::string& out) {
        if (open_ == kind) return;
        Close(out);
        open_ = kind;
        item_id_ = NextId(kind == Item::kMessage ? "msg_" : "rs_");
        text_.clear();
        text_logprobs_ = Json::array();
        Json item = kind == Item::kMessage ? MessageItem(item_id_, "", {}, "in_progress")
                                           : ReasoningItem(item_id_, "");
        item["content"] = Json::array();
        ItemEvent("response.output_item.added", item, out);
        Part("response.content_part.added", fmt::format(R"("part":{})", Dump(OpenPart(""))), out);
    }
    void Close(std::string& out) {
        if (open_ == Item::kNone) return;
        if (open_ == Item::kCall) return EndCall("incomplete", out);  // an unfinished call
        const bool message = open_ == Item::kMessage;
        std::string done = fmt::format(R"("text":{})", Quoted(text_));
        if (message) done += fmt::format(R"(,"logprobs":{})", Dump(text_logprobs_));
        Part(message ? "response.output_text.done" : "response.reasoning_text.done", done, out);
        Part("response.content_part.done", fmt::format(R"("part":{})", Dump(OpenPart(text_))), out);
        Json item = message ? MessageItem(item_id_, text_, text_logprobs_, Status())
                            : ReasoningItem(item_id_, text_);
        ItemEvent("response.output_item.done", item, out);
        output_.push_back(std::move(item));
        open_ = Item::kNone;
    }
    void BeginCall(const std::string& shown, std::string& out) {
        Close(out);
        open_ = Item::kCall;
        tool_ = form_.tools.Of(shown);
        item_id_ = NextId(tool_.custom ? "ctc_" : "fc_");
        call_id_ = MakeCallId(served_, "call_");
        custom_text_ = {};
        text_.clear();
        ItemEvent("response.output_item.added", CallItem("in_progress"), out);
    }
    void AddToCall(const std::string& arguments, std::string& out) {
        AddText(tool_.custom ? custom_text_.Push(arguments) : arguments, out);
    }
    void AddText(const std::string& text, std::string& out) {
        if (text.empty()) return;
        text_ += text;
        Event(tool_.custom ? "response.custom_tool_call_input.delta"
                           : "response.function_call_arguments.delta",
              fmt::format(R"({},"delta":{})", OfItem(), Quoted(text)), out);
    }
    void EndCall(const char* status, std::string& out) {
        if (tool_.custom) AddText(custom_text_.Finish(), out);
        Event(tool_.custom ? "response.custom_tool_call_input.done"
                           : "response.function_call_arguments.done",
              fmt::format(R"({},"name":{},"{}":{})", OfItem(), Quoted(tool_.name),
                          tool_.custom ? kCustomInput : "arguments", Quoted(text_)),
              out);
        Json item = CallItem(status);
        ItemEvent("response.output_item.done", item, out);
        output_.push_back(std::move(item));
        open_ = Item::kNone;
    }
    std::string OfItem() const {
        return fmt::format(R"("item_id":"{}","output_index":{})", item_id_, output_.size());
    }

    const Served& served_;
    const ResponseForm form_;
    int64_t sequence_ = 0;
    Json output_ = Json::array();  // completed items
    Item open_ = Item::kNone;
    std::string item_id_, text_;  // of the item being streamed
    std::string call_id_;
    ResponseTool tool_;
    CustomText custom_text_;
    std::string summary_;
    Json text_logprobs_ = Json::array();
    ChoiceEnd end_;
};

}  // namespace

std::unique_ptr<Dialect> MakeResponsesDialect(const Served& served, ResponseForm form) {
    return std::make_unique<ResponsesDialect>(served, std::move(form));
}

std::string ResponsesError(const ApiError& error) {
    ApiError worded = error;
    worded.message = WordsOf(error);
    worded.full.reset();
    return OpenAiError(worded);
}

std::string OutputItemId(std::string_view prefix, const std::string& response, size_t index) {
    return fmt::format("{}{}_o{}", prefix, response.substr(response.find('_') + 1), index);
}

}  // namespace weft::serve
