// The answers of llama-server's own endpoints: content, why it stopped, counts and times.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serve/api/dialect.h"
#include "serve/api/served.h"

namespace weft::serve {

struct LlamaAsked {
    std::vector<std::string> fields;  // of the answer; "a/b": b within a. Empty: all
    bool tokens = false;              // ids, too; the request then has logprobs
};

std::unique_ptr<Dialect> MakeLlamaDialect(const Served& served, const engine::Request& request,
                                          LlamaAsked asked);

// temperature, top_k and the others, by llama-server's names.
Json SamplingJson(const engine::SamplerOptions& options);

}  // namespace weft::serve
