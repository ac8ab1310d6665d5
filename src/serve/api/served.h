// What the API serves: one model and its adapters, as all endpoints see them. Made once, never
// changes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "chat/answer.h"
#include "chat/call_frame.h"
#include "chat/chat.h"
#include "chat/conversation.h"
#include "engine/engine.h"
#include "engine/sampler_defaults.h"
#include "serve/api/constraint.h"
#include "serve/api/fim.h"
#include "serve/api/model_card.h"

namespace weft::serve {

struct Served {
    engine::Engine* engine = nullptr;
    std::string name;                   // its id in /v1/models
    std::vector<std::string> aliases;   // other names that clients may use for it
    std::vector<std::string> adapters;  // by number, from 1: names of the model with an adapter
    int64_t created_s = 0;              // Unix time
    std::optional<chat::Chat> chat;     // none: the model has no chat template
    std::string chat_error;             // why not
    chat::ConversationForms forms;      // that the chat template takes
    chat::AnswerFamily family = chat::AnswerFamily::kPlain;
    chat::CallFrame call_frame;  // of calls that are demanded
    std::unique_ptr<Constraints> constraints;
    size_t longest_piece_bytes = 0;                    // of the vocabulary
    engine::Pooling pooling = engine::Pooling::kLast;  // of embeddings
    std::string path;                                  // of the model, as the server was given it
    int64_t slots = 0;                                 // most sequences that run at once
    bool speculative = false;                          // it drafts
    FimTokens fim{};
    std::string sampling_by{};  // `sampling` in words, and where its values come from
    // For what a request leaves out, in every API: flags, then the model's file, then the default.
    engine::SamplerOptions sampling = engine::DefaultSampling();
    ModelCard card;
    bool on_cpu = true;  // no rank computes on a GPU

    const tokenizer::Tokenizer& tokenizer() const { return engine->tokenizer(); }
    // Ids are below it: an embedding may have more rows than the tokenizer has tokens.
    int64_t id_limit() const {
        return std::max<int64_t>(engine->hyper().vocab, tokenizer().vocab_size());
    }
    // The adapter that a request for `model` uses, 0: none. Nothing: no such name.
    std::optional<int32_t> AdapterOf(std::string_view model) const;
    std::optional<int32_t> AdapterNamed(std::string_view model) const;  // without a tag
    // What an answer says it comes from.
    const std::string& NameOf(int32_t adapter) const {
        return adapter == 0 ? name : adapters[static_cast<size_t>(adapter - 1)];
    }
};

}  // namespace weft::serve
