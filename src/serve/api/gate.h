// Checks a request by its head alone, before any byte of its body is read or counted: the key, and
// whether the path accepts a body.
#pragma once

#include <string_view>

#include "serve/api/fields.h"
#include "serve/http/server.h"
#include "serve/keys.h"

namespace weft::serve {

// Judges a request whose body has not arrived. keys: null if no keys are required.
// POST: 401 without a valid key, 404 or 405 if the path accepts no POST, formatted for the API of
// the path. The verdict's client is the key's name.
// Other methods: a small body is skipped, since some clients send one with GET, and the handler
// checks the key; a large body gets 400 or 405.
// Thread: any.
HeadVerdict JudgeHead(const HttpRequest& head, KeyStore* keys);

// 401: `key` is unknown, or empty if the request has none.
ApiError NoKey(std::string_view key);

// 503 for a request of `path`, with the reason and its code.
Refusal NotServing(std::string_view path, const std::string& why, const std::string& code);
// 503: the model is loading.
Refusal WhileLoading(std::string_view path);
// Answers kLivePath.
void SendAlive(Exchange& exchange);

// An error body formatted for the API that owns `path`: OpenAI's, Anthropic's or Ollama's.
std::string ErrorFor(std::string_view path, const ApiError& error);

}  // namespace weft::serve
