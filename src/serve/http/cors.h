// Requests out of web pages: which scripts may read answers (the Fetch standard's CORS protocol),
// which pages may ask for anything to be done, and whether a page reached this server under a name
// of its own (DNS rebinding).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/http/message.h"

namespace weft::serve {

// What every answer to `request` says about it; nothing where no origin is allowed, or not this.
Headers CorsHeaders(const HttpRequest& request, const std::vector<std::string>& allow_origins);

// What the answer (204) to an OPTIONS request says: Allow, and for a preflight from an origin that
// may what it may.
Headers OptionsHeaders(const HttpRequest& request, const std::vector<std::string>& allow_origins);

// Why a page may not make this request; nothing: it may, or it is no page's. Browsers send a form
// or a "simple" fetch of any page to any server without asking first, and only keep the answer from
// its script: so whatever does something (all but GET, HEAD and OPTIONS) is refused, with 403,
// where its Origin is neither the server's own nor allowed, "null" included; and with 415 where a
// body out of a page, which no form can send as JSON, is no application/json. The server's own
// origin is one that the browser calls so (Sec-Fetch-Site, which no script can set, decides alone
// where it stands), or else http or https and the request's Host (or a proxy's X-Forwarded-Host),
// where a port that is the scheme's own may be left out. Clients that are no browsers send no
// Origin, and are not asked for a Content-Type either.
std::optional<Refusal> RefusePage(const HttpRequest& request,
                                  const std::vector<std::string>& allow_origins);

// Whether the Host header (its port apart, in any case) is one of `allowed_hosts`; an empty list
// allows all, and so does a request without one (HTTP/1.0, which browsers don't speak).
bool IsAllowedHost(const HttpRequest& request, const std::vector<std::string>& allowed_hosts);

}  // namespace weft::serve
