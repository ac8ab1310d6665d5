// How a model is talked to: its chat template, and the way from a conversation to tokens.
//
// A model's own template wins. A file without one gets a form by its vocabulary:
//   ChatML   <|im_start|>ROLE\nCONTENT<|im_end|>\n ...               (SmolLM2, Qwen)
//   Llama 3  <|start_header_id|>ROLE<|end_header_id|>\n\nCONTENT<|eot_id|> ...
//
// Templates differ in the form of content that they take: a string, a list of parts, or both. A
// content is both to them (chat/value.h). Make and Load render probe messages to see which roles'
// contents may also come in the parts that the client gave, and that the user's words are shown.
//
// Encode is the way to tokens: only what the template itself wrote can become a special token. A
// "<|im_end|>" inside a message stays text, so that no message can forge a turn. (User-defined
// tokens are found in any text: they are words, or, where they begin or end turns, control tokens.)
//
// Errors: those of ChatTemplate, and kUnsupported for a model that has neither and for a template
// that leaves out what the user says.
// Thread: a Chat never changes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat/chat_template.h"
#include "model_files/metadata.h"
#include "tokenizer/tokenizer.h"

namespace weft::chat {

class Chat {
  public:
    // From a model's metadata: `tokenizer.chat_template`, and `tokenizer.chat_template.tool_use`
    // for conversations with tools, where there is one. The tokenizer must outlive the Chat.
    static Result<Chat> Load(const model_files::Metadata& meta,
                             const tokenizer::Tokenizer& tokenizer);
    // From a template's text; empty: a form by the vocabulary.
    static Result<Chat> Make(std::string_view chat_template, const tokenizer::Tokenizer& tokenizer);

    // The whole conversation as one text.
    Result<Text> Render(const ChatInput& input, const RenderLimits& limits = {}) const;
    // The same as tokens, with one bos in front where the model wants it.
    Result<std::vector<int32_t>> Encode(const ChatInput& input) const;
    // marks: as EncodeOptions has them; the first one is the begin of the text, whatever stands
    // there.
    std::vector<int32_t> Encode(const Text& text,
                                std::vector<tokenizer::SpecialMark>* marks = nullptr) const;

    // The template's source.
    const std::string& source() const { return plain_.source(); }

  private:
    Chat(ChatTemplate plain, const tokenizer::Tokenizer& tokenizer);
    Status Fit(ChatTemplate& to_fit, bool tools) const;

    ChatTemplate plain_;
    std::optional<ChatTemplate> with_tools_;
    const tokenizer::Tokenizer* tokenizer_;
    std::vector<std::pair<std::string, std::string>> tokens_;  // "bos_token" and its like
};

// A conversation of at most one system and one user message. An empty system: none.
ChatInput OneQuestion(std::string_view system, std::string_view question);

}  // namespace weft::chat
