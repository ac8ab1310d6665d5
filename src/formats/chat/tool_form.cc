#include "formats/chat/tool_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/hash.h"

namespace weft::formats {
namespace {

constexpr size_t kShortIdLetters = 9;
// Words that no template has.
constexpr const char* kProbeName = "weft_probe_function";
constexpr const char* kProbeValue = "weft probe argument";
constexpr const char* kProbeResult = "weft probe result";
constexpr const char* kLongId = "call_AbCdEfGhIjKlMnOpQrStUvWx";
constexpr const char* kShortIds[] = {"aBcDeFgH1", "aBcDeFgH2"};

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

// A question, `calls` calls, their results.
ChatInput Probe(const ToolForm& form, bool with_tools, size_t calls) {
    ChatInput input = OneQuestion("", "Do it.");
    OrderedJson message{{"role", "assistant"}, {"content", ""}};
    if (form.null_content) message["content"] = nullptr;
    OrderedJson results = OrderedJson::array();
    for (size_t i = 0; i < calls; ++i) {
        const OrderedJson arguments{{"words", ProbeValue(i)}};
        const std::string id = form.short_ids ? kShortIds[i] : kLongId + std::to_string(i);
        OrderedJson function{{"name", kProbeName}, {"arguments", arguments}};
        if (!form.takes_objects) function["arguments"] = arguments.dump();
        message["tool_calls"].push_back(
            {{"id", id}, {"type", "function"}, {"function", std::move(function)}});
        results.push_back({{"role", "tool"},
                           {"tool_call_id", id},
                           {"name", kProbeName},
                           {"content", kProbeResult}});
    }
    input.messages.push_back(std::move(message));
    for (OrderedJson& result : results) input.messages.push_back(std::move(result));
    if (with_tools) {
        input.tools = OrderedJson::array({{{"type", "function"}, {"function", Function()}}});
    }
    input.now_s = 1;
    return input;
}

// How much of the made-up turns came out, the last call and the results; -1: the template refuses
// them.
int Shown(const Chat& chat, const ToolForm& form, bool with_tools, size_t calls = 1) {
    const auto text = chat.Render(Probe(form, with_tools, calls));
    if (!text.ok()) return -1;
    const auto has = [&](std::string_view word) { return text->view().find(word) != word.npos; };
    return 2 * (has(ProbeValue(calls - 1)) ? 1 : 0) + (has(kProbeResult) ? 1 : 0);
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

bool IsRole(const OrderedJson& message, std::string_view role) {
    const auto found = message.find("role");
    return found != message.end() && found->is_string() &&
           found->get_ref<const std::string&>() == role;
}

std::string TextOf(const OrderedJson& object, const char* name) {
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
        std::string id = TextOf(call, "id");
        if (id.empty()) id = fmt::format("call {}", ++made_);
        call["id"] = ShortCallId(id);
        open_.push_back(ShortCallId(id));
    }
    // One that names no call is that of the first one that has none yet.
    void Result(OrderedJson& message) {
        const std::string id = TextOf(message, "tool_call_id");
        const std::string fitted = !id.empty()      ? ShortCallId(id)
                                   : !open_.empty() ? open_.front()
                                                    : ShortCallId("none");
        message["tool_call_id"] = fitted;
        if (const auto at = std::ranges::find(open_, fitted); at != open_.end()) open_.erase(at);
    }

  private:
    std::vector<std::string> open_;  // ids of calls without a result
    size_t made_ = 0;
};

void FitMessage(const ToolForm& form, OrderedJson& message, IdFitter& ids) {
    if (form.short_ids && IsRole(message, "tool")) ids.Result(message);
    if (!IsRole(message, "assistant")) return;
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

// [calls a, b; results a, b] as [call a; result a; call b; result b].
OrderedJson OneCallEach(const ToolForm& form, OrderedJson& messages) {
    OrderedJson fitted = OrderedJson::array();
    for (size_t i = 0; i < messages.size(); ++i) {
        OrderedJson& message = messages[i];
        if (!IsRole(message, "assistant") || !HasCalls(message) ||
            message["tool_calls"].size() == 1) {
            fitted.push_back(std::move(message));
            continue;
        }
        std::vector<OrderedJson> results;
        while (i + 1 < messages.size() && IsRole(messages[i + 1], "tool")) {
            results.push_back(std::move(messages[++i]));
        }
        const OrderedJson calls = std::move(message["tool_calls"]);
        for (const OrderedJson& call : calls) {
            message["tool_calls"] = OrderedJson::array({call});
            fitted.push_back(message);
            message = {{"role", "assistant"}, {"content", ""}};  // what was said is said once
            if (form.null_content) message["content"] = nullptr;
            const std::string id = call.is_object() ? TextOf(call, "id") : "";
            const auto own = std::ranges::find_if(results, [&](const OrderedJson& result) {
                return !id.empty() && TextOf(result, "tool_call_id") == id;
            });
            const auto next = own != results.end() ? own : results.begin();
            if (next == results.end()) continue;
            fitted.push_back(std::move(*next));
            results.erase(next);
        }
        for (OrderedJson& result : results) fitted.push_back(std::move(result));
    }
    return fitted;
}

void AddWords(OrderedJson& message, const std::string& words) {
    std::string text = TextOf(message, "content");
    if (!text.empty() && !words.empty()) text += "\n";
    message["content"] = text + words;
}

std::string CallWords(const OrderedJson& calls) {
    std::string words;
    for (const OrderedJson& call : calls) {
        OrderedJson function =
            call.is_object() ? call.value("function", OrderedJson()) : OrderedJson();
        if (!function.is_object()) continue;
        const OrderedJson said{{"name", TextOf(function, "name")},
                               {"arguments", function.value("arguments", OrderedJson::object())}};
        words += words.empty() ? "<tool_call>\n" : "\n<tool_call>\n";
        AppendJson(said, words);
        words += "\n</tool_call>";
    }
    return words;
}

// Users and the assistant take turns in it.
OrderedJson AsWords(OrderedJson& messages) {
    OrderedJson fitted = OrderedJson::array();
    for (OrderedJson& message : messages) {
        bool told = false;  // by a message that was none of the user's
        if (IsRole(message, "tool")) {
            const std::string words =
                "<tool_response>\n" + TextOf(message, "content") + "\n</tool_response>";
            message = {{"role", "user"}, {"content", words}};
            told = true;
        } else if (IsRole(message, "assistant") && HasCalls(message)) {
            const std::string words = CallWords(message["tool_calls"]);
            message.erase("tool_calls");
            AddWords(message, words);
        }
        const bool behind_results =
            !fitted.empty() && IsRole(fitted.back(), "user") && IsRole(message, "user") &&
            (told || TextOf(fitted.back(), "content").ends_with("</tool_response>"));
        if (behind_results) {
            AddWords(fitted.back(), TextOf(message, "content"));
        } else {
            fitted.push_back(std::move(message));
        }
    }
    return fitted;
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
    ToolForm best;
    int most = -1;
    for (const bool short_ids : {false, true}) {
        for (const bool null_content : {false, true}) {
            for (const bool objects : {true, false}) {
                const ToolForm form{objects, !objects, null_content, short_ids};
                const int shown = Shown(chat, form, with_tools);
                if (shown <= most) continue;
                best = form;
                most = shown;
            }
        }
    }
    if (most <= 0) {
        // It refuses such turns or leaves them out. Does it take anything at all?
        best.as_words = chat.Render(OneQuestion("", "Do it.")).ok();
        return best;
    }
    if (best.takes_objects) {
        ToolForm text = best;
        text.takes_objects = false;
        best.takes_text = Shown(chat, text, with_tools) >= 0;
    }
    best.one_call = Shown(chat, best, with_tools, 2) < most;
    return best;
}

void FitToolTurns(const ToolForm& form, OrderedJson& messages) {
    if (!messages.is_array()) return;
    IdFitter ids;
    for (OrderedJson& message : messages) {
        if (message.is_object()) FitMessage(form, message, ids);
    }
    if (form.one_call) messages = OneCallEach(form, messages);
    if (form.as_words) messages = AsWords(messages);
}

}  // namespace weft::formats
