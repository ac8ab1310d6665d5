#include "chat/template/template_capabilities.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "chat/tool_words.h"

namespace weft::chat {
namespace {

constexpr size_t kShortIdCharacters = 9;
// Words that occur in no template.
constexpr const char* kProbeName = "weft_probe_function";
// a function that is offered but not called
constexpr const char* kProbeOffer = "weft_probe_offer";
constexpr const char* kProbeValue = "weft probe argument";
constexpr const char* kProbeResult = "weft probe result";
constexpr const char* kProbeText = "weft probe text";
constexpr const char* kProbeThought = "weft probe thought";
constexpr const char* kProbeSystem = "weft probe system";
constexpr const char* kProbeSecond = "weft probe second";  // another system message
constexpr const char* kLongId = "call_AbCdEfGhIjKlMnOpQrStUvWx";

OrderedJson Function() {
    return {{"name", kProbeOffer},
            {"description", "A function."},
            {"parameters",
             {{"type", "object"},
              {"properties", {{"words", {{"type", "string"}, {"description", "Words."}}}}},
              {"required", OrderedJson::array({"words"})}}}};
}

OrderedJson Offered() {
    return OrderedJson::array({{{"type", "function"}, {"function", Function()}}});
}

std::string ProbeValue(size_t call) {
    return fmt::format("{} {}.", kProbeValue, call);
}

std::string ProbeResult(size_t call) {
    return fmt::format("{} {}.", kProbeResult, call);
}

// Optional elements of a probe conversation, besides one call and its result.
struct ProbeShape {
    bool with_tools = false;
    size_t calls = 1;
    const char* text = "";     // text beside the calls
    const char* thought = "";  // reasoning before the calls
};

// A probe: a question, calls and their results.
ChatInput Probe(const ProbeShape& shape) {
    ChatInput input = OneQuestion("", "Do it.");
    OrderedJson message{{"role", "assistant"}, {"content", shape.text}};
    if (*shape.thought != '\0') message["reasoning_content"] = shape.thought;
    OrderedJson results = OrderedJson::array();
    for (size_t i = 0; i < shape.calls; ++i) {
        const std::string id = kLongId + std::to_string(i);
        OrderedJson function{{"name", kProbeName}, {"arguments", {{"words", ProbeValue(i)}}}};
        message["tool_calls"].push_back(
            {{"id", id}, {"type", "function"}, {"function", std::move(function)}});
        results.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", ProbeResult(i)}});
    }
    input.messages.push_back(std::move(message));
    for (OrderedJson& result : results) input.messages.push_back(std::move(result));
    if (shape.with_tools) input.tools = Offered();
    input.now_s = 1;
    return input;
}

constexpr int kMostScore = 7;  // of Shown::score
// Elements of the probe found in the rendered prompt.
struct Shown {
    bool renders = false;
    bool calls = false, results = false;  // all of them
    bool well = false;                    // calls are not printed as LooksPrinted describes
    bool named = false;                   // the function's name is shown
    bool thought = false;                 // the reasoning is shown, but not as a printed part
    bool answered = false;                // a result is shown as in Gemma 4's turns
    size_t ids = 0;                       // occurrences of the first call's original id

    bool all() const { return calls && results; }
    int score() const { return renders ? 4 * calls + 2 * results + (calls && well) : -1; }
};

// Whether calls are shown as a Python object or as JSON inside a JSON string, which no model is
// trained on.
bool LooksPrinted(std::string_view text) {
    const auto has = [&](const char* before) {
        return text.find(fmt::format("{}{}", before, kProbeValue)) != text.npos;
    };
    return has("'words': '") || has(R"(\"words\": \")");
}

Shown Try(const Chat& chat, const TemplateCapabilities& form, const ProbeShape& shape) {
    ChatInput input = Probe(shape);
    FitConversation(form, input);
    const auto text = chat.Render(input, kProbeLimits);
    if (!text.ok()) return {};
    const std::string_view view = text->view();
    const auto has = [&](std::string_view words) { return view.find(words) != view.npos; };
    Shown shown{true, true, true, !LooksPrinted(view), has(kProbeName)};
    shown.thought = has(kProbeThought) && !has(fmt::format("'thinking': '{}", kProbeThought)) &&
                    !has(fmt::format("\"thinking\": \"{}", kProbeThought));
    shown.answered = has(fmt::format("response:{}", kProbeName));
    const std::string id = fmt::format("{}0", kLongId);
    for (size_t at = view.find(id); at != view.npos; at = view.find(id, at + 1)) ++shown.ids;
    for (size_t i = 0; i < shape.calls; ++i) {
        shown.calls = shown.calls && has(ProbeValue(i));
        shown.results = shown.results && has(ProbeResult(i));
    }
    return shown;
}

bool IsShortId(std::string_view id) {
    return id.size() == kShortIdCharacters && std::ranges::all_of(id, [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
           });
}

void FitArguments(const TemplateCapabilities& form, OrderedJson& function) {
    OrderedJson& arguments = function["arguments"];
    const bool none = arguments.is_null() || arguments == "";
    if (none) arguments = OrderedJson::object();
    if (!form.takes_objects) {
        if (arguments.is_string()) return;
        std::string text;
        AppendJson(arguments, text);
        arguments = std::move(text);
    } else if (!form.takes_text && !arguments.is_object()) {
        OrderedJson words = std::move(arguments);
        arguments = {{"arguments", std::move(words)}};
    }
}

std::string NameOf(const OrderedJson& call) {
    const auto function = call.is_object() ? call.find("function") : call.end();
    const bool has = function != call.end() && function->is_object();
    return has ? TextMember(*function, "name") : "";
}

// Gives a result without a name its function's name.
void NameResult(const TemplateCapabilities& form, const std::string& name, OrderedJson& message) {
    if (!form.named_results || !HasRole(message, "tool")) return;
    if (TextMember(message, "name").empty()) message["name"] = name;
}

// Assigns ids to calls and results in order: the original ones, short ones, or ones that name the
// function. Missing ids are generated.
class IdFitter {
  public:
    explicit IdFitter(const TemplateCapabilities& form) : form_(form) {}

    // Starts the next message with calls.
    void Message() {
        if (form_.ids_begin_anew) number_ = 0;
    }
    void Call(OrderedJson& call) {
        std::string id = TextMember(call, "id");
        if (id.empty()) id = fmt::format("call_{:08}", made_);
        std::string fitted = form_.named_ids ? NamedId(call) : Fit(id);
        if (form_.named_results) name_of_[fitted] = NameOf(call);
        ++made_;
        ++number_;
        call["id"] = fitted;
        fitted_of_[id] = fitted;
        ++of_[fitted].open;
        order_.push_back(std::move(fitted));
    }
    // A result without a known id gets the id of the first unanswered call.
    void Result(OrderedJson& message) {
        const std::string id = TextMember(message, "tool_call_id");
        const std::string fitted = id.empty() ? FirstOpen() : Fitted(id);
        if (const auto at = of_.find(fitted); at != of_.end() && at->second.open > 0) {
            --at->second.open;
            ++at->second.answered;
        }
        message["tool_call_id"] = fitted;
        const auto name = form_.named_results ? name_of_.find(fitted) : name_of_.end();
        if (name != name_of_.end()) NameResult(form_, name->second, message);
    }

  private:
    struct Calls {
        size_t open = 0;      // calls without a result
        size_t answered = 0;  // answered calls that are still in order_
    };
    std::string NamedId(const OrderedJson& call) const {
        return fmt::format("functions.{}:{}", NameOf(call), number_);
    }
    std::string Fitted(const std::string& id) const {
        const auto found = fitted_of_.find(id);
        if (found != fitted_of_.end()) return found->second;
        return Fit(id);
    }
    std::string Fit(const std::string& id) const { return form_.short_ids ? ShortCallId(id) : id; }
    std::string FirstOpen() {
        while (!order_.empty()) {
            Calls& calls = of_[order_.front()];
            if (calls.answered == 0) return order_.front();
            --calls.answered;
            order_.pop_front();
        }
        return Fit("none");
    }

    const TemplateCapabilities& form_;
    std::unordered_map<std::string, std::string> fitted_of_;  // by original id, the latest
    std::unordered_map<std::string, Calls> of_;               // by fitted id
    std::unordered_map<std::string, std::string> name_of_;    // by fitted id: the function's name
    std::deque<std::string> order_;                           // fitted ids of the calls
    size_t made_ = 0;                                         // number of calls
    size_t number_ = 0;                                       // number of the next call
};

// Puts the reasoning where the template reads it.
void FitThought(const TemplateCapabilities& form, OrderedJson& message) {
    using enum TemplateCapabilities::ThoughtAs;
    const bool calls = HasCalls(message);
    const std::string text = TextMember(message, "content");
    for (const char* name : kReasoningMembers) {
        const std::string thought = TextMember(message, name);
        if (thought.empty()) continue;
        switch (form.thought_as) {
            case kGiven: return;
            case kJoined:
                if (!calls || text.empty()) return;
                message[name] = thought + "\n\n" + text;
                message["content"] = "";
                return;
            case kToolPlan:
                if (calls && !message.contains("tool_plan")) message["tool_plan"] = thought;
                return;
            case kPart:
                message["content"] =
                    OrderedJson::array({{{"type", "thinking"}, {"thinking", thought}}});
                if (text.empty()) return;
                message["content"].push_back({{"type", "text"}, {"text", text}});
                return;
        }
    }
}

void FitMessage(const TemplateCapabilities& form, OrderedJson& message, IdFitter& ids) {
    if (HasRole(message, "tool")) ids.Result(message);
    if (!HasRole(message, "assistant")) return;
    const auto content = message.find("content");
    const bool empty = content == message.end() || content->is_null() || *content == "";
    if (!HasCalls(message)) {
        message.erase("tool_calls");
        if (empty) message["content"] = "";
        FitThought(form, message);
        return;
    }
    if (empty) message["content"] = form.null_content ? OrderedJson(nullptr) : OrderedJson("");
    FitThought(form, message);
    ids.Message();
    for (OrderedJson& call : message["tool_calls"]) {
        if (!call.is_object()) continue;
        if (!call.contains("type")) call["type"] = "function";
        ids.Call(call);
        const auto function = call.find("function");
        if (function != call.end() && function->is_object()) FitArguments(form, *function);
    }
}

std::string CallId(const OrderedJson& call) {
    return call.is_object() ? TextMember(call, "id") : "";
}

// Results of one message's calls: a call takes the result with its id, else the first remaining
// result that belongs to no other call.
class Results {
  public:
    // Takes the results after messages[at], the message with the calls, and moves `at` to the last
    // of them.
    Results(OrderedJson& messages, size_t& at) {
        for (const OrderedJson& call : messages[at]["tool_calls"]) ids_.insert(CallId(call));
        while (at + 1 < messages.size() && HasRole(messages[at + 1], "tool")) {
            results_.push_back(std::move(messages[++at]));
            const std::string id = TextMember(results_.back(), "tool_call_id");
            by_id_[id].push_back(results_.size() - 1);
            is_own_.push_back(!id.empty() && ids_.contains(id));
        }
        taken_.resize(results_.size());
    }
    bool TakeOwn(const std::string& id, OrderedJson& out) {
        const auto own = by_id_.find(id);
        if (id.empty() || own == by_id_.end() || own->second.empty()) return false;
        Take(own->second.front(), out);
        own->second.pop_front();
        return true;
    }
    void TakeOf(const std::string& id, OrderedJson& out) {
        if (TakeOwn(id, out)) return;
        while (first_ < taken_.size() && (taken_[first_] || is_own_[first_])) ++first_;
        if (first_ < taken_.size()) Take(first_, out);
    }
    void TakeRest(OrderedJson& out) {
        for (size_t i = 0; i < results_.size(); ++i) {
            if (!taken_[i]) Take(i, out);
        }
    }

  private:
    void Take(size_t i, OrderedJson& out) {
        taken_[i] = true;
        out.push_back(std::move(results_[i]));
    }

    std::vector<OrderedJson> results_;
    std::vector<bool> taken_, is_own_;                           // is_own_: a call has the id
    std::unordered_set<std::string> ids_;                        // ids of the calls
    std::unordered_map<std::string, std::deque<size_t>> by_id_;  // remaining results
    size_t first_ = 0;  // all earlier results are taken or belong to a call
};

// Sorts results by the order of their calls, since most templates show no ids. Results without a
// known call come last.
OrderedJson InOrderOfCalls(const TemplateCapabilities& form, OrderedJson& messages) {
    OrderedJson fitted = OrderedJson::array();
    for (size_t i = 0; i < messages.size(); ++i) {
        OrderedJson& message = messages[i];
        if (!HasRole(message, "assistant") || !HasCalls(message)) {
            NameResult(form, "unknown", message);
            fitted.push_back(std::move(message));
            continue;
        }
        Results results(messages, i);
        OrderedJson ordered = OrderedJson::array();
        std::deque<std::string> open;  // names of the calls without a result of their own
        for (const OrderedJson& call : message["tool_calls"]) {
            if (!results.TakeOwn(CallId(call), ordered)) open.push_back(NameOf(call));
        }
        size_t rest = ordered.size();
        results.TakeRest(ordered);
        for (; rest < ordered.size(); ++rest) {
            NameResult(form, open.empty() ? "unknown" : open.front(), ordered[rest]);
            if (!open.empty()) open.pop_front();
        }
        fitted.push_back(std::move(message));
        for (OrderedJson& result : ordered) fitted.push_back(std::move(result));
    }
    return fitted;
}

// Parts of a split turn keep its training weight.
void CopyLoss(const OrderedJson& from, OrderedJson& to) {
    const auto weight = from.find(kLossMember);
    if (weight != from.end()) to[kLossMember] = *weight;
}

// [calls a, b; results a, b] -> [call a; result a; call b; result b].
OrderedJson OneCallEach(const TemplateCapabilities& form, OrderedJson& messages) {
    OrderedJson fitted = OrderedJson::array();
    for (size_t i = 0; i < messages.size(); ++i) {
        OrderedJson& message = messages[i];
        if (!HasRole(message, "assistant") || !HasCalls(message) ||
            message["tool_calls"].size() == 1) {
            fitted.push_back(std::move(message));
            continue;
        }
        Results results(messages, i);
        OrderedJson calls = std::move(message["tool_calls"]);
        for (OrderedJson& call : calls) {
            const std::string id = CallId(call);
            message["tool_calls"] = OrderedJson::array();
            message["tool_calls"].push_back(std::move(call));
            fitted.push_back(std::move(message));
            message = {{"role", "assistant"}, {"content", ""}};  // the text is not repeated
            CopyLoss(fitted.back(), message);
            if (form.null_content) message["content"] = nullptr;
            results.TakeOf(id, fitted);
        }
        results.TakeRest(fitted);
    }
    return fitted;
}

// [text and calls] -> [text; calls]. tool_responses: the template shows the text behind the results
// of the calls, which is right for a message that has results, and writes calls behind results
// without the header that a text needs. So this text is omitted, as in llama.cpp.
OrderedJson TextApart(const TemplateCapabilities& form, OrderedJson& messages) {
    OrderedJson fitted = OrderedJson::array();
    for (OrderedJson& message : messages) {
        const bool whole = form.tool_responses && message.contains(kResponsesMember);
        if (HasRole(message, "assistant") && HasCalls(message) && !whole &&
            !TextMember(message, "content").empty()) {
            const std::string text = std::exchange(message["content"], "");
            const bool behind =
                form.tool_responses && !fitted.empty() && HasRole(fitted.back(), "tool");
            if (!behind) {
                fitted.push_back({{"role", "assistant"}, {"content", text}});
                CopyLoss(message, fitted.back());
            }
            if (form.null_content) message["content"] = nullptr;
        }
        fitted.push_back(std::move(message));
    }
    return fitted;
}

// Converts calls and results for OLMo 3's templates.
void FunctionTexts(OrderedJson& messages) {
    for (OrderedJson& message : messages) {
        if (HasRole(message, "tool")) message["role"] = "environment";
        if (!HasRole(message, "assistant") || !HasCalls(message)) continue;
        message["function_calls"] = CallWords(message["tool_calls"], ToolCallFormat::kOlmo);
        message.erase("tool_calls");
    }
}

// Converts calls and results for GLM-4's templates. Each message has one call and no text.
void MetadataCalls(OrderedJson& messages) {
    for (OrderedJson& message : messages) {
        if (HasRole(message, "tool")) message["role"] = "observation";
        if (!HasRole(message, "assistant") || !HasCalls(message)) continue;
        const OrderedJson& call = message["tool_calls"][0];
        const OrderedJson function =
            call.is_object() ? call.value("function", OrderedJson()) : OrderedJson();
        if (function.is_object()) {
            std::string arguments;
            AppendJson(function.value("arguments", OrderedJson::object()), arguments);
            message["metadata"] = TextMember(function, "name");
            message["content"] = std::move(arguments);
        }
        message.erase("tool_calls");
    }
}

// Puts the functions as JSON text into a member of the system message.
void AddSystemMember(ChatInput& input, const char* name) {
    OrderedJson functions = OrderedJson::array();
    for (const OrderedJson& tool : input.tools) {
        functions.push_back(tool.is_object() && tool.contains("function") ? tool["function"]
                                                                          : tool);
    }
    std::string text;
    AppendJson(functions, text);
    OrderedJson& messages = input.messages;
    if (messages.empty() || !HasRole(messages[0], "system")) {
        AddSystemWords(messages, "You are a helpful assistant that can call functions.");
    }
    messages[0][name] = std::move(text);
}

// The form of native calls and results that shows the most.
TemplateCapabilities BestForm(const Chat& chat, const ProbeShape& shape) {
    TemplateCapabilities best;
    int most = -1;
    constexpr int kForms = 16;
    for (int i = 0; i < kForms && most < kMostScore; ++i) {
        const bool objects = (i & 1) == 0;
        TemplateCapabilities form{objects, !objects, (i & 2) != 0, (i & 4) != 0};
        form.named_results = (i & 8) != 0;
        const int score = Try(chat, form, shape).score();
        if (score <= most) continue;
        best = form;
        most = score;
    }
    return best;
}

// `form` with calls, results or both as plain text; the smallest such change that shows all of
// them. nullopt if none does.
std::optional<TemplateCapabilities> InWords(const Chat& chat, TemplateCapabilities form,
                                            const ProbeShape& shape) {
    constexpr std::pair<bool, bool> kReturned[] = {{true, false}, {false, true}, {true, true}};
    for (const auto& [calls, results] : kReturned) {
        TemplateCapabilities told = form;
        told.calls_as_words = calls;
        told.results_as_words = results;
        if (calls) {
            told.takes_objects = true;
            told.takes_text = told.null_content = false;
        }
        if (Try(chat, told, shape).all()) return told;
    }
    return {};
}

// `form` with one of the formats specific to a family; nullopt if none shows both calls and
// results.
std::optional<TemplateCapabilities> Peculiar(const Chat& chat, TemplateCapabilities form,
                                             const ProbeShape& shape) {
    form.takes_objects = true;
    form.takes_text = form.null_content = false;
    TemplateCapabilities texts = form, metadata = form;
    texts.function_texts = true;
    if (Try(chat, texts, shape).all()) return texts;
    metadata.metadata_calls = metadata.one_call = metadata.text_apart = true;
    const Shown shown = Try(chat, metadata, shape);
    if (shown.all() && shown.named) return metadata;
    return {};
}

// `form`, adjusted so that text beside calls is shown too.
TemplateCapabilities WithText(const Chat& chat, const TemplateCapabilities& form,
                              ProbeShape shape) {
    shape.text = kProbeText;
    if (Try(chat, form, shape).all()) return form;
    TemplateCapabilities apart = form;
    apart.text_apart = true;
    if (Try(chat, apart, shape).all()) return apart;
    return InWords(chat, form, shape).value_or(form);
}

// `form`, adjusted to ids that name the function if required, also for Kimi's templates: their
// results refer to calls by such ids, although the template generates the ids of the calls itself.
TemplateCapabilities WithIds(const Chat& chat, const TemplateCapabilities& form,
                             const ProbeShape& shape) {
    const Shown shown = Try(chat, form, shape);
    const bool kimi = FamilyOf(chat.source()) == ToolCallFormat::kKimi && shown.ids > 0;
    if (shown.named && !kimi) return form;
    TemplateCapabilities named = form;
    named.named_ids = true;
    named.ids_begin_anew = shown.ids == 1;
    const Shown with = Try(chat, named, shape);
    return with.all() && with.named ? named : form;
}

// `form`, adjusted so that reasoning before calls with text beside them is shown, or at least
// accepted.
TemplateCapabilities WithThought(const Chat& chat, const TemplateCapabilities& form,
                                 ProbeShape shape) {
    shape.text = kProbeText;
    shape.thought = kProbeThought;
    const Shown given = Try(chat, form, shape);
    if (given.thought) return form;
    using enum TemplateCapabilities::ThoughtAs;
    for (const auto& [as, word] :
         {std::pair(kToolPlan, "tool_plan"), std::pair(kPart, "thinking")}) {
        if (chat.source().find(word) == std::string::npos) continue;
        TemplateCapabilities told = form;
        told.thought_as = as;
        const Shown shown = Try(chat, told, shape);
        if (shown.all() && shown.thought) return told;
    }
    if (given.renders) return form;
    TemplateCapabilities joined = form;
    joined.thought_as = kJoined;
    return Try(chat, joined, shape).all() ? joined : form;
}

// `form`, adjusted so that results are in the turn of their calls, if the template reads them only
// there.
TemplateCapabilities WithResponses(const Chat& chat, const TemplateCapabilities& form,
                                   const ProbeShape& shape) {
    if (chat.source().find("tool_responses") == std::string::npos) return form;
    TemplateCapabilities told = form;
    told.tool_responses = told.named_results = told.text_apart = true;
    const Shown shown = Try(chat, told, shape);
    return shown.all() && shown.answered && !Try(chat, form, shape).answered ? told : form;
}

// Whether a question with a system message, functions, or both renders with `words` in it.
bool ShowsWords(const Chat& chat, const TemplateCapabilities& form, bool system, bool tools,
                std::string_view words) {
    ChatInput input = OneQuestion(system ? kProbeSystem : "", "Do it.");
    if (tools) input.tools = Offered();
    input.now_s = 1;
    FitConversation(form, input);
    const auto text = chat.Render(input, kProbeLimits);
    return text.ok() && text->view().find(words) != std::string_view::npos;
}

// Whether a system message is also shown when calls and results follow.
bool ShowsSystem(const Chat& chat, const TemplateCapabilities& form, bool with_tools) {
    ChatInput input = Probe({with_tools});
    input.messages.insert(input.messages.begin(),
                          OrderedJson{{"role", "system"}, {"content", kProbeSystem}});
    FitConversation(form, input);
    const auto text = chat.Render(input, kProbeLimits);
    return text.ok() && text->view().find(kProbeSystem) != std::string_view::npos;
}

// Whether a second system message is shown beside the first one: at the beginning, or (late) before
// the second question.
bool ShowsSecondSystem(const Chat& chat, const TemplateCapabilities& form, bool with_tools,
                       bool late) {
    ChatInput input = OneQuestion(kProbeSystem, "Do it.");
    if (with_tools) input.tools = Offered();
    input.now_s = 1;
    OrderedJson second{{"role", "system"}, {"content", kProbeSecond}};
    if (late) {
        input.messages.push_back({{"role", "assistant"}, {"content", "Done."}});
        input.messages.push_back(std::move(second));
        input.messages.push_back({{"role", "user"}, {"content", "Again."}});
    } else {
        input.messages.insert(input.messages.begin() + 1, std::move(second));
    }
    FitConversation(form, input);
    const auto text = chat.Render(input, kProbeLimits);
    if (!text.ok()) return false;
    const auto has = [&](const char* words) {
        return text->view().find(words) != std::string_view::npos;
    };
    return has(kProbeSystem) && has(kProbeSecond);
}

// `form`, adjusted so that every system message is shown.
TemplateCapabilities WithSystems(const Chat& chat, TemplateCapabilities form, bool with_tools) {
    for (const bool late : {false, true}) {
        if (ShowsSecondSystem(chat, form, with_tools, late)) continue;
        TemplateCapabilities fitted = form;
        (late ? fitted.late_system_as_user : fitted.one_system) = true;
        if (ShowsSecondSystem(chat, fitted, with_tools, late)) form = fitted;
    }
    return form;
}

// Whether every text of a conversation is shown that has consecutive messages of one role, or
// (results) a question behind results.
bool ShowsRows(const Chat& chat, const TemplateCapabilities& form, bool with_tools, bool results) {
    ChatInput input = results ? Probe({with_tools}) : OneQuestion("", "Do it.");
    if (with_tools) input.tools = Offered();
    input.now_s = 1;
    std::vector<const char*> texts;
    const auto add = [&](const char* role, const char* text) {
        input.messages.push_back({{"role", role}, {"content", text}});
        texts.push_back(text);
    };
    if (!results) {
        add("user", kProbeSecond);
        add("assistant", "Done.");
        add("assistant", kProbeResult);
    }
    add("user", kProbeText);
    FitConversation(form, input);
    const auto text = chat.Render(input, kProbeLimits);
    return text.ok() && std::ranges::all_of(texts, [&](const char* words) {
               return text->view().find(words) != std::string_view::npos;
           });
}

// `form`, adjusted so that user and assistant alternate if the template needs it.
TemplateCapabilities WithTurns(const Chat& chat, TemplateCapabilities form, bool with_tools) {
    for (const bool results : {false, true}) {
        if (ShowsRows(chat, form, with_tools, results)) continue;
        TemplateCapabilities fitted = form;
        (results ? fitted.answers_results : fitted.alternates) = true;
        if (ShowsRows(chat, fitted, with_tools, results)) form = fitted;
    }
    return form;
}

// An example call in DeepSeek's format; its templates show calls but no functions.
std::string CallExample(const Chat& chat) {
    if (FamilyOf(chat.source()) != ToolCallFormat::kDeepSeek) return "";
    const auto marker = [](std::string_view words) {
        return fmt::format("<\xEF\xBD\x9Ctool\xE2\x96\x81{}\xEF\xBD\x9C>", words);
    };
    const bool fenced = chat.source().find("```json") != std::string::npos;
    const std::string call =
        fenced ? "function" + marker("sep") +
                     "the function's name\n```json\n{\"an argument\": \"its value\"}\n```"
               : "the function's name" + marker("sep") + "{\"an argument\": \"its value\"}";
    return marker(
               "calls\xE2\x96\x81"
               "begin") +
           marker(
               "call\xE2\x96\x81"
               "begin") +
           call +
           marker(
               "call\xE2\x96\x81"
               "end") +
           marker(
               "calls\xE2\x96\x81"
               "end");
}

// `form`, adjusted so that a system message and the functions are shown.
TemplateCapabilities WithSystem(const Chat& chat, TemplateCapabilities form, bool with_tools) {
    const auto shows = [&](const TemplateCapabilities& tried, bool system, const char* words) {
        return ShowsWords(chat, tried, system, with_tools, words);
    };
    TemplateCapabilities folded = form;
    folded.system_as_user = true;
    if (!shows(form, true, kProbeSystem) && shows(folded, true, kProbeSystem)) form = folded;
    TemplateCapabilities lost = form;
    lost.system_lost = true;
    if (!form.system_as_user && !ShowsSystem(chat, form, with_tools)) {
        if (ShowsSystem(chat, lost, with_tools)) form = lost;
    }
    if (!with_tools || form.function_texts || shows(form, false, kProbeOffer)) return form;
    for (const auto as :
         {TemplateCapabilities::ToolsAs::kSystemMember, TemplateCapabilities::ToolsAs::kWords}) {
        TemplateCapabilities told = form;
        told.tools_as = as;
        if (as == TemplateCapabilities::ToolsAs::kWords && !form.calls_as_words) {
            told.call_example = CallExample(chat);
        }
        if (shows(told, false, kProbeOffer) && shows(told, true, kProbeOffer)) return told;
    }
    return form;
}

// Whether a question with this function renders.
bool TakesFunction(const Chat& chat, const TemplateCapabilities& form, OrderedJson function) {
    ChatInput input = OneQuestion("", "Do it.");
    input.tools = OrderedJson::array({{{"type", "function"}, {"function", std::move(function)}}});
    input.now_s = 1;
    FitConversation(form, input);
    return chat.Render(input, kProbeLimits).ok();
}

// `form`, adjusted so that functions without description or parameters, which APIs allow, are
// accepted.
TemplateCapabilities WithFunctions(const Chat& chat, const TemplateCapabilities& form) {
    OrderedJson bare = Function(), alone = Function();
    bare.erase("description");
    alone["parameters"] = {{"type", "object"}};
    OrderedJson none = bare;
    none.erase("parameters");
    const auto takes = [&](const TemplateCapabilities& tried) {
        return TakesFunction(chat, tried, bare) && TakesFunction(chat, tried, alone) &&
               TakesFunction(chat, tried, none);
    };
    TemplateCapabilities whole = form;
    whole.whole_functions = true;
    return !takes(form) && takes(whole) ? whole : form;
}

// Adds the members that templates access without a check.
void MakeWhole(OrderedJson& function) {
    if (!function.contains("description")) function["description"] = "";
    OrderedJson& parameters = function["parameters"];
    if (!parameters.is_object()) parameters = OrderedJson::object();
    if (!parameters.contains("type")) parameters["type"] = "object";
    if (!parameters.contains("properties")) parameters["properties"] = OrderedJson::object();
}

void EraseNulls(OrderedJson& object, std::initializer_list<const char*> names) {
    for (const char* name : names) {
        const auto found = object.find(name);
        if (found != object.end() && found->is_null()) object.erase(found);
    }
}

void FitFunctions(const TemplateCapabilities& form, OrderedJson& tools) {
    for (OrderedJson& tool : tools) {
        if (!tool.is_object() || !tool.contains("function")) continue;
        OrderedJson& function = tool["function"];
        if (!function.is_object()) continue;
        EraseNulls(function, {"description", "parameters"});
        const auto parameters = function.find("parameters");
        if (parameters != function.end()) EraseNulls(*parameters, {"properties", "required"});
        if (form.whole_functions) MakeWhole(function);
    }
}

// Family whose format is used for calls in plain text.
ToolCallFormat WordsOf(const Chat& chat) {
    const ToolCallFormat family = FamilyOf(chat.source());
    const bool own = family == ToolCallFormat::kGranite || family == ToolCallFormat::kPhi ||
                     family == ToolCallFormat::kLfm2;
    return own ? family : ToolCallFormat::kQwen;
}

}  // namespace

std::string ShortCallId(std::string_view id) {
    if (IsShortId(id)) return std::string(id);
    constexpr std::string_view kAlphanumeric =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    const Sha256Digest digest = Sha256(std::as_bytes(std::span(id)));
    std::string fitted;
    for (size_t i = 0; i < kShortIdCharacters; ++i) {
        const size_t number = static_cast<size_t>(digest[2 * i]) << 8 | digest[2 * i + 1];
        fitted += kAlphanumeric[number % kAlphanumeric.size()];
    }
    return fitted;
}

namespace {

// Finds the form for calls and results.
TemplateCapabilities FindTurnForm(const Chat& chat, bool with_tools) {
    ProbeShape shape{with_tools};
    TemplateCapabilities best = BestForm(chat, shape);
    best.words = WordsOf(chat);
    best = WithResponses(chat, best, shape);
    if (!Try(chat, best, shape).all()) {
        if (const auto peculiar = Peculiar(chat, best, shape)) return *peculiar;
        // The template rejects such turns or omits some of them.
        if (const auto told = InWords(chat, best, shape)) return *told;
        // Check that it renders anything at all.
        const bool takes = chat.Render(OneQuestion("", "Do it."), kProbeLimits).ok();
        best.calls_as_words = best.results_as_words = takes;
        return best;
    }
    best = WithIds(chat, best, shape);
    best = WithText(chat, best, shape);
    if (best.calls_as_words) return best;
    best = WithThought(chat, best, shape);
    if (best.takes_objects) {
        TemplateCapabilities text = best;
        text.takes_objects = false;
        best.takes_text = Try(chat, text, shape).renders;
    }
    shape.calls = 2;
    best.one_call = !Try(chat, best, shape).all();
    return best;
}

}  // namespace

ToolCallFormat FamilyOf(const Chat& chat) {
    ProbeShape shape{true};
    TemplateCapabilities form = BestForm(chat, shape);
    if (!Try(chat, form, shape).all()) form = Peculiar(chat, form, shape).value_or(form);
    std::string text = chat.source();
    // Not every template accepts reasoning beside calls.
    for (const char* thought : {kProbeThought, ""}) {
        shape.thought = thought;
        ChatInput input = Probe(shape);
        FitConversation(form, input);
        const auto rendered = chat.Render(input, kProbeLimits);
        if (!rendered.ok()) continue;
        text += '\n';
        text += rendered->view();
        break;
    }
    const ToolCallFormat family = FamilyOf(text);
    const auto shows = [&](const std::string& words) { return text.find(words) != text.npos; };
    if (family == ToolCallFormat::kQwenCoder && shows(">" + ProbeValue(0))) {
        return ToolCallFormat::kQwenCoderTight;
    }
    if (family == ToolCallFormat::kPlain && shows(fmt::format("[{{\"name\": \"{}\"", kProbeName))) {
        return ToolCallFormat::kJsonList;
    }
    return family;
}

TemplateCapabilities FindCapabilities(const Chat& chat, bool with_tools) {
    TemplateCapabilities form = WithSystem(chat, FindTurnForm(chat, with_tools), with_tools);
    form = WithSystems(chat, std::move(form), with_tools);
    form = WithTurns(chat, std::move(form), with_tools);
    return with_tools ? WithFunctions(chat, form) : form;
}

ToolCallFormat CallFamily(ToolCallFormat family, const TemplateCapabilities& form) {
    const bool told =
        form.tools_as == TemplateCapabilities::ToolsAs::kWords && form.call_example.empty();
    // A model that saw calls as plain text writes them so too, unless its family has a format.
    const bool shown = form.calls_as_words && family == ToolCallFormat::kPlain;
    return told || shown ? ToolCallFormat::kQwen : family;
}

void FitConversation(const TemplateCapabilities& form, ChatInput& input) {
    if (!input.messages.is_array()) return;
    const bool results = !input.messages.empty() && HasRole(input.messages.back(), "tool");
    if (form.one_system || form.late_system_as_user) {
        input.messages = FitSystems(form.one_system, form.late_system_as_user, input.messages);
    }
    FitToolTurns(form, input.messages);
    input.results_in_turn = form.tool_responses;
    const bool tools = input.tools.is_array() && !input.tools.empty();
    if (tools) FitFunctions(form, input.tools);
    if (tools && form.function_texts) {
        AddSystemMember(input, "functions");
    } else if (tools) {
        switch (form.tools_as) {
            case TemplateCapabilities::ToolsAs::kGiven: break;
            case TemplateCapabilities::ToolsAs::kSystemMember:
                AddSystemMember(input, "tools");
                break;
            case TemplateCapabilities::ToolsAs::kWords:
                AddSystemWords(input.messages, ToolsWords(input.tools, form.call_example));
                break;
        }
    }
    if (form.system_as_user || (form.system_lost && results)) SystemAsUser(input.messages);
    if (form.alternates || form.answers_results) {
        input.messages = FitTurns(form.alternates, form.answers_results, input.messages);
    }
}

void FitToolTurns(const TemplateCapabilities& form, OrderedJson& messages) {
    if (!messages.is_array()) return;
    IdFitter ids(form);
    for (OrderedJson& message : messages) {
        if (message.is_object()) FitMessage(form, message, ids);
    }
    messages = InOrderOfCalls(form, messages);
    if (form.text_apart) messages = TextApart(form, messages);
    if (form.tool_responses) ReadResponses(messages);
    if (form.one_call) messages = OneCallEach(form, messages);
    if (form.function_texts) FunctionTexts(messages);
    if (form.metadata_calls) MetadataCalls(messages);
    if (form.calls_as_words) CallsAsWords(messages, form.words);
    if (form.results_as_words) messages = ResultsAsWords(messages);
}

}  // namespace weft::chat
