// The token buckets of API keys, in memory that processes may share. The processes of a server of
// several models (serve/pool) share the table of their front process, so a key's rates hold for all
// models together, and unloading a model forgets nothing.
// Thread: any; process: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "serve/http/message.h"

namespace weft::serve {

// Holds one minute's amount and fills steadily. Zeros are an unused bucket.
struct Bucket {
    double level = 0;   // negative: a request used more than the remaining tokens
    int64_t limit = 0;  // per minute, and bucket size; 0: no limit
    int64_t at_ns = 0;  // NowNs(), which is the same in all processes

    void Fill(int64_t new_limit, int64_t now_ns);
    // Returns part of an earlier charge; a negative amount charges more.
    void Give(double amount);
    // Time until the bucket holds `needed`.
    int64_t WaitMs(double needed) const;
    int64_t remaining() const;
    void AddHeaders(const char* what, Headers& headers) const;
};

struct Rates {
    Bucket requests, tokens;
};

// The charges of this process to a key for requests that run.
struct OpenCharges {
    double requests = 0, tokens = 0;
};

class RateTable {
  public:
    // A table of this process.
    RateTable();
    ~RateTable();
    RateTable(const RateTable&) = delete;
    RateTable& operator=(const RateTable&) = delete;
    // A table that other processes may attach to by fd(). Errors: kIo.
    static Result<std::shared_ptr<RateTable>> Share();
    static Result<std::shared_ptr<RateTable>> Attach(Fd fd);
    int fd() const { return fd_.get(); }

    // Calls `change` with the buckets of a key, which only this call uses meanwhile. A table that
    // is full forgets the key that was used least recently among some.
    using Change = std::function<void(Rates&, OpenCharges&)>;
    void With(const std::string& key, const Change& change);
    // Gives back the open charges of processes that have ended.
    void GiveBackOfEnded();

  private:
    struct Page;
    explicit RateTable(Fd fd) : fd_(std::move(fd)) {}
    bool Lock();
    Rates& Find(const std::string& key);

    Fd fd_;  // not valid: the table is not shared
    Page* page_ = nullptr;
};

}  // namespace weft::serve
