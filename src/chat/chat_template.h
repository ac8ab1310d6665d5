// A model's chat template: Jinja, as its author wrote it, parsed once and rendered for each
// conversation as Hugging Face's apply_chat_template renders it (transformers 5: trim_blocks,
// lstrip_blocks, loop controls, tojson without HTML escapes, raise_exception, strftime_now,
// {% generation %}). What of Jinja is there: chat/builtins.h and parser.h.
//
// The rendered Text says which of its bytes came out of the conversation, and of which message, so
// that Chat::Encode (chat/chat.h) takes no word of a message for a marker.
//
// Errors name the template's line. kCorrupt: the template is no Jinja, or computes what can't be
// (an undefined value's attribute, a number plus a text), or is over a limit; kUnsupported: a
// feature that Weft lacks, named; kUsage: the template itself refuses the conversation
// (raise_exception), or the messages are no list of messages.
// Thread: a ChatTemplate never changes; any number of renderings may run at once.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat/meter.h"
#include "chat/text.h"

namespace weft::chat {

using OrderedJson = nlohmann::ordered_json;

// The sizes of the texts that a message's content was given as, in bytes: the client gave a list of
// parts. No template sees it.
inline constexpr const char* kPartsMember = "content_part_bytes";

// The member of a message that says whether training learns it (OpenAI's name for it). No template
// sees it.
inline constexpr const char* kLossMember = "weight";

struct ChatInput {
    // As in the OpenAI API: a list of {"role": ..., "content": text, parts or null, ...}; whatever
    // else a message has (tool_calls, name, reasoning_content, ...) reaches the template as it is,
    // except kLossMember and kPartsMember.
    OrderedJson messages = OrderedJson::array();
    // A list of {"type": "function", "function": {...}}, or null.
    OrderedJson tools;
    // The text ends where the assistant's answer begins.
    bool add_generation_prompt = true;
    // Further variables: "enable_thinking", "documents", "reasoning_effort", ...; an object or
    // null.
    OrderedJson extra;
    // What strftime_now() shows, in seconds since 1970; 0: the clock's time.
    int64_t now_s = 0;
};

class ChatTemplate {
  public:
    // At most 1 MiB of text.
    static Result<ChatTemplate> Parse(std::string_view text);
    ~ChatTemplate();
    ChatTemplate(ChatTemplate&&) noexcept;
    ChatTemplate& operator=(ChatTemplate&&) noexcept;

    // `tokens`: names of special tokens and their texts ("bos_token", "<s>"): trusted, since they
    // are the model's own.
    Result<Text> Render(const ChatInput& input,
                        const std::vector<std::pair<std::string, std::string>>& tokens,
                        const RenderLimits& limits = {}) const;

    // How the template wants what an input may say in two ways.
    struct Takes {
        // Without tools, `tools` is undefined rather than none.
        bool tools_left_out = false;
        // By role: a content that was given as parts (kPartsMember) comes as parts, else as their
        // texts in one. Roles other than these follow the user's.
        bool user_parts = false, assistant_parts = false, system_parts = false, tool_parts = false;
    };
    void SetTakes(const Takes& takes) { takes_ = takes; }
    const Takes& takes() const { return takes_; }

    // The template's source, as it was given.
    const std::string& source() const { return source_; }

  private:
    struct Tree;
    ChatTemplate(std::string source, std::unique_ptr<const Tree> tree);

    std::string source_;
    std::unique_ptr<const Tree> tree_;
    Takes takes_;
};

}  // namespace weft::chat
