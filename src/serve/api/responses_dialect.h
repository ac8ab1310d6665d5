// How an answer is worded by OpenAI's Responses API: a list of items (reasoning, message, function
// calls), and typed events of a stream.
#pragma once

#include <functional>
#include <memory>

#include "serve/api/dialect.h"
#include "serve/api/served.h"

namespace weft::serve {

// head: the members of the response object that say what was asked for ("id", "model", "tools",
// ...); the dialect adds status, output, usage and what goes with them.
using KeepResponse = std::function<void(const Json& response)>;
// keep: gets the response when it is complete, before the client does; may be empty.
std::unique_ptr<Dialect> MakeResponsesDialect(const Served& served, Json head, bool chances,
                                              KeepResponse keep = nullptr);

}  // namespace weft::serve
