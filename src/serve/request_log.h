// Request log: one line per request when its answer is complete, and recent errors for /api/status.
//
//     weft: time=2026-01-31T12:00:00.123Z peer=10.0.0.7:51234 id=req_x key=alice method=POST
//         path=/v1/chat/completions status=200 prompt=12 cached=0 generated=24 queue_ms=0.4
//         first_token_ms=41 total_ms=532.7 bytes=6022                             (in one line)
//
// or a JSON object with the same members (base/log_format.h). Empty members are omitted.
// left_out="...": members and schema keywords of the request that had no effect; gone=true: the
// client disconnected early; error="...": the reason of a failure. Probes (/live, /health, /ready,
// /metrics, /api/status) and the page's files are logged only when they fail. A probe's 503 is not
// a failure: while a model loads, probes repeat it every second. A blocked standard error does not
// block requests (base/standard_error.h). Thread: any.
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
    std::string key{};  // name of the request's key; "": none
};

class RequestLog {
  public:
    static constexpr size_t kMostErrors = 50;
    // write: whether lines are printed. Errors are stored in any case.
    explicit RequestLog(bool write) : write_(write) {}
    void Add(const HttpRecord& record);
    // Oldest first; at most kMostErrors. Client errors (4xx) are not included, except 408 and 429.
    std::vector<RequestError> errors() const;

  private:
    const bool write_;
    mutable std::mutex mutex_;
    std::deque<RequestError> errors_;
};

// The members of one line, as text or JSON; separate for tests.
std::string RequestLine(const HttpRecord& record, const std::string& time, bool json);

}  // namespace weft::serve
