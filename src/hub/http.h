// HTTPS requests with limits: one Connection per thread, kept open between requests (libcurl).
//
// A GET follows at most 10 redirects, never from https to http. The token is sent only to the
// origin (scheme, host, port) of Config::endpoint, whatever redirects occur; over plain http, only
// to this machine. TLS certificates are always verified.
//
// Every wait is bounded: connecting by connect_ms, a transfer slower than 1 KiB/s by stall_ms, and
// everything ends within 100 ms of Config::stop. Errors state whether a retry may help.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/deadline.h"
#include "base/result.h"
#include "hub/spec.h"

namespace weft::hub {

// Headers of the last response; linked_etag may come from an earlier redirect.
struct Response {
    int status = 0;
    std::string url;          // the URL that responded, after redirects
    std::string etag;         // ETag of the response's body, exactly as in the header
    std::string linked_etag;  // the Hub's ETag of the file, without quotes
    std::string link;
    std::string error_code, error_message;
    std::string content_range;
    int64_t content_length = -1;
};

// The part [begin, end) of a file.
struct ByteRange {
    uint64_t begin = 0, end = 0;
};

// Receives the body of a response with status 200 or 206. An error from it ends the request with
// that error.
class Sink {
  public:
    virtual ~Sink() = default;
    virtual Status Head(const Response& response) = 0;
    virtual Status Data(std::span<const std::byte> bytes) = 0;
};

struct Outcome {
    Response response;
    std::optional<Error> error;
    bool may_retry = false;
    int64_t wait_ms = -1;  // delay requested by the server; -1: none
};

class Connection {
  public:
    explicit Connection(const Config& config);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    // One attempt. range: requested with a Range header, if given. `stop` (may be null) ends the
    // request like Config::stop.
    Outcome Get(const std::string& url, std::optional<ByteRange> range, Sink& sink,
                const std::atomic<bool>* stop = nullptr);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

struct Page {
    std::string text;
    Response response;
};

// Gets a small document; retries if that may help, within config.timeout_ms in total.
// Errors: kUnsupported if it is larger than most_bytes; kDenied, kNotFound, kTimeout, kIo.
Result<Page> GetPage(Connection& connection, const Config& config, const std::string& url,
                     uint64_t most_bytes);

// Sleeps; returns kCancelled at once if config.stop or `stop` is set.
Status Pause(const Config& config, int64_t ms, const std::atomic<bool>* stop = nullptr);
// Delay before attempt `attempt` (1: the second one): doubles each time, with random jitter so that
// connections do not retry simultaneously.
int64_t BackoffMs(int attempt);

// Percent-encodes all characters except letters, digits and "-._~" (and '/' if keep_slashes).
std::string UrlText(std::string_view text, bool keep_slashes);
bool SameOrigin(const std::string& a, const std::string& b);

}  // namespace weft::hub
