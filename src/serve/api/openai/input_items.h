// GET /v1/responses/ID/input_items: lists the input of a stored response.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "serve/api/fields.h"
#include "serve/api/openai/response_store.h"

namespace weft::serve {

// One page of the conversation's items before the response, including those of its previous
// responses, in OpenAI's list format. Plain strings become parts; an item without an id gets a
// stable one. query: limit (1 to 100, default 20), order (asc or desc, default desc) and after (the
// id of the previous page's last item). Error: the response for the client.
std::optional<ApiError> InputItems(const ResponseStore::Stored& stored, std::string_view query,
                                   Json& answer);

// The items of the response's output and of the conversation before it, by their ids.
std::unordered_map<std::string, const Json*> StoredItems(const ResponseStore::Stored& stored);

// A query parameter; empty if absent. (The supported parameters need no unescaping.)
std::string_view QueryValue(std::string_view query, std::string_view name);

}  // namespace weft::serve
