// What is asked of a request by its head alone, before a byte of its body is read or counted: that
// it has a key, and that somebody here takes such a body.
#pragma once

#include <string_view>

#include "serve/api/fields.h"
#include "serve/http/server.h"
#include "serve/keys.h"

namespace weft::serve {

// Of a request whose body is still to come. keys: null where none are asked for.
// 401 for want of a key, 404 and 405 where no POST is taken, in the words of the API that was
// asked. Its client is the key's name. With any other method a small body is passed over, as some
// clients send one with a GET: the handler asks such requests for a key; a large one is 400, or
// 405. Thread: any.
HeadVerdict JudgeHead(const HttpRequest& head, KeyStore* keys);

// 401, for a request with that key, which is unknown, or without any.
ApiError NoKey(std::string_view key);

// 503, for a request of that path, with the reason and its code.
Refusal NotServing(std::string_view path, const std::string& why, const std::string& code);
// The same: the model is being loaded.
Refusal WhileLoading(std::string_view path);
// The answer of kLivePath.
void SendAlive(Exchange& exchange);

// The body of an error in the words of the API that the path belongs to: OpenAI's, Anthropic's or
// Ollama's.
std::string ErrorFor(std::string_view path, const ApiError& error);

}  // namespace weft::serve
