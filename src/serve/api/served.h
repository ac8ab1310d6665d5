// The model that the API serves, with its adapters, as all endpoints use it. Immutable after it is
// made. Without an engine (serve/pool), it describes a model that need not be loaded.
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
#include "chat/pairs.h"
#include "engine/engine.h"
#include "engine/sampling/sampler_defaults.h"
#include "model/hyper.h"
#include "model_files/embedding_head.h"
#include "serve/api/constraint.h"
#include "serve/api/llama/fim.h"
#include "serve/api/model_card.h"

namespace weft::serve {

struct Served {
    engine::Engine* engine = nullptr;
    std::string name;                   // id in /v1/models
    std::vector<std::string> aliases;   // other accepted names
    std::vector<std::string> adapters;  // model names of the adapters; adapter i is adapters[i - 1]
    int64_t created_s = 0;              // Unix time
    int64_t context = 0;                // most tokens of a sequence
    model::Hyper hyper;
    bool generates = true;                // false: embeddings only
    std::optional<chat::Chat> chat;       // nullopt: the model has no usable chat template
    std::string chat_error;               // reason, if `chat` is nullopt
    std::optional<chat::PairForm> pairs;  // of a reranker
    chat::ConversationForms forms;        // message forms that the chat template accepts
    chat::ToolCallFormat family = chat::ToolCallFormat::kPlain;
    chat::CallFrame call_frame;  // frame of forced calls
    std::unique_ptr<Constraints> constraints;
    size_t longest_piece_bytes = 0;   // longest token of the vocabulary
    model_files::EmbeddingHead head;  // of embeddings
    std::string path;                 // of the model, as given to the server
    int64_t slots = 0;                // most sequences that run at once
    std::string slot_folder;          // of saved slots; "": none are saved
    bool speculative = false;         // speculative decoding is on
    FimTokens fim{};
    std::string sampling_by{};  // describes `sampling` and the source of its values
    // Defaults for all APIs: command-line flags, then the model's file, then built-in values.
    engine::SamplerOptions sampling = engine::DefaultSampling();
    // Variables of the chat template for requests that do not set them: an object.
    chat::OrderedJson template_variables = chat::OrderedJson::object();
    int64_t reasoning_budget = -1;  // most tokens of reasoning; -1: no limit
    bool media_as_text = false;     // notes replace images, recordings and files of messages
    ModelCard card;
    bool on_cpu = true;  // no rank computes on a GPU

    const tokenizer::Tokenizer& tokenizer() const { return engine->tokenizer(); }
    int64_t embedding_columns() const { return head.Columns(hyper.hidden); }
    // Upper bound of token ids; the embedding may have more rows than the tokenizer has tokens.
    int64_t id_limit() const {
        return std::max<int64_t>(engine->hyper().vocab, tokenizer().vocab_size());
    }
    // Adapter number for the name `model`; 0: the base model; nullopt: unknown name.
    std::optional<int32_t> AdapterOf(std::string_view model) const;
    std::optional<int32_t> AdapterNamed(std::string_view model) const;  // without Ollama's tag
    // The model name shown in an answer.
    const std::string& NameOf(int32_t adapter) const {
        return adapter == 0 ? name : adapters[static_cast<size_t>(adapter - 1)];
    }
};

}  // namespace weft::serve
