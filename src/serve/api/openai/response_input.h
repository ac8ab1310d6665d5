// Input items of the Responses API as messages for the chat template. The API has separate items
// for reasoning, calls and their results; templates expect them in the assistant's message and in
// tool messages.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "serve/api/fields.h"
#include "serve/api/openai/response_tools.h"

namespace weft::serve {

// Limit of the memory of all items to which a request refers (HeldBytes), and of the responses that
// are read to find them.
inline constexpr int64_t kMostReferredBytes = int64_t{128} << 20;

// Settings that the items of a request make, besides its messages and tools.
struct ResponseInput {
    bool compacts = false;  // the last item requests a summary of the conversation
    // Reasoning effort and text format of the last configuration_update; empty and null if it sets
    // none.
    std::string effort{}, effort_member{};
    Json format{};
};

// Finds an item by its id; null: unknown. The item lives as long as the function. bytes: grows by
// the memory of the responses that are read to find the item.
using FindItem = std::function<const Json*(const std::string& id, int64_t& bytes)>;

// Appends the messages of `input` (a string or a list) behind those of the earlier items `items`,
// and adds the tools that items bring. items: out: with this request's items appended, references
// replaced by the items that `find` returns, within kMostReferredBytes. Reports errors in `fields`.
ResponseInput ReadResponseInput(Fields& fields, Json& items, const FindItem& find,
                                ResponseTools& tools, Conversation& conversation);

// The content of an "encrypted" member: text that the client keeps and sends back. It belongs to
// the client's own conversation, so it is only marked, not encrypted.
std::string Sealed(std::string_view text);
// nullopt: another server made the content.
std::optional<std::string> Unsealed(std::string_view content);

}  // namespace weft::serve
