// Answer format of OpenAI's Responses API: a list of items (reasoning, message, function calls), or
// a stream of typed events.
#pragma once

#include <functional>
#include <memory>

#include "serve/api/dialect.h"
#include "serve/api/served.h"

namespace weft::serve {

// Receives the complete response before the client does.
using KeepResponse = std::function<void(const Json& response)>;
// head: the response object's members that repeat the request ("id", "model", "tools", ...); the
// dialect adds status, output, usage and related members. keep: may be empty.
std::unique_ptr<Dialect> MakeResponsesDialect(const Served& served, Json head, bool logprobs,
                                              KeepResponse keep = nullptr);

}  // namespace weft::serve
