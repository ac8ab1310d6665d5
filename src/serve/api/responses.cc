#include "serve/api/responses.h"

#include <fmt/format.h>

#include <ctime>
#include <map>

#include "serve/api/chat.h"
#include "serve/api/constraint.h"
#include "serve/api/response_store.h"
#include "serve/api/responses_dialect.h"
#include "serve/api/sampling.h"
#include "serve/api/tool_choice.h"

namespace weft::serve {
namespace {

constexpr size_t kMostItems = 10000;

void Adopt(Fields& fields, const Fields& part) {
    if (part.error()) {
        fields.Fail(part.error()->param.c_str(), part.error()->message, part.error()->code);
    }
}

// Converts items to messages. This API has separate items for reasoning and calls; chat templates
// expect them in the assistant's message.
class ItemReader {
  public:
    explicit ItemReader(Json& messages) : messages_(messages) {}

    void Read(Fields& item) {
        const std::string type = item.Text("type", "message");
        if (type == "message") {
            ReadMessage(item);
        } else if (type == "function_call") {
            ReadCall(item);
        } else if (type == "function_call_output") {
            const std::string id = item.Text("call_id", "");
            const bool empty = !item.Has("output");  // The function returned nothing.
            messages_.push_back({{"role", "tool"},
                                 {"tool_call_id", id},
                                 {"name", names_.contains(id) ? names_[id] : ""},
                                 {"content", empty ? Json("") : ReadContent(item, "output")}});
        } else if (type == "reasoning") {
            for (const Json& part : item.List("content")) {
                thoughts_ += Fields(part).Text("text", "");
            }
        } else {
            item.Fail("type",
                      fmt::format("Items of type '{}' are not supported; expected 'message', "
                                  "'function_call', 'function_call_output' or 'reasoning'.",
                                  type.substr(0, 40)),
                      "unsupported_value");
        }
    }

  private:
    void ReadMessage(Fields& item) {
        std::string role = item.Choice("role", "", {"user", "assistant", "system", "developer"});
        if (role == "developer") role = "system";
        Json message{{"role", role}, {"content", ReadContent(item, "content")}};
        if (role == "assistant") TakeThoughts(message);
        if (role == "user") thoughts_.clear();  // no answer follows in this turn
        messages_.push_back(std::move(message));
    }
    void ReadCall(Fields& item) {
        const std::string id = item.Text("call_id", ""), name = item.Text("name", "");
        const std::string arguments = item.Text("arguments", "{}");
        names_[id] = name;
        Json parsed;
        if (!inner_.Read(arguments, item, "arguments", parsed)) return;
        if (messages_.empty() || messages_.back()["role"] != "assistant") {
            messages_.push_back({{"role", "assistant"}, {"content", ""}});
        }
        TakeThoughts(messages_.back());
        messages_.back()["tool_calls"].push_back(
            {{"id", id},
             {"type", "function"},
             {"function", {{"name", name}, {"arguments", std::move(parsed)}}}});
    }
    void TakeThoughts(Json& message) {
        if (thoughts_.empty()) return;
        std::string thoughts = message.value("reasoning_content", "");
        if (!thoughts.empty()) thoughts += '\n';
        message["reasoning_content"] = thoughts + std::exchange(thoughts_, "");
    }

    Json& messages_;
    std::map<std::string, std::string> names_;  // names of calls, by id
    std::string thoughts_;                      // reasoning of the next message
    InnerJson inner_;
};

// Reads the request's `items`, from `input`, after those of earlier responses.
void ReadItems(Fields& fields, const Json& before, const Json& input, Json& messages) {
    ItemReader reader(messages);
    for (const Json& item : before) {
        Fields kept(item, "previous_response_id.");
        reader.Read(kept);
        if (kept.error()) return Adopt(fields, kept);
    }
    for (size_t i = 0; i < input.size(); ++i) {
        const std::string name = fmt::format("input[{}]", i);
        Fields item(input[i], name + ".");
        if (!input[i].is_object()) {
            return fields.Fail(name.c_str(), fmt::format("'{}' must be an object.", name),
                               "invalid_type");
        }
        reader.Read(item);
        if (item.error()) return Adopt(fields, item);
    }
}

// items: in: the conversation so far; out: with this request's items appended.
void ReadInput(Fields& fields, Json& items, Json& messages) {
    const std::string instructions = fields.Text("instructions", "");
    if (!instructions.empty()) {
        messages.push_back({{"role", "system"}, {"content", instructions}});
    }
    const Json& input = fields.Get("input");
    const bool list = input.is_array() && !input.empty();
    if (!(input.is_string() || list) || items.size() + input.size() > kMostItems) {
        return fields.Fail("input",
                           fmt::format("'input' must be a string or a list; with the items of "
                                       "earlier responses it must have 1 to {} items.",
                                       kMostItems));
    }
    const Json own =
        list ? input : Json::array({{{"type", "message"}, {"role", "user"}, {"content", input}}});
    ReadItems(fields, items, own, messages);
    for (const Json& item : own) items.push_back(item);
}

void ReadResponseTools(Fields& fields, Conversation& conversation) {
    const Json& tools = fields.List("tools");
    if (tools.size() > kMostTools) {
        return fields.Fail("tools", fmt::format("'tools' has {} entries; the limit is {}.",
                                                tools.size(), kMostTools));
    }
    for (size_t i = 0; i < tools.size(); ++i) {
        Fields tool(tools[i], fmt::format("tools[{}].", i));
        tool.Choice("type", "", {"function"});
        Json function{{"name", tool.Text("name", "")}};
        if (function["name"] == "") tool.Fail("name", "A function must have a name.");
        if (tool.Has("description")) function["description"] = tool.Text("description", "");
        const Json& parameters = tool.Object("parameters");
        if (tool.Bool("strict", false)) function["strict"] = true;
        function["parameters"] = parameters.is_null() ? NoParameters() : parameters;
        if (tool.error()) return Adopt(fields, tool);
        conversation.input.tools.push_back({{"type", "function"}, {"function", function}});
    }
    if (fields.Get("tool_choice").is_object()) {
        Fields choice(fields.Get("tool_choice"), "tool_choice.");
        const std::string type = choice.Choice("type", "", {"function", "allowed_tools"});
        if (choice.error()) return Adopt(fields, choice);
        if (type == "allowed_tools") {
            return AllowTools(fields, fields.Get("tool_choice"), "tool_choice.", conversation);
        }
        return ForceTool(fields, choice.Text("name", ""), conversation);
    }
    const std::string word = fields.Choice("tool_choice", "auto", {"none", "auto", "required"});
    if (word == "none") conversation.input.tools = nullptr;
    if (word != "required") return;
    if (tools.empty()) fields.Fail("tool_choice", "'tool_choice' is set, but 'tools' is not.");
    conversation.forced_tool.assign(1, '*');
}

void ReadTextFormat(Fields& fields, Conversation& conversation) {
    Fields text(fields.Object("text"), "text.");
    conversation.constraint = ReadConstraintOf(text, text.Get("format"), "format");
    conversation.constraint.param = "text.format";
    Adopt(fields, text);
}

void RefuseOtherState(Fields& fields) {
    for (const char* name : {"conversation", "prompt"}) {
        if (!fields.Has(name)) continue;
        fields.Fail(
            name,
            fmt::format(
                "'{}' is not supported: this server stores responses only. Continue a response "
                "with 'previous_response_id', or send the whole conversation as 'input'.",
                name),
            "unsupported_value");
    }
    if (fields.Bool("background", false)) {
        fields.Fail("background", "'background' is not supported.", "unsupported_value");
    }
    fields.Choice("truncation", "disabled", {"disabled"});
}

// Items of the previous response's conversation; empty: the request names no previous response.
Json ItemsBefore(Fields& fields, const AnswerPlan& plan) {
    const std::string id = fields.Text("previous_response_id", "");
    if (!fields.Has("previous_response_id")) return Json::array();
    if (plan.responses == nullptr || !plan.responses->on()) {
        fields.Fail("previous_response_id",
                    "'previous_response_id' is not supported: this server does not store responses "
                    "(--max-responses). Send the whole conversation as 'input'.",
                    "unsupported_value");
        return Json::array();
    }
    const auto stored = plan.responses->Get(plan.owner, id);
    if (stored != nullptr) {
        Json items = *stored->items;
        for (const Json& item : stored->response["output"]) items.push_back(item);
        return items;
    }
    fields.Fail(
        "previous_response_id",
        fmt::format("Previous response with id '{}' not found: this server never stored it, or it "
                    "was deleted or dropped to make room. Another server behind the same address "
                    "may have it: give both the same --responses-dir, or send the whole "
                    "conversation as 'input'.",
                    id.substr(0, 100)),
        "previous_response_not_found");
    return Json::array();
}

// Stores the response with its conversation, unless "store" is false.
KeepResponse KeeperOf(const AnswerPlan& plan, Json items) {
    const int64_t item_bytes = HeldBytes(items);
    return [store = plan.responses, owner = plan.owner, item_bytes,
            items = std::make_shared<const Json>(std::move(items))](const Json& response) {
        store->Put(owner, response["id"].get<std::string>(),
                   {response, items, item_bytes + HeldBytes(response)});
    };
}

// Metadata is repeated in each answer. The limits are OpenAI's, converted from characters to bytes.
void CheckMetadata(Fields& fields) {
    constexpr size_t kMostPairs = 16, kMostKeyBytes = 4 * 64, kMostValueBytes = 4 * 512;
    const Json& metadata = fields.Object("metadata");
    if (!metadata.is_object()) return;
    bool fits = metadata.size() <= kMostPairs;
    for (const auto& [key, value] : metadata.items()) {
        const std::string* text = value.get_ptr<const std::string*>();
        const bool small = text != nullptr ? text->size() <= kMostValueBytes : value.is_primitive();
        fits = fits && small && key.size() <= kMostKeyBytes;
    }
    if (fits) return;
    fields.Fail(
        "metadata",
        "'metadata' may have at most 16 pairs, with keys of 64 and values of 512 characters.");
}

// The request's parameters, as the response repeats them.
Json HeadOf(Fields& fields, const Served& served, const engine::SamplerOptions& sampler,
            bool stores) {
    const auto repeat = [&](const char* name, Json otherwise) {
        return fields.Has(name) ? fields.Get(name) : otherwise;
    };
    const Json& format = Fields(fields.Object("text")).Get("format");
    return {{"id", MakeId("resp_")},
            {"object", "response"},
            {"created_at", std::time(nullptr)},
            {"status", "in_progress"},
            {"background", false},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"instructions", fields.Get("instructions")},
            {"max_output_tokens", fields.Get("max_output_tokens")},
            {"metadata", repeat("metadata", Json::object())},
            {"model", served.NameOf(ReadAdapter(fields, served))},
            {"output", Json::array()},
            {"parallel_tool_calls", fields.Bool("parallel_tool_calls", true)},
            {"previous_response_id", fields.Get("previous_response_id")},
            {"reasoning", repeat("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
            {"store", stores},
            {"temperature", Decimal(sampler.temperature)},
            {"text", {{"format", format.is_null() ? Json{{"type", "text"}} : format}}},
            {"tool_choice", repeat("tool_choice", "auto")},
            {"tools", fields.List("tools")},
            {"top_p", Decimal(sampler.top_p)},
            {"truncation", "disabled"},
            {"usage", nullptr}};
}

bool AsksForLogprobs(Fields& fields) {
    for (const Json& word : fields.List("include")) {
        if (word == "message.output_text.logprobs") return true;
    }
    return fields.Has("top_logprobs");
}

}  // namespace

std::optional<ApiError> PlanResponse(const Json& body, const Served& served, AnswerPlan& plan) {
    Fields fields(body);
    if (auto error = CheckModel(fields, served)) return error;
    RefuseOtherState(fields);
    Conversation conversation;
    Json items = ItemsBefore(fields, plan);
    ReadInput(fields, items, conversation.input.messages);
    const bool stores = fields.Bool("store", true) && plan.responses && plan.responses->on();
    ReadResponseTools(fields, conversation);
    ReadTextFormat(fields, conversation);
    Fields reasoning(fields.Object("reasoning"), "reasoning.");
    const std::string effort = reasoning.Text("effort", "");
    Adopt(fields, reasoning);
    if (!effort.empty()) conversation.input.extra = {{"reasoning_effort", effort}};
    engine::Request request;
    ReadSampling(fields, served, request);
    request.max_tokens = ReadLength(fields, "max_output_tokens", -1);
    const bool logprobs = AsksForLogprobs(fields);
    const int64_t best = fields.Integer("top_logprobs", 0, 0, kMostLogprobs);
    if (logprobs) request.logprobs = static_cast<int>(best);
    plan.stream = fields.Bool("stream", false);
    CheckMetadata(fields);
    conversation.parallel_calls = fields.Bool("parallel_tool_calls", true);
    if (fields.error()) return fields.error();
    plan.dialect =
        MakeResponsesDialect(served, HeadOf(fields, served, request.sampler, stores), logprobs,
                             stores ? KeeperOf(plan, std::move(items)) : nullptr);
    plan.ends_slowly = stores && plan.responses->uses_files();
    if (auto error = PlanConversation(served, conversation, std::move(request), 1, plan)) {
        if (error->param == "messages") error->param = "input";
        return error;
    }
    plan.prompt_name = "input";
    return {};
}

}  // namespace weft::serve
