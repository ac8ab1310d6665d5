// HTTPS requests with limits: one Connection per thread, kept open between requests (libcurl).
//
// A GET follows at most 10 redirects, never from https to http. The token goes to the origin
// (scheme, host, port) of Config::endpoint and to no other, whoever redirects there; over plain
// http only to this machine. TLS is verified always.
//
// Every wait ends: connecting after connect_ms, a transfer slower than 1 KiB/s after stall_ms, and
// all within 100 ms of Config::stop. What may work when it is tried again is told apart from what
// will not.
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

// What the headers of the last answer said (those of redirects before it: linked_etag, commit).
struct Response {
    int status = 0;
    std::string url;          // that answered, after redirects
    std::string etag;         // of these bytes, as it stands in the header
    std::string linked_etag;  // what the Hub says the file's is, without quotes
    std::string link;
    std::string error_code, error_message;
    std::string content_range;
    int64_t content_length = -1;
};

// The part [begin, end) of a file.
struct ByteRange {
    uint64_t begin = 0, end = 0;
};

// Takes the body of an answer with status 200 or 206. An error ends the request with it.
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
    int64_t wait_ms = -1;  // what the server asks to wait first; -1: nothing
};

class Connection {
  public:
    explicit Connection(const Config& config);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    // One attempt. range: asked for by a Range header, if given. `stop` (may be null) ends it like
    // Config::stop.
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

// A small document, tried again where that may help, all within config.timeout_ms.
// Errors: kUnsupported where it is larger than most_bytes; kDenied, kNotFound, kTimeout, kIo.
Result<Page> GetPage(Connection& connection, const Config& config, const std::string& url,
                     uint64_t most_bytes);

// Sleeps, unless config.stop or `stop` is set: then kCancelled at once.
Status Pause(const Config& config, int64_t ms, const std::atomic<bool>* stop = nullptr);
// How long to wait before attempt number `attempt` (1: the second one): doubles, with some chance
// in it so that connections don't come back at one time.
int64_t BackoffMs(int attempt);

// Percent-encodes all but letters, digits and "-._~" (and '/' where kept).
std::string UrlText(std::string_view text, bool keep_slashes);
bool SameOrigin(const std::string& a, const std::string& b);

}  // namespace weft::hub
