#include "chat/continuation.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "chat/answer_calls.h"
#include "chat/tool_words.h"

namespace weft::chat {
namespace {

constexpr const char* kReasoning = kReasoningMembers[0];
constexpr std::string_view kProbe = "continuedhere";
// Text that begins no call in any format.
constexpr std::string_view kAnyText = "x x";

// Gives the message's reasoning the name kReasoning.
void NameReasoning(OrderedJson& message) {
    std::string reasoning;
    for (const char* name : kReasoningMembers) {
        if (reasoning.empty()) reasoning = TextMember(message, name);
        message.erase(name);
    }
    if (!reasoning.empty()) message[kReasoning] = reasoning;
}

// Makes a text of content that FitConversation divided into a reasoning, which NameReasoning has
// read, and a text. Returns whether it did.
bool JoinParts(OrderedJson& message) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) return false;
    std::string text;
    for (const OrderedJson& part : *content) text += TextMember(part, "text");
    *content = std::move(text);
    return true;
}

// The content that JoinParts has joined.
OrderedJson PartsOf(const OrderedJson& message) {
    OrderedJson parts = OrderedJson::array();
    for (const auto& [type, member, name] :
         {std::tuple("thinking", kReasoning, "thinking"), std::tuple("text", "content", "text")}) {
        const std::string text = TextMember(message, member);
        if (!text.empty()) parts.push_back({{"type", type}, {name, text}});
    }
    return parts;
}

// Moves a reasoning at the beginning of the content to its own member. Returns its text with
// markers if it has ended; else "".
std::string SplitReasoning(OrderedJson& message, ToolCallFormat family) {
    const std::string content = TextMember(message, "content");
    const std::string_view begin = ThinkBegin(family), end = ThinkEnd(family);
    std::string_view text = TrimBlanks(content);
    if (begin.empty() || !text.starts_with(begin) || !TextMember(message, kReasoning).empty()) {
        return "";
    }
    text = std::string_view(content).substr(content.find(begin) + begin.size());
    const auto without_breaks = [](std::string_view rest) {
        return rest.substr(std::min(rest.find_first_not_of("\r\n"), rest.size()));
    };
    text = without_breaks(text);
    const size_t at = text.find(end);
    message[kReasoning] = std::string(text.substr(0, at));
    message["content"] =
        at == text.npos ? "" : std::string(without_breaks(text.substr(at + end.size())));
    message.erase(kPartsMember);
    if (at == text.npos) return "";
    return content.substr(0, content.size() - TextMember(message, "content").size());
}

// Offset of the probe that the template copied from the last message.
std::optional<size_t> FindProbe(const Text& text, size_t messages) {
    const auto source = static_cast<uint32_t>(kMessageWords + messages - 1);
    for (size_t at = text.view().rfind(kProbe); at != std::string_view::npos && at > 0;
         at = text.view().rfind(kProbe, at - 1)) {
        if (text.SourceAt(at) == source) return at;
    }
    return {};
}

}  // namespace

bool HasWords(const OrderedJson& message) {
    const auto has = [&](const char* name) { return !TextMember(message, name).empty(); };
    return has("content") || std::ranges::any_of(kReasoningMembers, has);
}

std::string ClosedThought(ToolCallFormat family) {
    return "\n" + std::string(ThinkEnd(family)) + "\n\n";
}

Result<ContinuedPrompt> RenderContinued(const Chat& chat, ChatInput input, ToolCallFormat family,
                                        ContinuedPart part) {
    OrderedJson& last = input.messages.back();
    NameReasoning(last);
    const bool in_parts = JoinParts(last);
    const std::string ended = SplitReasoning(last, family);
    const bool only_reasoning = ended.empty() && TextMember(last, "content").empty();
    const bool reasons =
        part == ContinuedPart::kReasoning || (part == ContinuedPart::kLast && only_reasoning);
    const char* const member = reasons ? kReasoning : "content";
    const std::string words = TextMember(last, member);
    const size_t messages = input.messages.size();
    const auto source = static_cast<uint32_t>(kMessageWords + messages - 1);
    if (reasons) last["content"] = "";
    last[member] = kProbe;
    if (in_parts) last["content"] = PartsOf(last);
    last.erase(kPartsMember);
    input.add_generation_prompt = false;
    const auto probed = chat.Render(input);
    input.messages.erase(messages - 1);
    input.add_generation_prompt = true;
    const auto fresh = chat.Render(input);  // as for a new turn
    const std::optional<size_t> at = probed.ok() ? FindProbe(*probed, messages) : std::nullopt;
    if (!at && !fresh.ok()) return probed.ok() ? fresh.error() : probed.error();
    ContinuedPrompt prompt;
    if (at) prompt.text = probed->Cut(0, *at);
    const bool extends = at && fresh.ok() && prompt.text.view().starts_with(fresh->view());
    const bool opens = fresh.ok() && EndsInReasoning(fresh->view());
    // If the template opens the reasoning of a new answer, but shows no reasoning of former
    // answers, the content follows an empty reasoning.
    if (at && (extends || !opens)) {
        if (extends) prompt.begun = prompt.text.view().substr(fresh->size());
        // Templates leave an empty reasoning out.
        if (!ended.empty() && !TrimBlanks(prompt.text.view()).ends_with(ThinkEnd(family))) {
            prompt.text.Append(ended, 0);
            prompt.begun += ended;
        }
        prompt.in_reasoning = EndsInReasoning(prompt.text.view());
        // The parser begins outside the reasoning that the template opened.
        if (extends && opens && !prompt.in_reasoning) {
            prompt.begun.insert(0, ThinkBegin(family));
        }
    } else {
        prompt.text = *fresh;
        if (opens && !reasons) prompt.begun = ClosedThought(family);
        if (!opens && reasons) prompt.begun = std::string(ThinkBegin(family)) + "\n";
        prompt.text.Append(prompt.begun, 0);
        prompt.in_reasoning = reasons;
    }
    prompt.text.Append(words, source);
    if (!words.empty()) prompt.begun += kAnyText;
    prompt.words = words;
    return prompt;
}

}  // namespace weft::chat
