// The log of requests: a line for each, once its answer is out, and the errors of late, which
// /api/status shows.
//
//     weft: time=2026-01-31T12:00:00.123Z peer=10.0.0.7:51234 id=req_x key=alice method=POST
//         path=/v1/chat/completions status=200 prompt=12 cached=0 said=24 queue_ms=0.4
//         first_token_ms=41 total_ms=532.7 bytes=6022                             (in one line)
//
// or the same members as a JSON object (base/log_format.h). Members that a request has none of are
// left out; left_out="...": keywords of its schemas that the answer wasn't held to; gone=true: the
// client left before the end; error="...": why it failed. Probes (/live, /health, /ready, /metrics,
// /api/status) and the page's files are written only when they fail, and a probe's 503 is none: it
// says what was asked, once a second for as long as a model loads.
// A standard error that nobody reads stops no request (base/standard_error.h).
// Thread: Add: any; the others, too.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "serve/http/server.h"

namespace weft::serve {

// A request that failed, or an answer that was cut short by an error.
struct RequestError {
    int64_t unix_s = 0;
    int status = 0;
    std::string id, method, path, text;
    std::string key{};  // the name of the key that it came with; "": none
};

class RequestLog {
  public:
    static constexpr size_t kMostErrors = 50;
    // write: whether lines are written at all. Errors are kept anyway.
    explicit RequestLog(bool write) : write_(write) {}
    void Add(const HttpRecord& record);
    // The oldest first; at most kMostErrors. Refusals of clients (4xx) are none, but for 408, 429.
    std::vector<RequestError> errors() const;

  private:
    const bool write_;
    mutable std::mutex mutex_;
    std::deque<RequestError> errors_;
};

// The members of a line, as text or JSON; apart for tests.
std::string RequestLine(const HttpRecord& record, const std::string& time, bool json);

}  // namespace weft::serve
