// GET /v1/responses/ID/input_items: what a stored response was asked.
#pragma once

#include <optional>
#include <string_view>

#include "serve/api/fields.h"
#include "serve/api/response_store.h"

namespace weft::serve {

// A page of the items of the conversation up to the response, those of the responses that it went
// on from among them, as OpenAI lists them: texts become parts, and an item that came without an id
// gets one, the same each time. query: limit (1 to 100; 20), order (asc, desc; desc) and after (the
// id of the last one of the page before). Errors: what the client hears.
std::optional<ApiError> InputItems(const ResponseStore::Stored& stored, std::string_view query,
                                   Json& answer);

}  // namespace weft::serve
