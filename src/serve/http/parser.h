// Parses one HTTP request from a connection's bytes with Boost.Beast's parser and stricter rules.
// It refuses requests that two parsers could read differently (request smuggling, RFC 9112 11.2)
// and paths that could name another file. The parser does not use sockets; fuzz/http_fuzz.cc tests
// it.
//
// Refused: Content-Length together with Transfer-Encoding; one of these two headers twice with
// different values; any transfer coding except "chunked"; HTTP/1.1 with no Host or several; targets
// that are not a path; invalid %-escapes; paths that decode (once) to NUL, control characters, a
// backslash, invalid UTF-8, or a segment "." or "..". Trailers are discarded.
//
// Memory: at most the head and one unfinished chunk line (head_bytes) plus the body (body_bytes).
// The body's buffer grows as bytes arrive; it is not allocated for the announced length at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "serve/http/message.h"

namespace weft::serve {

struct ParserLimits {
    size_t head_bytes = 16 << 10;  // request line and headers
    size_t headers = 100;
    uint64_t body_bytes = 32 << 20;
};

class RequestParser {
  public:
    enum class Step {
        kMore,  // needs more input; bytes not consumed must be passed again together with new ones
        kHead,  // the head is complete and a body follows; continue feeding
        kDone,  // the request is complete; call Take(). Remaining bytes belong to the next request
        kRefused,  // see refusal(); the connection cannot be read any further
    };

    explicit RequestParser(const ParserLimits& limits);
    ~RequestParser();
    RequestParser(const RequestParser&) = delete;
    RequestParser& operator=(const RequestParser&) = delete;

    // Consumes bytes from the front of `bytes`.
    Step Feed(std::string_view& bytes);

    // Valid from kHead on.
    bool head_done() const;
    bool keep_alive() const;
    bool expects_continue() const;
    // The announced length; 0: the request announces no length.
    uint64_t content_length() const;
    // Body bytes received so far.
    size_t body_bytes() const;
    const Refusal& refusal() const;
    const HttpRequest& request() const;  // as far as parsed
    // Moves out the request after kDone, or the parsed part of a refused request. The caller sets
    // `peer`. `id` comes from the client's header or is generated.
    HttpRequest Take();

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

// Path and query of a request target ("/a%20b?c", "http://host/a"); "*" gives the path "*".
Result<void> SplitTarget(std::string_view target, std::string& path, std::string& query);

}  // namespace weft::serve
