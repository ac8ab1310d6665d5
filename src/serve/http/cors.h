// Browser requests: which scripts may read answers (CORS, Fetch standard), which pages may change
// state, and whether the Host header is one of the server's names (against DNS rebinding).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/http/message.h"

namespace weft::serve {

// CORS headers of every answer to `request`; empty if its origin is not allowed.
Headers CorsHeaders(const HttpRequest& request, const std::vector<std::string>& allow_origins);

// Headers of the 204 answer to OPTIONS: Allow, and the CORS headers if this is a preflight from an
// allowed origin.
Headers OptionsHeaders(const HttpRequest& request, const std::vector<std::string>& allow_origins);

// Returns a refusal if `request` comes from a page that may not make it.
//
// Browsers send forms and "simple" fetches of any page to any server without a preflight; CORS
// only hides the answer from the page's script. So every method except GET, HEAD and OPTIONS is
//  - refused with 403 if its Origin (also "null") is neither the server's own nor allowed;
//  - refused with 415 if a page sends a body whose Content-Type is not application/json, since
//    forms cannot send that type.
// The server's own origin is recognized by the header Sec-Fetch-Site if the request has it, since
// no script can set this header. Otherwise Origin must be http or https with the request's Host or
// a proxy's X-Forwarded-Host; a default port may be omitted. Clients other than browsers send no
// Origin; their requests are accepted without a Content-Type check.
std::optional<Refusal> RefusePage(const HttpRequest& request,
                                  const std::vector<std::string>& allow_origins);

// Whether the Host header without its port is in `allowed_hosts`, ignoring case. An empty list
// allows all hosts. A request without Host passes (HTTP/1.0, which browsers do not use).
bool IsAllowedHost(const HttpRequest& request, const std::vector<std::string>& allowed_hosts);

}  // namespace weft::serve
