// The models of a server as its APIs list them, and errors for a name that is not among them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

// An entry of /v1/models, with the members of OpenAI, vLLM, llama-server and Anthropic.
Json ModelJson(const Served& served, int32_t adapter);
// /v1/models: each model, followed by its adapters.
Json ModelsJson(std::span<const Served> models);

// 404, worded as in OpenAI's and Anthropic's APIs or Ollama's; lists the server's names.
ApiError UnknownModel(std::string_view asked, std::span<const Served> models);
ApiError UnknownOllamaModel(std::string_view asked, std::span<const Served> models);

}  // namespace weft::serve
