// Requests out of web pages: which scripts may read answers (the Fetch standard's CORS protocol),
// and whether a page reached this server under a name of its own (DNS rebinding).
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

// Whether the Host header (its port apart, in any case) is one of `allowed_hosts`; an empty list
// allows all, and so does a request without one (HTTP/1.0, which browsers don't speak).
bool IsAllowedHost(const HttpRequest& request, const std::vector<std::string>& allowed_hosts);

}  // namespace weft::serve
