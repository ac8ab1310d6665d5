// A model's chat template, and conversion of conversations to tokens.
//
// The model's own template is preferred. A model without one gets a template chosen by its
// vocabulary:
//   ChatML   <|im_start|>ROLE\nCONTENT<|im_end|>\n ...               (SmolLM2, Qwen)
//   Llama 3  <|start_header_id|>ROLE<|end_header_id|>\n\nCONTENT<|eot_id|> ...
//   Mistral  [SYSTEM_PROMPT]CONTENT[/SYSTEM_PROMPT][INST]CONTENT[/INST]CONTENT</s> ...
//            (mistral_common's versions 7 to 13, without tools)
//
// Templates expect a message's content as a string, as a list of parts, or either; a content value
// acts as both (chat/template/value.h). Make and Load render probe messages, to find the roles
// whose content the template accepts as a list of parts, and to check that it shows the user's
// text.
//
// Encode lets only text written by the template itself become special tokens. "<|im_end|>" inside a
// message stays text, so a message cannot forge a turn. (User-defined tokens are matched in any
// text, as words, unless they delimit turns.)
//
// Errors: as ChatTemplate; kUnsupported if the model has no template and its vocabulary fits none
// of the templates above, or if its template omits the user's text.
// Thread: a Chat is immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat/template/chat_template.h"
#include "model_files/metadata.h"
#include "tokenizer/tokenizer.h"

namespace weft::chat {

class Chat {
  public:
    // Loads `tokenizer.chat_template`, and if present `tokenizer.chat_template.tool_use` for
    // conversations with tools. If the latter is faulty, only conversations with tools fail
    // (tools_status()), as in transformers. The tokenizer must outlive the Chat.
    static Result<Chat> Load(const model_files::Metadata& meta,
                             const tokenizer::Tokenizer& tokenizer);
    // Makes a Chat from a template's source. Empty source: chooses a template by the vocabulary.
    static Result<Chat> Make(std::string_view chat_template, const tokenizer::Tokenizer& tokenizer);

    // As Make, for conversations of other roles: the template need not show a user's text.
    static Result<Chat> MakeUnfitted(std::string_view chat_template,
                                     const tokenizer::Tokenizer& tokenizer);

    // Renders the whole conversation.
    Result<Text> Render(const ChatInput& input, const RenderLimits& limits = {}) const;
    // Renders and tokenizes, with one bos token in front if the model uses it.
    Result<std::vector<int32_t>> Encode(const ChatInput& input) const;
    // marks: as in EncodeOptions; the first mark is always the beginning of the text.
    std::vector<int32_t> Encode(const Text& text,
                                std::vector<tokenizer::SpecialMark>* marks = nullptr) const;

    const Status& tools_status() const { return tools_status_; }

    // The template's source.
    const std::string& source() const { return plain_.source(); }

  private:
    Chat(ChatTemplate plain, const tokenizer::Tokenizer& tokenizer);
    Status Fit(ChatTemplate& to_fit, bool tools) const;
    Status AddToolTemplate(std::string_view source);

    ChatTemplate plain_;
    std::optional<ChatTemplate> with_tools_;
    Status tools_status_;
    const tokenizer::Tokenizer* tokenizer_;
    // "bos_token" and other special tokens, with their texts
    std::vector<std::pair<std::string, std::string>> tokens_;
};

// A conversation of one user message, after a system message unless `system` is empty.
ChatInput OneQuestion(std::string_view system, std::string_view question);

}  // namespace weft::chat
