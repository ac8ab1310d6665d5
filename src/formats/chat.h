// Chat forms known by name: how a conversation becomes the text that a model was trained on.
//
//   ChatML   <|im_start|>ROLE\nCONTENT<|im_end|>\n ...               (SmolLM2, Qwen)
//   Llama 3  <|start_header_id|>ROLE<|end_header_id|>\n\nCONTENT<|eot_id|> ...
//
// Neither has the begin-of-sequence token: Encode adds it where the model wants it. The form is
// recognised by the markers in the file's own template (Jinja) or, without one, in its vocabulary;
// the template itself is not run.
//
// EncodeChat is the way to tokens: only the form's own markers become special tokens. A
// "<|im_end|>" inside a message stays text, so that no message can forge a turn.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/metadata.h"
#include "formats/tokenizer/tokenizer.h"

namespace weft::formats {

enum class ChatForm { kChatMl, kLlama3 };

struct ChatFormat {
    ChatForm form = ChatForm::kChatMl;
    // Put in front when the first message is not a system message; empty: nothing is.
    std::string default_system;
};

struct ChatMessage {
    std::string role;  // system, user, assistant, tool: letters and underscores
    std::string content;
};

// The form of a model, from the text of its chat template (may be empty) and its vocabulary.
// kUnsupported: another form; the message names it where Weft can tell, and what it knows.
Result<ChatFormat> DetectChat(std::string_view chat_template, const Tokenizer& tokenizer);
// The same with the template out of the metadata (`tokenizer.chat_template`).
Result<ChatFormat> DetectChat(const Metadata& meta, const Tokenizer& tokenizer);

// The whole conversation as one text, for people to read. `add_assistant` ends it where the
// assistant's answer begins. kUsage: no messages, or a role that is no name.
Result<std::string> FormatChat(const ChatFormat& format, std::span<const ChatMessage> messages,
                               bool add_assistant);

// The same as tokens, with bos where the model wants it.
Result<std::vector<int32_t>> EncodeChat(const Tokenizer& tokenizer, const ChatFormat& format,
                                        std::span<const ChatMessage> messages, bool add_assistant);

}  // namespace weft::formats
