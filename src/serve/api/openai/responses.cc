#include "serve/api/openai/responses.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <unordered_map>

#include "serve/api/constraint.h"
#include "serve/api/members.h"
#include "serve/api/openai/chat.h"
#include "serve/api/openai/input_items.h"
#include "serve/api/openai/response_input.h"
#include "serve/api/openai/response_store.h"
#include "serve/api/openai/responses_dialect.h"
#include "serve/api/reasoning.h"
#include "serve/api/sampling.h"

namespace weft::serve {
namespace {

// Asks for the summary that replaces a conversation.
constexpr const char* kAskForSummary =
    "Summarize the conversation so far, so that another assistant can continue the work from the "
    "summary alone. State the user's requests and constraints, what was done and decided, names of "
    "files, commands and values that matter, and what remains to be done. Write the summary only.";

constexpr int64_t kMostSummaryTokens = 2048;
constexpr int64_t kLeastSummaryTokens = 256;

// Most tokens of a summary: a share of the context, and no more than the conversation has.
int64_t SummaryTokens(const Served& served, int64_t prompt_tokens) {
    return std::max<int64_t>(1, std::min({kMostSummaryTokens, served.engine->context() / 4,
                                          std::max(kLeastSummaryTokens, prompt_tokens)}));
}

void LimitSummary(const Served& served, int64_t prompt_tokens, int64_t& max_tokens) {
    const int64_t most = SummaryTokens(served, prompt_tokens);
    max_tokens = max_tokens < 0 ? most : std::min(max_tokens, most);
}

// update: the format of a later configuration_update; null: none.
void ReadTextFormat(Fields& fields, const Json& update, Conversation& conversation) {
    Fields text(fields.Object("text"), "text.");
    const Json& own = text.Get("format");
    const Json& format = update.is_null() ? own : update;
    conversation.constraint = ReadConstraintOf(text, format, "format");
    fields.Adopt(text);
    AddUnread(text, conversation.left_out);
    if (conversation.constraint.kind.empty()) conversation.constraint = ReadConstraint(fields);
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

// Finds items of stored responses, by the ids that the server gave them. Reads each response once.
FindItem FinderOf(const AnswerPlan& plan) {
    struct Read {
        std::shared_ptr<const ResponseStore::Stored> stored;
        std::unordered_map<std::string, const Json*> items;
    };
    return [&plan, known = std::unordered_map<std::string, Read>()](
               const std::string& id, int64_t& bytes) mutable -> const Json* {
        const size_t begin = id.find('_'), end = id.rfind('_');
        if (plan.responses == nullptr || !plan.responses->on() || begin >= end) return nullptr;
        const std::string of = "resp_" + id.substr(begin + 1, end - begin - 1);
        const auto [read, is_new] = known.try_emplace(of);
        if (is_new) {
            auto stored = plan.responses->Get(plan.owner, of);
            if (stored == nullptr) return nullptr;
            bytes += stored->held_bytes;
            read->second = {stored, StoredItems(*stored)};
        }
        const auto found = read->second.items.find(id);
        return found == read->second.items.end() ? nullptr : found->second;
    };
}

// Stores the response with its conversation, unless "store" is false.
KeepResponse KeeperOf(AnswerPlan& plan, Json items) {
    const int64_t item_bytes = HeldBytes(items);
    plan.kept_bytes = static_cast<size_t>(item_bytes);
    return [store = plan.responses, owner = plan.owner, item_bytes,
            items = std::make_shared<const Json>(std::move(items))](const Json& response) {
        store->Put(owner, response["id"].get<std::string>(),
                   {response, items, item_bytes + HeldBytes(response)});
    };
}

// Metadata is repeated in each answer. The limits are OpenAI's, in bytes instead of characters.
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

bool Includes(Fields& fields, const char* what) {
    return std::ranges::any_of(fields.List("include"),
                               [&](const Json& word) { return word == what; });
}

// The conversation's user messages, which stay beside its summary.
Json UserMessages(const Json& items) {
    Json kept = Json::array();
    for (const Json& item : items) {
        if (item.value("role", Json()) != "user") continue;
        Json message{{"id", MakeId("msg_")},
                     {"type", "message"},
                     {"status", "completed"},
                     {"role", "user"},
                     {"content", item.value("content", Json())}};
        if (message["content"].is_string()) {
            message["content"] =
                Json::array({{{"type", "input_text"}, {"text", message["content"]}}});
        }
        kept.push_back(std::move(message));
    }
    return kept;
}

// Makes the answer a summary of the conversation.
void RequestSummary(Conversation& conversation) {
    conversation.input.messages.push_back({{"role", "user"}, {"content", kAskForSummary}});
    conversation.input.tools = nullptr;
    conversation.forced_tool.clear();
    conversation.constraint = {};
    conversation.reasoning_budget = 0;
}

std::optional<ApiError> Plan(const Json& body, const Served& served, bool compacts,
                             AnswerPlan& plan) {
    Fields fields(body);
    if (auto error = CheckModel(fields, served)) return error;
    RefuseOtherState(fields);
    Conversation conversation;
    ResponseForm form;
    Json items = ItemsBefore(fields, plan);
    const ResponseInput input =
        ReadResponseInput(fields, items, FinderOf(plan), form.tools, conversation);
    form.tools.Read(fields, fields.List("tools"), "tools", conversation);
    form.tools.ReadChoice(fields, conversation);
    ReadTextFormat(fields, input.format, conversation);
    form.compacts = compacts || input.compacts;
    ReadTemplateVariables(fields, conversation.input.extra);
    ReadThinking(fields, conversation, input.effort, input.effort_member);
    if (form.compacts) RequestSummary(conversation);
    if (compacts) form.kept = UserMessages(items);
    const bool summary = form.compacts;
    const bool stores =
        fields.Bool("store", true) && !compacts && plan.responses && plan.responses->on();
    engine::Request request;
    ReadSampling(fields, served, request);
    request.max_tokens = ReadLength(fields, "max_output_tokens", -1);
    if (form.compacts) LimitSummary(served, INT64_MAX, request.max_tokens);
    form.logprobs = Includes(fields, "message.output_text.logprobs") || fields.Has("top_logprobs");
    form.seals_reasoning = Includes(fields, "reasoning.encrypted_content");
    const int64_t best = fields.Integer("top_logprobs", 0, 0, kMostLogprobs);
    if (form.logprobs) request.logprobs = static_cast<int>(best);
    plan.content_tokens = true;
    plan.stream = fields.Bool("stream", false) && !compacts;
    CheckMetadata(fields);
    conversation.parallel_calls = fields.Bool("parallel_tool_calls", true);
    conversation.kept = ReadKeptTokens(fields, served, request.max_tokens);
    if (auto error = FinishRequest(fields, served, request, plan.left)) return error;
    plan.notices = form.tools.notices();
    form.head = HeadOf(fields, served, request.sampler, stores);
    if (stores) form.keep = KeeperOf(plan, std::move(items));
    plan.dialect = MakeResponsesDialect(served, std::move(form));
    plan.ends_slowly = stores && plan.responses->uses_files();
    if (auto error = PlanConversation(served, conversation, std::move(request), 1, plan)) {
        if (error->param == "messages") error->param = "input";
        return error;
    }
    for (ChoicePlan& choice : plan.choices) {
        if (summary)
            LimitSummary(served, std::ssize(choice.request.prompt), choice.request.max_tokens);
    }
    plan.prompt_name = "input";
    return {};
}

}  // namespace

std::optional<ApiError> PlanResponse(const Json& body, const Served& served, AnswerPlan& plan) {
    return Plan(body, served, false, plan);
}

std::optional<ApiError> PlanCompaction(const Json& body, const Served& served, AnswerPlan& plan) {
    return Plan(body, served, true, plan);
}

}  // namespace weft::serve
