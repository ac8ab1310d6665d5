#include "serve/api/reasoning.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "chat/answer_calls.h"
#include "chat/conversation.h"
#include "serve/api/members.h"

namespace weft::serve {
namespace {

int64_t BudgetOf(const Served& served, const Conversation& conversation) {
    return conversation.reasoning_budget.value_or(served.reasoning_budget);
}

// The settings of a request, each by the first member that has it.
struct ThinkingSetting {
    std::string effort, effort_member;
    std::optional<bool> on{};
    std::string on_member{};
    std::optional<bool> word{};  // a switch in place of an effort; `on` has priority
    std::string word_member{};
    std::optional<int64_t> budget{};
    std::string budget_member{};
};

// Words of several programs that are used in place of an effort.
struct SwitchWord {
    std::string_view word;
    std::optional<bool> on;  // nullopt: the word chooses nothing
};
constexpr SwitchWord kWords[] = {{"off", false}, {"false", false}, {"disabled", false},
                                 {"on", true},   {"true", true},   {"enabled", true},
                                 {"auto", {}},   {"default", {}},  {"dynamic", {}}};

const SwitchWord* FindWord(std::string_view effort) {
    const auto* const word = std::ranges::find(kWords, effort, &SwitchWord::word);
    return word == std::end(kWords) ? nullptr : word;
}

// Notes an effort, in any case. "off" is the effort "none", and a switch beside another effort. A
// second effort has no effect.
void AddEffort(std::string_view text, std::string member, Conversation& conversation,
               ThinkingSetting& wish) {
    std::string effort = LowerCase(text);
    if (const SwitchWord* const word = FindWord(effort)) {
        const bool none = word->on == false && wish.effort.empty();
        effort = none ? "none" : "";
        if (!none && word->on && !wish.word) {
            wish.word = word->on;
            wish.word_member = member;
        }
    }
    if (effort.empty()) return;
    if (wish.effort.empty()) {
        wish.effort = std::move(effort);
        wish.effort_member = std::move(member);
    } else if (wish.effort != effort) {
        AddNames(conversation.left_out, member);
    }
}

// Reads a budget in tokens. A word in its place is an effort.
std::optional<int64_t> ReadBudget(Fields& fields, const char* name, Conversation& conversation,
                                  ThinkingSetting& wish) {
    const Json& value = fields.Get(name);
    if (value.is_null()) return std::nullopt;
    const std::string word = value.is_string() ? LowerCase(value.get<std::string>()) : "";
    if (!chat::IsEffort(word) && FindWord(word) == nullptr) {
        return fields.Integer(name, -1, -1, INT64_MAX);
    }
    AddEffort(word, fields.PathOf(fields.RequestName(name)), conversation, wish);
    return std::nullopt;
}

// Reads a member that is a switch, an effort, or an object with both and a budget.
void ReadSetting(Fields& fields, const char* name, Conversation& conversation,
                 ThinkingSetting& wish) {
    const Json& value = fields.Get(name);
    std::optional<bool> on;
    std::string on_member = fields.PathOf(name);
    if (value.is_boolean()) {
        on = value == true;
    } else if (value.is_string()) {
        AddEffort(value.get<std::string>(), on_member, conversation, wish);
    } else {
        Fields of(fields.Object(name), fields.PathOf(name) + ".");
        if (of.Has("enabled")) {
            on_member = of.PathOf("enabled");
            on = of.Bool("enabled", true);
        }
        if (of.Has("type")) {
            on_member = of.PathOf("type");
            on = of.Choice("type", "", {"enabled", "disabled", "adaptive", "auto"}) != "disabled";
        }
        AddEffort(of.Text("effort", ""), of.PathOf("effort"), conversation, wish);
        if (of.Bool("exclude", false)) conversation.hides_reasoning = true;
        for (const char* budget : {"budget_tokens", "max_tokens"}) {
            if (!of.Has(budget) || on == false) continue;
            const auto tokens = ReadBudget(of, budget, conversation, wish);
            if (!tokens) continue;
            wish.budget = tokens;
            wish.budget_member = of.PathOf(budget);
        }
        if (of.PathOf("format") == conversation.constraint.param) of.Get("format");
        AddUnread(of, conversation.left_out);
        fields.Adopt(of);
    }
    if (wish.on || !on) return;
    wish.on = on;
    wish.on_member = std::move(on_member);
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

void ReadThinking(Fields& fields, Conversation& conversation, const std::string& later,
                  const std::string& later_member) {
    ThinkingSetting wish;
    AddEffort(fields.Text("reasoning_effort", ""), conversation.effort_member, conversation, wish);
    if (fields.Has("enable_thinking")) {
        wish.on_member = fields.RequestName("enable_thinking");
        wish.on = fields.Bool("enable_thinking", true);
    }
    for (const char* name : {"thinking", "think", "reasoning", "output_config"}) {
        ReadSetting(fields, name, conversation, wish);
    }
    if (wish.budget) conversation.reasoning_budget = wish.budget;
    const auto tokens = ReadBudget(fields, "thinking_token_budget", conversation, wish);
    if (tokens) conversation.reasoning_budget = tokens;
    if (!later.empty()) {
        wish.effort.clear();
        wish.word.reset();
        AddEffort(later, later_member, conversation, wish);
    }
    if (!wish.on && wish.word) {
        wish.on = wish.word;
        wish.on_member = std::move(wish.word_member);
    }
    Json& extra = conversation.input.extra;
    if (!extra.is_object()) extra = Json::object();
    const bool asked = wish.on || !wish.effort.empty() || extra.contains("reasoning_effort");
    if (!asked && wish.budget && *conversation.reasoning_budget > 0) {
        wish.on = true;  // as OpenRouter documents
        wish.on_member = std::move(wish.budget_member);
    }
    conversation.switched = wish.on;
    conversation.switch_member = std::move(wish.on_member);
    if (wish.on && !extra.contains("enable_thinking")) extra["enable_thinking"] = *wish.on;
    if (wish.effort.empty()) {
        conversation.effort_member = "chat_template_kwargs.reasoning_effort";
        return;
    }
    const auto other = extra.find("reasoning_effort");
    if (other != extra.end() && *other != wish.effort) {
        AddNames(conversation.left_out, "chat_template_kwargs.reasoning_effort");
    }
    extra["reasoning_effort"] = wish.effort;
    conversation.effort_member = std::move(wish.effort_member);
    conversation.reasons = wish.effort != "none";
}

namespace {

// The effort that a value of the template's variable means; "": none.
std::string EffortOf(const Json& value) {
    std::string effort =
        value.is_boolean() ? (value == true ? "on" : "off") : LowerCase(value.get<std::string>());
    if (const SwitchWord* const word = FindWord(effort)) {
        effort = !word->on ? "" : *word->on ? "high" : "none";
    }
    return effort;
}

// Templates that accept few efforts, such as Mistral's, which takes "none" and "high": another
// effort becomes the nearest one. If there is no other switch, the switch chooses an effort if the
// request has none, and "off" overrides any effort.
void FitEffort(const Served& served, Conversation& conversation) {
    constexpr const char* kName = "reasoning_effort";
    Json& extra = conversation.input.extra;
    const std::vector<std::string>& efforts = served.forms.efforts;
    if (efforts.empty()) return;
    const auto on = extra.find("enable_thinking");
    const bool switches = on != extra.end() && on->is_boolean() && efforts.front() == "none" &&
                          !served.forms.switches_thinking;
    const bool thinks = switches && *on == true;
    if (const auto given = extra.find(kName); given != extra.end()) {
        if (!given->is_string() && !given->is_boolean()) return;
        const std::string effort = EffortOf(*given);
        const std::string fit =
            switches && !thinks ? "none" : chat::NearestEffort(served.forms, effort);
        if (!effort.empty() && effort != fit) {
            AddNames(conversation.left_out, conversation.effort_member);
        }
        if (!fit.empty()) {
            *given = fit;
            return;
        }
        extra.erase(given);
    }
    if (!switches) return;
    const Json usual = served.template_variables.value(kName, Json("none"));
    if (!thinks || usual == "none") {
        extra[kName] = thinks ? chat::NearestEffort(served.forms, "high") : "none";
    }
}

// Names a switch and an effort that the template does not obey, unless the model does anyway what
// they request.
void NameUnheard(const Served& served, Conversation& conversation) {
    const chat::ConversationForms& forms = served.forms;
    if (forms.switches_thinking) return;
    const bool may = served.card.thinking;
    const bool always = forms.opens_reasoning || (may && forms.reads_effort);
    const bool by_effort = !forms.efforts.empty() && forms.efforts.front() == "none";
    if (conversation.switched && !by_effort && (*conversation.switched ? !always : may)) {
        AddNames(conversation.left_out, conversation.switch_member);
    }
    if (conversation.reasons && !forms.reads_effort && (*conversation.reasons || may)) {
        AddNames(conversation.left_out, conversation.effort_member);
    }
}

}  // namespace

void FitServersEffort(Served& served) {
    const std::vector<std::string>& efforts = served.forms.efforts;
    const auto given = served.template_variables.find("reasoning_effort");
    if (efforts.empty() || given == served.template_variables.end() ||
        (!given->is_string() && !given->is_boolean())) {
        return;
    }
    std::string effort = chat::NearestEffort(served.forms, EffortOf(*given));
    if (std::ranges::find(efforts, effort) == efforts.end()) effort.clear();
    if (effort == *given) return;
    Log(LogLevel::kWarning,
        "--chat-template-kwargs: the model's chat template takes reasoning_effort {}; {} is used "
        "for {}",
        fmt::join(efforts, ", "), effort.empty() ? "its default" : effort, given->dump());
    if (effort.empty()) {
        served.template_variables.erase(given);
    } else {
        *given = effort;
    }
}

void FillVariables(const Served& served, Conversation& conversation) {
    Json& extra = conversation.input.extra;
    if (!extra.is_object()) extra = Json::object();
    const bool none = BudgetOf(served, conversation) == 0;
    if ((none || conversation.reasons) && !extra.contains("enable_thinking")) {
        extra["enable_thinking"] = !none && *conversation.reasons;
    }
    chat::NameThinking(extra);  // a switch of the request overrides the server's variables
    FitEffort(served, conversation);
    NameUnheard(served, conversation);
    for (const auto& [name, value] : served.template_variables.items()) {
        if (!extra.contains(name)) extra[name] = value;
    }
    chat::NameThinking(extra);
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
