// The prompt of a query and a document, as a reranker reads it. The form is the first of these that
// the model has:
//
//   `tokenizer.chat_template.rerank` of a GGUF file, with {query} and {document} (llama.cpp);
//   a chat template that shows messages of the roles "query" and "document"
//   (sentence-transformers); for a language model that answers yes or no: the prompt of
//   Qwen3-Reranker, if it has ChatML's markers; for other models: the two texts with the
//   tokenizer's special tokens.
//
// In the model's own format, text of the query and the document never becomes a special token.
// Thread: immutable.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/chat.h"

namespace weft::chat {

class PairForm {
  public:
    // answers: the model is a language model. messages: its chat template may be used. The
    // tokenizer must outlive the form.
    // Errors: kUnsupported (a language model without such a format), and as ChatTemplate.
    static Result<PairForm> Load(const model_files::Metadata& meta,
                                 const tokenizer::Tokenizer& tokenizer, bool answers,
                                 bool messages);

    // most: of the ids; longer texts are cut (only the two texts alone); 0: no limit.
    // prompt: an instruction: a system message, or text before the query; may be empty.
    // markers: the texts of special tokens become tokens (only if plain()).
    Result<tokenizer::Tokenizer::Pair> Encode(std::string_view query, std::string_view document,
                                              std::string_view prompt, int64_t most,
                                              bool markers = false) const;
    // Whether the prompt is the two texts alone. Only then does Encode obey `most` and `markers`.
    bool plain() const { return !chat_ && slots_.empty(); }

  private:
    explicit PairForm(const tokenizer::Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
    std::vector<int32_t> Fill(std::string_view query, std::string_view document,
                              std::string_view instruction) const;

    const tokenizer::Tokenizer* tokenizer_;
    std::optional<Chat> chat_;
    std::string slots_;
};

}  // namespace weft::chat
