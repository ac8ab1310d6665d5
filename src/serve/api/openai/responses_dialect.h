// Answer format of OpenAI's Responses API: a list of items (reasoning, message, calls), or a stream
// of typed events.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "serve/api/dialect.h"
#include "serve/api/openai/response_tools.h"
#include "serve/api/served.h"

namespace weft::serve {

// Receives the complete response before the client does.
using KeepResponse = std::function<void(const Json& response)>;

struct ResponseForm {
    // The response object's members that repeat the request ("id", "model", "tools", ...). The
    // dialect adds status, output, usage and related members.
    Json head;
    ResponseTools tools{};
    bool logprobs = false;
    bool seals_reasoning = false;  // reasoning items have their text as `encrypted_content`, too
    // The answer is a summary of the conversation: the output has a compaction item with it.
    bool compacts = false;
    // With compacts: the items before that item, and the answer is a "response.compaction".
    std::optional<Json> kept{};
    KeepResponse keep{};  // may be empty
};
std::unique_ptr<Dialect> MakeResponsesDialect(const Served& served, ResponseForm form);

// OpenAI's error body, with the text of this API for a prompt beyond the context.
std::string ResponsesError(const ApiError& error);

// The id of output item `index` of a response, so that the item can be found by it: the response's
// id with another prefix ("msg_") and the index.
std::string OutputItemId(std::string_view prefix, const std::string& response, size_t index);

}  // namespace weft::serve
