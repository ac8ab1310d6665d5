// A model's chat template: Jinja source, parsed once and rendered per conversation like Hugging
// Face's apply_chat_template (transformers 5: trim_blocks, lstrip_blocks, loop controls, tojson
// without HTML escapes, raise_exception, strftime_now, {% generation %}). Supported Jinja:
// chat/template/builtins.h and parser.h.
//
// The rendered Text records for each byte whether the byte came from the template or from a
// message, and from which message. Chat::Encode (chat/chat.h) uses this to keep a message's text
// from becoming a special token.
//
// Errors name the template's line. kCorrupt: invalid Jinja, an invalid computation (an attribute of
// undefined, a number plus a string), or a limit exceeded. kUnsupported: names a feature that Weft
// lacks. kUsage: the template rejects the conversation (raise_exception), or the messages are
// malformed.
// Thread: a ChatTemplate is immutable; renderings may run concurrently.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat/template/meter.h"
#include "chat/text.h"

namespace weft::chat {

using OrderedJson = nlohmann::ordered_json;

// Message member: sizes in bytes of the text parts that the client gave as a list. Hidden from
// templates.
inline constexpr const char* kPartsMember = "content_part_bytes";

// Message member: results, in the form of Gemma 4's first template. Its text counts as other words,
// not as the message's own.
inline constexpr const char* kResponsesMember = "tool_responses";
// Member of a result for kResponsesMember: its content as JSON. Absent: the content is the
// response.
inline constexpr const char* kResponseMember = "response";

// Message members that hold reasoning; templates get it under the first two names.
inline constexpr const char* kReasoningMembers[] = {"reasoning_content", "thinking", "reasoning"};

// Message member (OpenAI's name): whether training learns the message. Hidden from templates.
inline constexpr const char* kLossMember = "weight";

struct ChatInput {
    // As in the OpenAI API: a list of {"role": ..., "content": text, parts or null, ...}. Other
    // members (tool_calls, name, reasoning_content, ...) reach the template unchanged, except
    // kLossMember and kPartsMember.
    OrderedJson messages = OrderedJson::array();
    // A list of {"type": "function", "function": {...}}, or null.
    OrderedJson tools;
    // A message with calls, the results that follow it and the answer to them reach the template as
    // one message (TemplateCapabilities::tool_responses). The list keeps the parts separate, so
    // each part has its own source.
    bool results_in_turn = false;
    // End the prompt with the start of the assistant's turn.
    bool add_generation_prompt = true;
    // More variables ("enable_thinking", "documents", "reasoning_effort", ...): an object or null.
    OrderedJson extra;
    // Time for strftime_now(), in seconds since 1970; 0: the current time.
    int64_t now_s = 0;
};

class ChatTemplate {
  public:
    // The source may have at most 1 MiB.
    static Result<ChatTemplate> Parse(std::string_view text);
    ~ChatTemplate();
    ChatTemplate(ChatTemplate&&) noexcept;
    ChatTemplate& operator=(ChatTemplate&&) noexcept;

    // `tokens`: names and texts of special tokens ("bos_token", "<s>"). They are trusted, since
    // they come from the model.
    Result<Text> Render(const ChatInput& input,
                        const std::vector<std::pair<std::string, std::string>>& tokens,
                        const RenderLimits& limits = {}) const;

    // Options for inputs that templates expect in different forms.
    struct Takes {
        // If there are no tools, `tools` is undefined instead of none.
        bool tools_left_out = false;
        // Per role: whether content that the client gave as parts (kPartsMember) reaches the
        // template as parts. If false, the parts reach it as one joined string. Other roles follow
        // user_parts.
        bool user_parts = false, assistant_parts = false, system_parts = false, tool_parts = false;
    };
    void SetTakes(const Takes& takes) { takes_ = takes; }
    const Takes& takes() const { return takes_; }

    // The template's source.
    const std::string& source() const { return source_; }

  private:
    struct Tree;
    ChatTemplate(std::string source, std::unique_ptr<const Tree> tree);

    std::string source_;
    std::unique_ptr<const Tree> tree_;
    Takes takes_;
};

}  // namespace weft::chat
