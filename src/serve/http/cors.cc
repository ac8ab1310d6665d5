#include "serve/http/cors.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "serve/http/server.h"

namespace weft::serve {
namespace {

constexpr const char* kMethods = "GET, HEAD, POST, DELETE, OPTIONS";

bool IsNameList(std::string_view text) {
    return !text.empty() && text.size() <= 1024 && std::ranges::all_of(text, [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               c == '-' || c == '_' || c == ',' || c == ' ';
    });
}

bool MayRequest(const HttpRequest& request, const std::vector<std::string>& allow_origins,
                bool& any) {
    any = std::ranges::find(allow_origins, "*") != allow_origins.end();
    const std::string_view origin = request.Header("Origin");
    return !origin.empty() &&
           (any || std::ranges::find(allow_origins, origin) != allow_origins.end());
}

bool IsAllowed(std::string_view origin, const std::vector<std::string>& allow_origins) {
    return std::ranges::any_of(allow_origins, [&](const std::string& allowed) {
        return allowed == "*" || allowed == origin;
    });
}

// Removes the scheme's default port.
std::string_view WithoutPort(std::string_view authority, std::string_view port) {
    if (authority.ends_with(port)) authority.remove_suffix(port.size());
    return authority;
}

bool IsOwnOrigin(const HttpRequest& request, std::string_view origin) {
    std::string_view authority, port;
    constexpr std::pair<std::string_view, std::string_view> kSchemes[] = {{"http://", ":80"},
                                                                          {"https://", ":443"}};
    for (const auto& [scheme, its_port] : kSchemes) {
        if (!origin.starts_with(scheme)) continue;
        authority = origin.substr(scheme.size());
        port = its_port;
    }
    if (authority.empty()) return false;
    const std::string_view site = request.Header("Sec-Fetch-Site");
    if (!site.empty()) return SameName(site, "same-origin") || SameName(site, "none");
    return std::ranges::any_of(
        std::initializer_list<const char*>{"Host", "X-Forwarded-Host"}, [&](const char* name) {
            const std::string_view host = request.Header(name);
            return !host.empty() && SameName(WithoutPort(host, port), WithoutPort(authority, port));
        });
}

Refusal ForeignPage(std::string_view origin) {
    const std::string name(origin.substr(0, 200));
    const std::string who = name.empty() || name == "null"
                                ? fmt::format("a page without its own origin ('{}')", name)
                                : fmt::format("a page from origin '{}'", name);
    return {403,
            fmt::format("{} may not use this server; only the server's own page and allowed "
                        "origins may. Start the server with '--allow-origin {}' to allow it",
                        who, name.empty() ? "ORIGIN" : name),
            "origin_not_allowed"};
}

bool IsJson(std::string_view type) {
    type = type.substr(0, type.find(';'));
    while (type.ends_with(' ') || type.ends_with('\t')) type.remove_suffix(1);
    return SameName(type, "application/json");
}

}  // namespace

std::optional<Refusal> RefusePage(const HttpRequest& request,
                                  const std::vector<std::string>& allow_origins) {
    const std::string& method = request.method;
    if (method == "GET" || method == "HEAD" || method == "OPTIONS") return {};
    const std::string_view site = request.Header("Sec-Fetch-Site");
    bool page = SameName(site, "cross-site") || SameName(site, "same-site");
    for (const auto& [name, origin] : request.headers) {
        if (!SameName(name, "Origin")) continue;
        page = true;
        if (!IsAllowed(origin, allow_origins) && !IsOwnOrigin(request, origin)) {
            return ForeignPage(origin);
        }
    }
    const std::string_view type = request.Header("Content-Type");
    if (!page || request.body.empty() || IsJson(type)) return {};
    return Refusal{415,
                   fmt::format("a request from a web page must have the header 'Content-Type: "
                               "application/json', not '{}'",
                               type.substr(0, 100)),
                   "unsupported_media_type"};
}

Headers CorsHeaders(const HttpRequest& request, const std::vector<std::string>& allow_origins) {
    bool any = false;
    if (allow_origins.empty()) return {};
    const bool may = MayRequest(request, allow_origins, any);
    Headers headers;
    if (!any) headers.emplace_back("Vary", "Origin");
    if (!may) return headers;
    headers.emplace_back("Access-Control-Allow-Origin",
                         any ? "*" : std::string(request.Header("Origin")));
    headers.emplace_back("Access-Control-Expose-Headers",
                         "X-Request-Id, Request-Id, Retry-After, X-RateLimit-Limit-Requests, "
                         "X-RateLimit-Limit-Tokens, X-RateLimit-Remaining-Requests, "
                         "X-RateLimit-Remaining-Tokens, X-RateLimit-Reset-Requests, "
                         "X-RateLimit-Reset-Tokens, X-Weft-Left-Out");
    return headers;
}

Headers OptionsHeaders(const HttpRequest& request, const std::vector<std::string>& allow_origins) {
    Headers headers = {{"Allow", kMethods}};
    bool any = false;
    if (!MayRequest(request, allow_origins, any)) return headers;
    if (request.Header("Access-Control-Request-Method").empty()) return headers;
    headers.emplace_back("Access-Control-Allow-Methods", kMethods);
    const std::string_view wanted = request.Header("Access-Control-Request-Headers");
    headers.emplace_back(
        "Access-Control-Allow-Headers",
        IsNameList(wanted) ? std::string(wanted) : "Authorization, Content-Type, X-Request-Id");
    headers.emplace_back("Access-Control-Max-Age", "600");
    return headers;
}

void NeedNoKeys(HttpOptions& options) {
    options.keyless = true;
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
