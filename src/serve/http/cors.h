// Cross-origin requests (the Fetch standard's CORS protocol): which scripts of web pages may read
// answers.
#pragma once

#include <string>
#include <vector>

#include "serve/http/message.h"

namespace weft::serve {

// What every answer to `request` says about it; nothing where no origin is allowed, or not this.
Headers CorsHeaders(const HttpRequest& request, const std::vector<std::string>& allow_origins);

// What the answer (204) to an OPTIONS request says: Allow, and for a preflight from an origin that
// may what it may.
Headers OptionsHeaders(const HttpRequest& request, const std::vector<std::string>& allow_origins);

}  // namespace weft::serve
