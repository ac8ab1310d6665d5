#include "serve/api/responses_dialect.h"

#include <fmt/format.h>

#include <ctime>

#include "serve/api/logprobs.h"

namespace weft::serve {
namespace {

Json ResponseUsage(const Usage& usage) {
    return {{"input_tokens", usage.prompt_tokens},
            {"input_tokens_details",
             {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
            {"output_tokens", usage.said_tokens},
            {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
            {"total_tokens", usage.prompt_tokens + usage.said_tokens}};
}

class ResponsesDialect final : public Dialect {
  public:
    ResponsesDialect(const Served& served, Json head, bool logprobs, KeepResponse keep)
        : served_(served), head_(std::move(head)), logprobs_(logprobs), keep_(std::move(keep)) {}

    void Begin(std::string& out) override {
        const std::string response = Dump(ResponseOf("in_progress", Json::array(), nullptr));
        Event("response.created", fmt::format(R"("response":{})", response), out);
        Event("response.in_progress", fmt::format(R"("response":{})", response), out);
    }
    void Delta(int, const chat::AnswerDelta& delta, std::span<const engine::SaidToken> tokens,
               std::string& out) override {
        if (!delta.reasoning.empty()) {
            Open(Item::kReasoning, out);
            text_ += delta.reasoning;
            Part("response.reasoning_text.delta",
                 fmt::format(R"("delta":{})", Quoted(delta.reasoning)), out);
        }
        if (!delta.content.empty()) {
            Open(Item::kMessage, out);
            text_ += delta.content;
            Json logprobs = ChancesOf(tokens);
            Part("response.output_text.delta",
                 fmt::format(R"("delta":{},"logprobs":{})", Quoted(delta.content), Dump(logprobs)),
                 out);
            for (Json& chance : logprobs) said_chances_.push_back(std::move(chance));
        }
        for (const chat::ToolCall& call : delta.tool_calls) {
            BeginCall(call.name, out);
            AddToCall(Dump(call.arguments), out);
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
        if (output_.empty() || (output_.back()["type"] == "reasoning" && !cut_off())) {
            Open(Item::kMessage, out);
            Close(out);
        }
    }
    void End(const Usage& usage, std::string& out) override {
        const Json response = ResponseOf(Status(), output_, ResponseUsage(usage));
        const std::string text = Dump(response);
        if (keep_) keep_(response);  // before the client can refer to it
        Event(cut_off() ? "response.incomplete" : "response.completed",
              fmt::format(R"("response":{})", text), out);
    }
    void Fail(const ApiError& error, std::string& out) override {
        Json response = ResponseOf("failed", output_, nullptr);
        response["error"] = {{"code", "server_error"}, {"message", error.message}};
        Event("response.failed", fmt::format(R"("response":{})", Dump(response)), out);
    }
    std::string ErrorBody(const ApiError& error) override { return OpenAiError(error); }

    std::string Whole(const std::vector<Choice>& choices, const Usage& usage) override {
        const Choice& choice = choices.front();
        end_ = choice.end;
        if (!choice.said.reasoning.empty()) {
            output_.push_back(ReasoningItem(MakeId("rs_"), choice.said.reasoning));
        }
        const bool calls = !choice.said.tool_calls.empty() || !choice.said.call_parts.empty();
        const bool only_reasons = !choice.said.reasoning.empty() && cut_off();
        if (!choice.said.content.empty() || !(calls || only_reasons)) {
            output_.push_back(MessageItem(MakeId("msg_"), choice.said.content,
                                          ChancesOf(choice.tokens), Status()));
        }
        for (const chat::ToolCall& call : choice.said.tool_calls) {
            output_.push_back(CallItem(MakeId("fc_"), MakeCallId(served_, "call_"), call.name,
                                       Dump(call.arguments), "completed"));
        }
        for (const chat::CallPart& begun : choice.said.call_parts) {
            output_.push_back(CallItem(MakeId("fc_"), MakeCallId(served_, "call_"), begun.name,
                                       begun.arguments, "incomplete"));
        }
        const Json response = ResponseOf(Status(), std::move(output_), ResponseUsage(usage));
        if (keep_) keep_(response);
        return Dump(response);
    }

  private:
    enum class Item { kNone, kReasoning, kMessage, kCall };

    bool cut_off() const { return end_.finish == "length"; }
    const char* Status() const { return cut_off() ? "incomplete" : "completed"; }

    Json ResponseOf(const char* status, Json output, Json usage) const {
        Json json = head_;
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
    static Json ReasoningItem(const std::string& id, const std::string& text) {
        return {{"id", id},
                {"type", "reasoning"},
                {"summary", Json::array()},
                {"content", Json::array({{{"type", "reasoning_text"}, {"text", text}}})}};
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
    static Json CallItem(const std::string& id, const std::string& call_id, const std::string& name,
                         const std::string& arguments, const char* status) {
        return {{"id", id},     {"type", "function_call"}, {"status", status}, {"call_id", call_id},
                {"name", name}, {"arguments", arguments}};
    }
    // The item being streamed.
    Json CallItem(const char* status) const {
        return CallItem(item_id_, call_id_, name_, text_, status);
    }
    Json ChancesOf(std::span<const engine::SaidToken> tokens) const {
        if (!logprobs_ || tokens.empty()) return Json::array();
        return std::move(ChatLogprobs(served_.tokenizer(), tokens)["content"]);
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
        if (open_ == Item::kMessage) return TextPart(text, said_chances_);
        return {{"type", "reasoning_text"}, {"text", text}};
    }
    void Open(Item kind, std::string& out) {
        if (open_ == kind) return;
        Close(out);
        open_ = kind;
        item_id_ = MakeId(kind == Item::kMessage ? "msg_" : "rs_");
        text_.clear();
        said_chances_ = Json::array();
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
        if (message) done += fmt::format(R"(,"logprobs":{})", Dump(said_chances_));
        Part(message ? "response.output_text.done" : "response.reasoning_text.done", done, out);
        Part("response.content_part.done", fmt::format(R"("part":{})", Dump(OpenPart(text_))), out);
        Json item = message ? MessageItem(item_id_, text_, said_chances_, Status())
                            : ReasoningItem(item_id_, text_);
        ItemEvent("response.output_item.done", item, out);
        output_.push_back(std::move(item));
        open_ = Item::kNone;
    }
    void BeginCall(const std::string& name, std::string& out) {
        Close(out);
        open_ = Item::kCall;
        item_id_ = MakeId("fc_");
        call_id_ = MakeCallId(served_, "call_");
        name_ = name;
        text_.clear();
        ItemEvent("response.output_item.added", CallItem("in_progress"), out);
    }
    void AddToCall(const std::string& arguments, std::string& out) {
        text_ += arguments;
        Event("response.function_call_arguments.delta",
              fmt::format(R"({},"delta":{})", OfItem(), Quoted(arguments)), out);
    }
    void EndCall(const char* status, std::string& out) {
        Event("response.function_call_arguments.done",
              fmt::format(R"({},"name":{},"arguments":{})", OfItem(), Quoted(name_), Quoted(text_)),
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
    const Json head_;
    const bool logprobs_;
    const KeepResponse keep_;
    int64_t sequence_ = 0;
    Json output_ = Json::array();  // completed items
    Item open_ = Item::kNone;
    std::string item_id_, text_;  // of the item being streamed
    std::string call_id_, name_;
    Json said_chances_ = Json::array();
    ChoiceEnd end_;
};

}  // namespace

std::unique_ptr<Dialect> MakeResponsesDialect(const Served& served, Json head, bool logprobs,
                                              KeepResponse keep) {
    return std::make_unique<ResponsesDialect>(served, std::move(head), logprobs, std::move(keep));
}

}  // namespace weft::serve
