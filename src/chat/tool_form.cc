#include "chat/tool_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"

namespace weft::chat {
namespace {

constexpr size_t kShortIdLetters = 9;
// Words that no template has.
constexpr const char* kProbeName = "weft_probe_function";
constexpr const char* kProbeValue = "weft probe argument";
constexpr const char* kProbeResult = "weft probe result";
constexpr const char* kProbeText = "weft probe text";
constexpr const char* kLongId = "call_AbCdEfGhIjKlMnOpQrStUvWx";

OrderedJson Function() {
    return {{"name", kProbeName},
            {"description", "A function."},
            {"parameters",
             {{"type", "object"},
              {"properties", {{"words", {{"type", "string"}, {"description", "Words."}}}}},
              {"required", OrderedJson::array({"words"})}}}};
}

std::string ProbeValue(size_t call) {
    return fmt::format("{} {}.", kProbeValue, call);
}

std::string ProbeResult(size_t call) {
    return fmt::format("{} {}.", kProbeResult, call);
}

// What a made-up conversation has besides one call and its result.
struct ProbeShape {
    bool with_tools = false;
    size_t calls = 1;
    const char* text = "";  // beside the calls
};

// A question, calls, their results.
ChatInput Probe(const ProbeShape& shape) {
    ChatInput input = OneQuestion("", "Do it.");
    OrderedJson message{{"role", "assistant"}, {"content", shape.text}};
    OrderedJson results = OrderedJson::array();
    for (size_t i = 0; i < shape.calls; ++i) {
        const std::string id = kLongId + std::to_string(i);
        OrderedJson function{{"name", kProbeName}, {"arguments", {{"words", ProbeValue(i)}}}};
        message["tool_calls"].push_back(
            {{"id", id}, {"type", "function"}, {"function", std::move(function)}});
        results.push_back({{"role", "tool"},
                           {"tool_call_id", id},
                           {"name", kProbeName},
                           {"content", ProbeResult(i)}});
    }
    input.messages.push_back(std::move(message));
    for (OrderedJson& result : results) input.messages.push_back(std::move(result));
    if (shape.with_tools) {
        input.tools = OrderedJson::array({{{"type", "function"}, {"function", Function()}}});
    }
    input.now_s = 1;
    return input;
}

// What came out of the made-up conversation.
struct Shown {
    bool renders = false;
    bool calls = false, results = false;  // all of them
    bool well = false;                    // calls: not as LooksPrinted has it

    bool all() const { return calls && results; }
    int score() const { return renders ? 4 * calls + 2 * results + (calls && well) : -1; }
};

// Python's print of an object, or JSON within a string of JSON: no model has seen calls so.
bool LooksPrinted(std::string_view text) {
    const auto has = [&](const char* before) {
        return text.find(fmt::format("{}{}", before, kProbeValue)) != text.npos;
    };
    return has("'words': '") || has(R"(\"words\": \")");
}

Shown Try(const Chat& chat, const ToolForm& form, const ProbeShape& shape) {
    ChatInput input = Probe(shape);
    FitToolTurns(form, input.messages);
    const auto text = chat.Render(input);
    if (!text.ok()) return {};
    const std::string_view view = text->view();
    const auto has = [&](std::string_view words) { return view.find(words) != view.npos; };
    Shown shown{true, true, true, !LooksPrinted(view)};
    for (size_t i = 0; i < shape.calls; ++i) {
        shown.calls = shown.calls && has(ProbeValue(i));
        shown.results = shown.results && has(ProbeResult(i));
    }
    return shown;
}

bool IsShortId(std::string_view id) {
    return id.size() == kShortIdLetters && std::ranges::all_of(id, [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
           });
}

bool HasCalls(const OrderedJson& message) {
    const auto calls = message.find("tool_calls");
    return calls != message.end() && calls->is_array() && !calls->empty();
}

bool HasRole(const OrderedJson& message, std::string_view role) {
    const auto found = message.find("role");
    return found != message.end() && found->is_string() &&
           found->get_ref<const std::string&>() == role;
}

std::string ContentText(const OrderedJson& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// As json.dumps() has it, which is what models have seen.
void AppendJson(const OrderedJson& value, std::string& out) {
    const bool object = value.is_object();
    if (!object && !value.is_array()) {
        out += value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
        return;
    }
    out += object ? '{' : '[';
    const char* comma = "";
    for (auto it = value.begin(); it != value.end(); ++it) {
        out += std::exchange(comma, ", ");
        if (object) {
            AppendJson(OrderedJson(it.key()), out);
            out += ": ";
        }
        AppendJson(*it, out);
    }
    out += object ? '}' : ']';
}

void FitArguments(const ToolForm& form, OrderedJson& function) {
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

// Ids of calls and results, in order.
class IdFitter {
  public:
    void Call(OrderedJson& call) {
        std::string id = ContentText(call, "id");
        if (id.empty()) id = fmt::format("call {}", ++made_);
        std::string fitted = ShortCallId(id);
        call["id"] = fitted;
        ++of_[fitted].open;
        order_.push_back(std::move(fitted));
    }
    // One that names no call is that of the first one that has none yet.
    void Result(OrderedJson& message) {
        const std::string id = ContentText(message, "tool_call_id");
        const std::string fitted = id.empty() ? FirstOpen() : ShortCallId(id);
        if (const auto at = of_.find(fitted); at != of_.end() && at->second.open > 0) {
            --at->second.open;
            ++at->second.answered;
        }
        message["tool_call_id"] = fitted;
    }

  private:
    struct Calls {
        size_t open = 0;      // have no result
        size_t answered = 0;  // have one, and stand in order_ still
    };
    std::string FirstOpen() {
        while (!order_.empty()) {
            Calls& calls = of_[order_.front()];
            if (calls.answered == 0) return order_.front();
            --calls.answered;
            order_.pop_front();
        }
        return ShortCallId("none");
    }

    std::unordered_map<std::string, Calls> of_;  // by id
    std::deque<std::string> order_;              // ids of calls
    size_t made_ = 0;
};

void FitMessage(const ToolForm& form, OrderedJson& message, IdFitter& ids) {
    if (form.short_ids && HasRole(message, "tool")) ids.Result(message);
    if (!HasRole(message, "assistant")) return;
    const auto content = message.find("content");
    const bool empty = content == message.end() || content->is_null() || *content == "";
    if (!HasCalls(message)) {
        message.erase("tool_calls");
        if (empty) message["content"] = "";
        return;
    }
    if (empty) message["content"] = form.null_content ? OrderedJson(nullptr) : OrderedJson("");
    for (OrderedJson& call : message["tool_calls"]) {
        if (!call.is_object()) continue;
        if (!call.contains("type")) call["type"] = "function";
        if (form.short_ids) ids.Call(call);
        const auto function = call.find("function");
        if (function != call.end() && function->is_object()) FitArguments(form, *function);
    }
}

// Results of one message's calls: the own one by its id, or else the first that is left.
class Results {
  public:
    explicit Results(std::vector<OrderedJson> results)
        : results_(std::move(results)), taken_(results_.size()) {
        for (size_t i = 0; i < results_.size(); ++i) {
            by_id_[ContentText(results_[i], "tool_call_id")].push_back(i);
        }
    }
    void TakeOf(const std::string& id, OrderedJson& out) {
        if (const auto own = by_id_.find(id); own != by_id_.end() && !id.empty()) {
            std::deque<size_t>& places = own->second;
            while (!places.empty() && taken_[places.front()]) places.pop_front();
            if (!places.empty()) return Take(places.front(), out);
        }
        while (first_ < taken_.size() && taken_[first_]) ++first_;
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
    std::vector<bool> taken_;
    std::unordered_map<std::string, std::deque<size_t>> by_id_;
    size_t first_ = 0;  // all before it are taken
};

// [calls a, b; results a, b] as [call a; result a; call b; result b].
OrderedJson OneCallEach(const ToolForm& form, OrderedJson& messages) {
    OrderedJson fitted = OrderedJson::array();
    for (size_t i = 0; i < messages.size(); ++i) {
        OrderedJson& message = messages[i];
        if (!HasRole(message, "assistant") || !HasCalls(message) ||
            message["tool_calls"].size() == 1) {
            fitted.push_back(std::move(message));
            continue;
        }
        std::vector<OrderedJson> behind;
        while (i + 1 < messages.size() && HasRole(messages[i + 1], "tool")) {
            behind.push_back(std::move(messages[++i]));
        }
        Results results(std::move(behind));
        OrderedJson calls = std::move(message["tool_calls"]);
        for (OrderedJson& call : calls) {
            const std::string id = call.is_object() ? ContentText(call, "id") : "";
            message["tool_calls"] = OrderedJson::array();
            message["tool_calls"].push_back(std::move(call));
            fitted.push_back(std::move(message));
            message = {{"role", "assistant"}, {"content", ""}};  // what was said is said once
            if (form.null_content) message["content"] = nullptr;
            results.TakeOf(id, fitted);
        }
        results.TakeRest(fitted);
    }
    return fitted;
}

// [text and calls] as [text; calls].
OrderedJson TextApart(const ToolForm& form, OrderedJson& messages) {
    OrderedJson fitted = OrderedJson::array();
    for (OrderedJson& message : messages) {
        if (HasRole(message, "assistant") && HasCalls(message) &&
            !ContentText(message, "content").empty()) {
            fitted.push_back(
                {{"role", "assistant"}, {"content", std::exchange(message["content"], "")}});
            if (form.null_content) message["content"] = nullptr;
        }
        fitted.push_back(std::move(message));
    }
    return fitted;
}

// In place: a conversation may have thousands of results in a row.
void AddWords(OrderedJson& message, std::string_view words) {
    OrderedJson& content = message["content"];
    if (!content.is_string()) content = "";
    auto& text = content.get_ref<std::string&>();
    if (!text.empty() && !words.empty()) text += "\n";
    text += words;
}

std::string CallWords(const OrderedJson& calls) {
    std::string words;
    for (const OrderedJson& call : calls) {
        OrderedJson function =
            call.is_object() ? call.value("function", OrderedJson()) : OrderedJson();
        if (!function.is_object()) continue;
        const OrderedJson said{{"name", ContentText(function, "name")},
                               {"arguments", function.value("arguments", OrderedJson::object())}};
        words += words.empty() ? "<tool_call>\n" : "\n<tool_call>\n";
        AppendJson(said, words);
        words += "\n</tool_call>";
    }
    return words;
}

void CallsAsWords(OrderedJson& messages) {
    for (OrderedJson& message : messages) {
        if (!HasRole(message, "assistant") || !HasCalls(message)) continue;
        const std::string words = CallWords(message["tool_calls"]);
        message.erase("tool_calls");
        AddWords(message, words);
    }
}

// Users and the assistant take turns in it: results in a row, and what the user says before or
// behind them, are one message.
OrderedJson ResultsAsWords(OrderedJson& messages) {
    OrderedJson fitted = OrderedJson::array();
    bool behind_result = false;
    for (OrderedJson& message : messages) {
        const bool result = HasRole(message, "tool");
        if (result) {
            std::string words =
                "<tool_response>\n" + ContentText(message, "content") + "\n</tool_response>";
            message = {{"role", "user"}, {"content", std::move(words)}};
        }
        const bool joins = (result || behind_result) && !fitted.empty() &&
                           HasRole(fitted.back(), "user") && HasRole(message, "user");
        if (joins) {
            AddWords(fitted.back(), ContentText(message, "content"));
        } else {
            fitted.push_back(std::move(message));
        }
        behind_result = result;
    }
    return fitted;
}

// The form among those of calls and results as such that shows most.
ToolForm BestForm(const Chat& chat, const ProbeShape& shape) {
    ToolForm best;
    int most = -1;
    for (const bool short_ids : {false, true}) {
        for (const bool null_content : {false, true}) {
            for (const bool objects : {true, false}) {
                const ToolForm form{objects, !objects, null_content, short_ids};
                const int score = Try(chat, form, shape).score();
                if (score <= most) continue;
                best = form;
                most = score;
            }
        }
    }
    return best;
}

// `form`, with calls, results or both told as words, as little as shows them all; nothing where
// that doesn't help.
std::optional<ToolForm> InWords(const Chat& chat, ToolForm form, const ProbeShape& shape) {
    constexpr std::pair<bool, bool> kTold[] = {{true, false}, {false, true}, {true, true}};
    for (const auto& [calls, results] : kTold) {
        ToolForm told = form;
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

// As `form`, and such that calls beside a text are shown, too.
ToolForm WithText(const Chat& chat, const ToolForm& form, ProbeShape shape) {
    shape.text = kProbeText;
    if (Try(chat, form, shape).all()) return form;
    ToolForm apart = form;
    apart.text_apart = true;
    if (Try(chat, apart, shape).all()) return apart;
    return InWords(chat, form, shape).value_or(form);
}

}  // namespace

std::string ShortCallId(std::string_view id) {
    if (IsShortId(id)) return std::string(id);
    constexpr std::string_view kLetters =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    const Sha256Digest digest = Sha256(std::as_bytes(std::span(id)));
    std::string fitted;
    for (size_t i = 0; i < kShortIdLetters; ++i) {
        const size_t number = static_cast<size_t>(digest[2 * i]) << 8 | digest[2 * i + 1];
        fitted += kLetters[number % kLetters.size()];
    }
    return fitted;
}

ToolForm FindToolForm(const Chat& chat, bool with_tools) {
    ProbeShape shape{with_tools};
    ToolForm best = BestForm(chat, shape);
    if (!Try(chat, best, shape).all()) {
        // It refuses such turns or leaves some of them out.
        if (const auto told = InWords(chat, best, shape)) return *told;
        // Does it take anything at all?
        const bool takes = chat.Render(OneQuestion("", "Do it.")).ok();
        best.calls_as_words = best.results_as_words = takes;
        return best;
    }
    best = WithText(chat, best, shape);
    if (best.calls_as_words) return best;
    if (best.takes_objects) {
        ToolForm text = best;
        text.takes_objects = false;
        best.takes_text = Try(chat, text, shape).renders;
    }
    shape.calls = 2;
    best.one_call = !Try(chat, best, shape).all();
    return best;
}

void FitToolTurns(const ToolForm& form, OrderedJson& messages) {
    if (!messages.is_array()) return;
    IdFitter ids;
    for (OrderedJson& message : messages) {
        if (message.is_object()) FitMessage(form, message, ids);
    }
    if (form.text_apart) messages = TextApart(form, messages);
    if (form.one_call) messages = OneCallEach(form, messages);
    if (form.calls_as_words) CallsAsWords(messages);
    if (form.results_as_words) messages = ResultsAsWords(messages);
}

}  // namespace weft::chat
