// Stores responses in files, so that several servers (replicas) share them and a restarted server
// finds them again: FOLDER/OWNER/resp_LETTERS.json. OWNER is the SHA-256 of the API key, or "all"
// on servers without keys. A file appears whole or not at all (rename(2)).
//
// Limits of count, bytes and age hold for the whole folder, of all servers. Each server checks them
// whenever it has written a 16th of a limit, and once an hour, so the folder may exceed them by a
// 16th per server. A response older than the limit is never returned.
// Thread: any; blocks for file operations.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "serve/api/openai/response_store.h"

namespace weft::serve {

class ResponseFolder final : public ResponseStore {
  public:
    struct Limits {
        int64_t count = 0;  // 0: nothing is stored
        int64_t bytes = 0;
        double age_s = 0;
    };
    // Creates the folder if it does not exist (for its user only). Errors: kIo: it cannot be
    // written.
    static Result<std::unique_ptr<ResponseFolder>> Open(const std::string& path, Limits limits);

    bool on() const override { return limits_.count > 0; }
    bool uses_files() const override { return true; }
    // A response that cannot be written is logged, and is not stored.
    void Put(const std::string& owner, const std::string& id, Stored stored) override;
    // A file that is not as Put wrote it is logged and counts as absent.
    std::shared_ptr<const Stored> Get(const std::string& owner,
                                      const std::string& id) const override;
    bool Remove(const std::string& owner, const std::string& id) override;

    // Removes expired responses, what exceeds the limits, and remains of interrupted writes.
    void Sweep();

  private:
    ResponseFolder(std::string path, Limits limits) : path_(std::move(path)), limits_(limits) {}
    std::string PathOf(const std::string& owner, const std::string& id) const;
    Status Write(const std::string& owner, const std::string& id, const std::string& text);
    bool SweepIsDue(int64_t bytes);

    const std::string path_;
    const Limits limits_;
    std::mutex mutex_;                       // guards the next three
    int64_t new_count_ = 0, new_bytes_ = 0;  // written since the last sweep
    int64_t swept_ns_ = 0;
    std::mutex sweep_mutex_;  // one sweep at a time
};

}  // namespace weft::serve
