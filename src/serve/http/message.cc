#include "serve/http/message.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/hash.h"

namespace weft::serve {
namespace {

char Lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool IsAlnum(char c) {
    return (c >= '0' && c <= '9') || (Lower(c) >= 'a' && Lower(c) <= 'z');
}

bool IsOurs(std::string_view name) {
    for (const char* ours :
         {"date", "content-length", "transfer-encoding", "connection", "x-request-id"}) {
        if (SameName(name, ours)) return true;
    }
    return false;
}

void AppendClean(std::string& out, std::string_view text) {
    for (char c : text) {
        const bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f;
        out += control ? ' ' : c;
    }
}

// "Sun, 06 Nov 1994 08:49:37 GMT", independent of the locale.
void AppendDate(std::string& out) {
    static constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                           "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const time_t now = ::time(nullptr);
    tm parts{};
    ::gmtime_r(&now, &parts);
    fmt::format_to(std::back_inserter(out), "Date: {}, {:02} {} {} {:02}:{:02}:{:02} GMT\r\n",
                   kDays[static_cast<size_t>(parts.tm_wday)], parts.tm_mday,
                   kMonths[static_cast<size_t>(parts.tm_mon)], parts.tm_year + 1900, parts.tm_hour,
                   parts.tm_min, parts.tm_sec);
}

}  // namespace

bool SameName(std::string_view a, std::string_view b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                              [](char x, char y) { return Lower(x) == Lower(y); });
}

std::string_view HttpRequest::Header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
        if (SameName(key, name)) return value;
    }
    return {};
}

const char* StatusText(int status) {
    switch (status) {
        case 100: return "Continue";
        case 200: return "OK";
        case 201: return "Created";
        case 202: return "Accepted";
        case 204: return "No Content";
        case 301: return "Moved Permanently";
        case 302: return "Found";
        case 304: return "Not Modified";
        case 307: return "Temporary Redirect";
        case 308: return "Permanent Redirect";
        case 400: return "Bad Request";
        case 401: return "Unauthorized";
        case 403: return "Forbidden";
        case 404: return "Not Found";
        case 405: return "Method Not Allowed";
        case 406: return "Not Acceptable";
        case 408: return "Request Timeout";
        case 409: return "Conflict";
        case 411: return "Length Required";
        case 413: return "Content Too Large";
        case 414: return "URI Too Long";
        case 415: return "Unsupported Media Type";
        case 417: return "Expectation Failed";
        case 421: return "Misdirected Request";
        case 422: return "Unprocessable Content";
        case 429: return "Too Many Requests";
        case 431: return "Request Header Fields Too Large";
        case 499: return "Client Closed Request";
        case 500: return "Internal Server Error";
        case 501: return "Not Implemented";
        case 502: return "Bad Gateway";
        case 503: return "Service Unavailable";
        case 504: return "Gateway Timeout";
        case 505: return "HTTP Version Not Supported";
        case 507: return "Insufficient Storage";
        case 529: return "Overloaded";
    }
    return "Unknown";
}

const char* ErrorType(int status) {
    switch (status) {
        case 401: return "authentication_error";
        case 403: return "permission_error";
        case 404: return "not_found_error";
        case 408:
        case 504: return "timeout_error";
        case 429: return "rate_limit_error";
        case 501: return "not_supported_error";
        case 503:
        case 529: return "overloaded_error";
    }
    return status >= 500 ? "server_error" : "invalid_request_error";
}

std::string ErrorBody(int status, std::string_view message, std::string_view param,
                      std::string_view code) {
    using nlohmann::ordered_json;
    const auto or_null = [](std::string_view text) {
        return text.empty() ? ordered_json(nullptr) : ordered_json(std::string(text));
    };
    const ordered_json error = {{"message", std::string(message)},
                                {"type", ErrorType(status)},
                                {"param", or_null(param)},
                                {"code", or_null(code)}};
    return ordered_json{{"error", error}}.dump(-1, ' ', false,
                                               ordered_json::error_handler_t::replace);
}

bool IsSaneRequestId(std::string_view id) {
    return !id.empty() && id.size() <= 128 && std::ranges::all_of(id, [](char c) {
        return IsAlnum(c) || c == '-' || c == '_' || c == '.' || c == ':';
    });
}

std::string MakeRequestId() {
    std::array<uint8_t, 12> bytes;
    RandomBytes(std::as_writable_bytes(std::span(bytes)));
    return "req_" + Hex(bytes);
}

std::string FormatHead(const AnswerHead& head, const Headers& headers) {
    std::string out;
    size_t size = 256;
    for (const auto& [name, value] : headers) size += name.size() + value.size() + 4;
    out.reserve(size);
    fmt::format_to(std::back_inserter(out), "HTTP/1.1 {} {}\r\n", head.status,
                   StatusText(head.status));
    AppendDate(out);
    switch (head.framing) {
        case Framing::kLength:
            fmt::format_to(std::back_inserter(out), "Content-Length: {}\r\n", head.length_bytes);
            break;
        case Framing::kChunked: out += "Transfer-Encoding: chunked\r\n"; break;
        case Framing::kUntilClose:
        case Framing::kNone: break;
    }
    if (!head.keep_alive) {
        out += "Connection: close\r\n";
    } else if (!head.http11) {
        out += "Connection: keep-alive\r\n";
    }
    if (!head.request_id.empty()) {
        out += "X-Request-Id: ";
        AppendClean(out, head.request_id);
        out += "\r\n";
    }
    for (const auto& [name, value] : headers) {
        if (name.empty() || IsOurs(name)) continue;
        AppendClean(out, name);
        out += ": ";
        AppendClean(out, value);
        out += "\r\n";
    }
    out += "\r\n";
    return out;
}

}  // namespace weft::serve
