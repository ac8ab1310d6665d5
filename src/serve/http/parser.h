// One request out of the bytes of a connection, by Boost.Beast's parser and stricter rules: what
// two readers of the same bytes could understand differently (request smuggling, RFC 9112 11.2) or
// could take for another file is refused. Knows nothing of sockets: fuzz/http_fuzz.cc feeds it.
//
// Refused: Content-Length with Transfer-Encoding, either twice with different values, any other
// coding than "chunked", no Host or several in HTTP/1.1, targets that are not a path, broken
// %-escapes, and paths that decode (once) to NUL, control characters, a backslash, bytes that are
// not UTF-8, or a segment "." or "..". Trailers are read and dropped.
//
// Memory: the head and one unfinished line of a chunked body at most (head_bytes), and the body
// (body_bytes), which grows as it comes and not as its header promises.
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
        kMore,     // all of it was looked at; the bytes that were not taken come again with more
        kHead,     // the head is complete and a body follows: feed the rest
        kDone,     // the request is complete: Take() it; other bytes belong to the next
        kRefused,  // refusal() says why; nothing more can be read from this connection
    };

    explicit RequestParser(const ParserLimits& limits);
    ~RequestParser();
    RequestParser(const RequestParser&) = delete;
    RequestParser& operator=(const RequestParser&) = delete;

    // Takes bytes off the front of `bytes`.
    Step Feed(std::string_view& bytes);

    // From kHead on.
    bool head_done() const;
    bool keep_alive() const;
    bool expects_continue() const;
    // What the header promises; 0 where it doesn't.
    uint64_t content_length() const;
    // Of the body, so far.
    size_t body_bytes() const;
    const Refusal& refusal() const;
    const HttpRequest& request() const;  // as far as it is known
    // After kDone, or what there is of a refused one. Its peer is the caller's to fill in; its id
    // is the client's, or made up.
    HttpRequest Take();

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

// Path and query out of a request's target ("/a%20b?c", "http://host/a"); "*" gives the path "*".
Result<void> SplitTarget(std::string_view target, std::string& path, std::string& query);

}  // namespace weft::serve
