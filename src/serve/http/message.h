// HTTP/1.1 messages (RFC 9110, 9112): a request checked by the parser, the head of an answer, and
// the error body, in the form of OpenAI's API:
//     {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::serve {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
    std::string method;  // "GET", "POST", ...; any token is possible
    std::string target;  // as received
    std::string path;    // decoded once; UTF-8, begins with '/', no NUL, backslash, "." or ".."
    std::string query;   // part after '?', not decoded
    Headers headers;     // in order, names as received
    std::string body;    // complete; chunks are joined
    std::string peer;    // "10.0.0.7:51234", "[::1]:51234"
    std::string id;      // the client's X-Request-Id if IsSaneRequestId, else generated
    bool http11 = true;  // false: HTTP/1.0

    // First header with that name, ignoring case; empty if absent.
    std::string_view Header(std::string_view name) const;
};

// Compares header names, ignoring ASCII case.
bool SameName(std::string_view a, std::string_view b);

// Reason phrase: "Not Found" for 404; "Unknown" for an unknown status.
const char* StatusText(int status);

// OpenAI's error type for a status: "invalid_request_error", "authentication_error",
// "rate_limit_error", "server_error", ...
const char* ErrorType(int status);

// JSON error body. Empty `param` and `code` become null; invalid UTF-8 becomes U+FFFD.
std::string ErrorBody(int status, std::string_view message, std::string_view param = {},
                      std::string_view code = {});

// An error response. `message` gives the client the reason.
struct Refusal {
    int status = 400;
    std::string message;
    std::string code{};
    Headers headers{};   // in addition to the headers of FormatHead
    std::string body{};  // JSON; empty: made by ErrorBody()
};

// Whether a client's X-Request-Id is safe for logs and headers: 1 to 128 letters, digits and
// "-_.:".
bool IsSaneRequestId(std::string_view id);
std::string MakeRequestId();

// How the end of an answer's body is marked.
enum class Framing { kLength, kChunked, kUntilClose, kNone };

struct AnswerHead {
    int status = 200;
    Framing framing = Framing::kLength;
    uint64_t length_bytes = 0;  // for kLength
    bool http11 = true, keep_alive = true;
    std::string_view request_id;
};

// Returns the status line, the headers of this layer (Date, Content-Length or Transfer-Encoding,
// Connection, X-Request-Id), those of `headers` with other names, and the empty line. Control
// characters in names and values become spaces, so that no value can inject a header.
std::string FormatHead(const AnswerHead& head, const Headers& headers);

}  // namespace weft::serve
