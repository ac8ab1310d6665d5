// Answer format of llama-server's own endpoints: content, stop reason, counts and timings.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serve/api/dialect.h"
#include "serve/api/served.h"

namespace weft::serve {

struct LlamaRequested {
    std::vector<std::string> fields;  // answer fields to return; "a/b": b within a. Empty: all
    bool tokens = false;              // also return token ids; the request then has logprobs
};

std::unique_ptr<Dialect> MakeLlamaDialect(const Served& served, const engine::Request& request,
                                          LlamaRequested asked);

// llama-server's error body. It equals OpenAI's error body, except for a prompt beyond the context.
std::string LlamaError(const ApiError& error);

// Counts, times and speeds, as in llama-server's `timings`.
Json TimingsJson(const Usage& usage);
// llama-server's "prompt_progress".
Json PromptProgressJson(const PromptProgress& progress);

// Sampling options under llama-server's names (temperature, top_k, ...).
Json SamplingJson(const engine::SamplerOptions& options);

}  // namespace weft::serve
