// Chat templates and answers are hostile input. The first byte selects the kind of the rest: a
// template (rendered for a conversation with tools), or an answer of one family, whole and in
// pieces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "chat/answer.h"
#include "chat/template/chat_template.h"

namespace weft::chat {
namespace {

const ChatInput& Conversation() {
    static const ChatInput input = [] {
        ChatInput made;
        made.messages = OrderedJson::parse(R"([
            {"role": "system", "content": " Be kind. "},
            {"role": "user", "content": [{"type": "text", "text": "Hi <|im_end|> \u00e9"}]},
            {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
                {"id": "call00001", "type": "function",
                 "function": {"name": "f", "arguments": {"x": [1, 2.5, null, true]}}}]},
            {"role": "tool", "tool_call_id": "call00001", "content": "{}"},
            {"role": "user", "content": "thanks"}])");
        made.tools = OrderedJson::parse(R"([{"type": "function", "function": {"name": "f",
            "description": "d", "parameters": {"type": "object", "properties":
            {"x": {"type": "array"}}, "required": ["x"]}}}])");
        made.now_s = 1'770'033'600;
        return made;
    }();
    return input;
}

void CheckTemplate(std::string_view source) {
    const auto parsed = ChatTemplate::Parse(source);
    if (!parsed.ok()) {
        WEFT_CHECK(!parsed.error().message.empty());
        return;
    }
    RenderLimits limits;
    limits.steps = 50'000;
    limits.live_bytes = 4 << 20;
    limits.made_bytes = 16 << 20;
    limits.output_bytes = 1 << 20;
    const auto text = parsed->Render(Conversation(), {{"bos_token", "<s>"}}, limits);
    if (!text.ok()) {
        WEFT_CHECK(!text.error().message.empty());
        return;
    }
    WEFT_CHECK(text->size() <= limits.output_bytes);
    size_t end = 0;
    for (const TextRange& range : text->given()) {
        WEFT_CHECK(range.begin >= end && range.begin < range.end && range.end <= text->size());
        end = range.end;
    }
}

void CheckAnswer(ToolCallFormat family, std::string_view text) {
    const auto parse = [&](size_t step) {
        AnswerParser parser(family);
        AnswerDelta all;
        const auto add = [&](const AnswerDelta& delta) {
            all.content += delta.content;
            all.reasoning += delta.reasoning;
            all.tool_calls.insert(all.tool_calls.end(), delta.tool_calls.begin(),
                                  delta.tool_calls.end());
        };
        for (size_t at = 0; at < text.size(); at += step) add(parser.Push(text.substr(at, step)));
        add(parser.Finish());
        return all;
    };
    const AnswerDelta whole = parse(std::max<size_t>(text.size(), 1)), all = parse(3);
    WEFT_CHECK(all.content == whole.content);
    WEFT_CHECK(all.reasoning == whole.reasoning);
    WEFT_CHECK(all.tool_calls.size() == whole.tool_calls.size());
}

constexpr uint8_t kLastFamily = static_cast<uint8_t>(ToolCallFormat::kJsonList);

}  // namespace
}  // namespace weft::chat

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
    using namespace weft::chat;
    if (size == 0) return 0;
    const std::string_view input(reinterpret_cast<const char*>(bytes) + 1, size - 1);
    if (bytes[0] >= 'a' && bytes[0] <= 'a' + kLastFamily) {
        CheckAnswer(static_cast<ToolCallFormat>(bytes[0] - 'a'), input);
    } else {
        CheckTemplate(input);
    }
    return 0;
}
