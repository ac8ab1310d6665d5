// What the API serves: one model, as all endpoints see it. Made once, never changes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/batch/batch_engine.h"
#include "formats/chat/answer.h"
#include "formats/chat/chat.h"
#include "serve/api/constraint.h"

namespace weft::serve {

struct Served {
    engine::BatchEngine* engine = nullptr;
    std::string name;                   // its id in /v1/models
    std::vector<std::string> aliases;   // other names that clients may use for it
    int64_t created_s = 0;              // Unix time
    std::optional<formats::Chat> chat;  // none: the model has no chat template
    std::string chat_error;             // why not
    formats::AnswerFamily family = formats::AnswerFamily::kPlain;
    std::unique_ptr<Constraints> constraints;
    size_t longest_piece_bytes = 0;                    // of the vocabulary
    engine::Pooling pooling = engine::Pooling::kLast;  // of embeddings

    const formats::Tokenizer& tokenizer() const { return engine->tokenizer(); }
    bool Knows(std::string_view model) const;
};

}  // namespace weft::serve
