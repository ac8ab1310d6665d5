// How an answer is worded by Ollama's API: JSON lines, the last one with "done" true, why it ended
// and what it took.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "serve/api/dialect.h"
#include "serve/api/served.h"

namespace weft::serve {

struct OllamaWords {
    bool chat = true;      // /api/chat: "message"; else /api/generate: "response"
    std::string model{};   // as the request names it
    bool chances = false;  // log-probabilities are wanted
    int64_t begin_ns = 0;  // NowNs() when the request was read
    // /api/generate: the prompt's tokens, which "context" begins with; none: there is no "context".
    std::vector<int32_t> context{};
};

std::unique_ptr<Dialect> MakeOllamaDialect(const Served& served, OllamaWords words);

// The answer to a request that asks for nothing but the model to be there: "load" or "unload".
std::string OllamaNothing(const OllamaWords& words, const char* reason);

}  // namespace weft::serve
