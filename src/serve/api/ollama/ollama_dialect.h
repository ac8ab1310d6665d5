// Answer format of Ollama's API: JSON lines. The last line has "done": true, the stop reason and
// the timings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "serve/api/dialect.h"
#include "serve/api/served.h"

namespace weft::serve {

struct OllamaOptions {
    bool chat = true;       // /api/chat, with "message"; else /api/generate, with "response"
    std::string model{};    // as the request wrote it
    bool logprobs = false;  // log-probabilities were requested
    int64_t begin_ns = 0;   // NowNs() when the request was read
    // /api/generate: the prompt's tokens, which begin "context"; empty: no "context".
    std::vector<int32_t> context{};
};

std::unique_ptr<Dialect> MakeOllamaDialect(const Served& served, OllamaOptions words);

// Answer to a request that only loads or unloads the model. reason: "load" or "unload".
std::string OllamaNothing(const OllamaOptions& words, const char* reason);
// A line of a stream, without text.
std::string OllamaWaiting(const OllamaOptions& words);

}  // namespace weft::serve
