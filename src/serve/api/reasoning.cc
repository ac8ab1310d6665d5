#include "serve/api/reasoning.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "chat/answer_calls.h"

namespace weft::serve {
namespace {

int64_t BudgetOf(const Served& served, const Conversation& conversation) {
    return conversation.reasoning_budget.value_or(served.reasoning_budget);
}

std::vector<int32_t> Markers(const Served& served, std::string_view text) {
    return served.tokenizer().Encode(text, {.add_special = false, .parse_special = true});
}

bool IsMarker(const Served& served, int32_t id) {
    return served.tokenizer().IsSpecial(id) ||
           served.tokenizer().Type(id) == tokenizer::TokenType::kUserDefined;
}

// The token that is the marker; -1: other tokens write it.
int32_t TokenOf(const Served& served, std::string_view marker) {
    const std::vector<int32_t> ids = Markers(served, marker);
    return ids.size() == 1 && IsMarker(served, ids[0]) ? ids[0] : -1;
}

// The token with which the model begins its reasoning; -1: its vocabulary or its template has none.
int32_t Opening(const Served& served, std::string_view begin) {
    const std::vector<int32_t> ids = Markers(served, begin);
    if (ids.empty() || served.chat->source().find(begin) == std::string::npos) return -1;
    return ids.size() == 1 || IsMarker(served, ids[0]) ? ids[0] : -1;
}

// Families whose turn is a list of messages with heads. The constrained text follows the head of
// the final message.
engine::Reasoning OfMessages(const Served& served, bool constrained, int64_t budget) {
    constexpr int64_t kHeadTokens = 8;
    const chat::MessageHeads heads = chat::HeadsOf(served.family);
    engine::Reasoning reasoning{.end = std::string(heads.end), .budget = budget};
    if (!constrained) {
        reasoning.begin = heads.reasoning;
        reasoning.end_token = TokenOf(served, heads.end);
        reasoning.closing = Markers(served, heads.end);
        return reasoning;
    }
    reasoning.begun = true;
    reasoning.end = heads.final;
    reasoning.end_rest = heads.body;
    if (budget >= 0) reasoning.budget = std::max(budget, kHeadTokens);
    reasoning.closing = Markers(
        served, std::string(heads.end).append(heads.start).append(heads.final).append(heads.body));
    const int32_t body = TokenOf(served, heads.body);
    if (body < 0) return reasoning;
    for (const int32_t id : reasoning.closing) {
        if (id != body && IsMarker(served, id)) reasoning.head_tokens.push_back(id);
    }
    if (!reasoning.head_tokens.empty()) reasoning.end_token = body;
    return reasoning;
}

}  // namespace

std::optional<int64_t> ReadReasoningBudget(Fields& fields) {
    for (const char* name :
         {"thinking_token_budget", "thinking_budget_tokens", "reasoning_budget_tokens"}) {
        if (fields.Has(name)) return fields.Integer(name, -1, -1, INT64_MAX);
    }
    return {};
}

void FillVariables(const Served& served, Conversation& conversation) {
    Json& extra = conversation.input.extra;
    if (!extra.is_object()) extra = Json::object();
    for (const auto& [name, value] : served.template_variables.items()) {
        if (!extra.contains(name)) extra[name] = value;
    }
    if (BudgetOf(served, conversation) == 0 && !extra.contains("enable_thinking")) {
        extra["enable_thinking"] = false;
    }
    const auto thinks = extra.find("enable_thinking");
    if (thinks != extra.end() && !extra.contains("thinking")) {
        const Json value = *thinks;
        extra["thinking"] = value;
    }
}

engine::Reasoning ReasoningOf(const Served& served, const Conversation& conversation,
                              const ChatPrompt& prompt, bool constrained) {
    const int64_t budget = BudgetOf(served, conversation);
    if (budget < 0 && !constrained) return {};
    const bool goes_on = !prompt.words.empty() && !prompt.in_reasoning;
    if (!chat::HeadsOf(served.family).end.empty()) {
        return goes_on ? engine::Reasoning{} : OfMessages(served, constrained, budget);
    }
    const std::string_view begin = chat::ThinkBegin(served.family);
    const std::string_view end = chat::ThinkEnd(served.family);
    const bool closed = chat::TrimBlanks(prompt.text).ends_with(end);
    if (goes_on || (!prompt.in_reasoning && (begin.empty() || closed))) return {};
    engine::Reasoning reasoning{.begin = std::string(begin),
                                .end = std::string(end),
                                .end_token = TokenOf(served, end),
                                .begun = prompt.in_reasoning,
                                .budget = budget,
                                .closing = Markers(served, chat::ClosedThought(served.family))};
    if (!constrained || reasoning.begun) return reasoning;
    reasoning.opening = budget == 0 ? -1 : Opening(served, begin);
    return reasoning.opening < 0 ? engine::Reasoning{} : reasoning;
}

}  // namespace weft::serve
