// What travels over HTTP/1.1 (RFC 9110, 9112): a request as the parser has checked it, the head of
// an answer, and the body that every error has, in the shape of OpenAI's API:
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
    std::string method;  // "GET", "POST", ...; any token that a client made up
    std::string target;  // as it came
    std::string path;    // decoded once; UTF-8, begins with '/', no NUL, backslash, "." or ".."
    std::string query;   // what follows '?', as it came
    Headers headers;     // in order, names as they came
    std::string body;    // whole, chunks joined
    std::string peer;    // "10.0.0.7:51234", "[::1]:51234"
    std::string id;      // X-Request-Id where the client sent a sane one, else made up
    bool http11 = true;  // else HTTP/1.0

    // The first header of that name (in any case); empty where there is none.
    std::string_view Header(std::string_view name) const;
};

// Whether two names of headers are the same: ASCII letters in any case.
bool SameName(std::string_view a, std::string_view b);

// "Not Found" for 404; "Status 799" has no text of its own and gives "Unknown".
const char* StatusText(int status);

// OpenAI's type of an error of that status: "invalid_request_error", "authentication_error",
// "rate_limit_error", "server_error", ...
const char* ErrorType(int status);

// The body of an error. Empty `param` and `code` become null; bytes that are not UTF-8 U+FFFD.
std::string ErrorBody(int status, std::string_view message, std::string_view param = {},
                      std::string_view code = {});

// Why a request is not served, for its client.
struct Refusal {
    int status = 400;
    std::string message;
    std::string code{};
    Headers headers{};   // more than the layer's own
    std::string body{};  // JSON; empty: ErrorBody() of the above
};

// Whether a client's X-Request-Id is one that logs and headers may carry: 1 to 128 letters, digits
// and "-_.:".
bool IsSaneRequestId(std::string_view id);
std::string MakeRequestId();

// How the body of an answer ends for its reader.
enum class Framing { kLength, kChunked, kUntilClose, kNone };

struct AnswerHead {
    int status = 200;
    Framing framing = Framing::kLength;
    uint64_t length_bytes = 0;  // of kLength
    bool http11 = true, keep_alive = true;
    std::string_view request_id;
};

// Status line, what the layer itself says (Date, Content-Length or Transfer-Encoding, Connection,
// X-Request-Id), then `headers`: those of these names are left out, control characters in names
// and values become blanks (nobody's text makes a second header), and the empty line.
std::string FormatHead(const AnswerHead& head, const Headers& headers);

}  // namespace weft::serve
