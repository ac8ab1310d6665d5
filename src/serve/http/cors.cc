#include "serve/http/cors.h"

#include <algorithm>

#include "serve/http/server.h"

namespace weft::serve {
namespace {

constexpr const char* kMethods = "GET, HEAD, POST, OPTIONS";

bool IsNameList(std::string_view text) {
    return !text.empty() && text.size() <= 1024 && std::ranges::all_of(text, [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               c == '-' || c == '_' || c == ',' || c == ' ';
    });
}

bool MayAsk(const HttpRequest& request, const std::vector<std::string>& allow_origins, bool& any) {
    any = std::ranges::find(allow_origins, "*") != allow_origins.end();
    const std::string_view origin = request.Header("Origin");
    return !origin.empty() &&
           (any || std::ranges::find(allow_origins, origin) != allow_origins.end());
}

}  // namespace

Headers CorsHeaders(const HttpRequest& request, const std::vector<std::string>& allow_origins) {
    bool any = false;
    if (allow_origins.empty()) return {};
    const bool may = MayAsk(request, allow_origins, any);
    Headers headers;
    if (!any) headers.emplace_back("Vary", "Origin");
    if (!may) return headers;
    headers.emplace_back("Access-Control-Allow-Origin",
                         any ? "*" : std::string(request.Header("Origin")));
    headers.emplace_back("Access-Control-Expose-Headers",
                         "X-Request-Id, Retry-After, X-RateLimit-Limit-Requests, "
                         "X-RateLimit-Limit-Tokens, X-RateLimit-Remaining-Requests, "
                         "X-RateLimit-Remaining-Tokens, X-RateLimit-Reset-Requests, "
                         "X-RateLimit-Reset-Tokens");
    return headers;
}

Headers OptionsHeaders(const HttpRequest& request, const std::vector<std::string>& allow_origins) {
    Headers headers = {{"Allow", kMethods}};
    bool any = false;
    if (!MayAsk(request, allow_origins, any)) return headers;
    if (request.Header("Access-Control-Request-Method").empty()) return headers;
    headers.emplace_back("Access-Control-Allow-Methods", kMethods);
    const std::string_view wanted = request.Header("Access-Control-Request-Headers");
    headers.emplace_back(
        "Access-Control-Allow-Headers",
        IsNameList(wanted) ? std::string(wanted) : "Authorization, Content-Type, X-Request-Id");
    headers.emplace_back("Access-Control-Max-Age", "600");
    return headers;
}

void AllowOwnNames(HttpOptions& options) {
    std::vector<std::string>& allowed = options.allowed_hosts;
    if (std::erase(allowed, "*") > 0) return allowed.clear();
    allowed.insert(allowed.end(), {"localhost", "127.0.0.1", "[::1]", options.host});
}

bool IsAllowedHost(const HttpRequest& request, const std::vector<std::string>& allowed_hosts) {
    std::string_view host = request.Header("Host");
    if (allowed_hosts.empty() || host.empty()) return true;
    const size_t bracket = host.find(']');  // "[::1]:8080"
    host = host.substr(0, host.find(':', bracket == host.npos ? 0 : bracket));
    return std::ranges::any_of(allowed_hosts,
                               [&](const std::string& allowed) { return SameName(allowed, host); });
}

}  // namespace weft::serve
