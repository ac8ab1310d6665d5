// API keys, with each key's limits and priority. A file has one line per key:
//
//     # comments and empty lines
//     NAME SHA256HEX [rate=N] [tokens=N] [concurrent=N] [priority=N] [weight=W] [group=NAME]
//
// rate: requests per minute; tokens: prompt and answer tokens per minute; concurrent: requests, and
// sequences, that run at once; 0 or absent: no limit. priority (-100 to 100, default 0) and weight
// (0.01 to 100, default 1) go to the scheduler. Keys of one group share the prefix cache; every
// other key has its own.
//
// The file stores the SHA-256 of each key, so reading the file does not give access. A plain hash
// (no salt, not slow) suffices because keys are random with 192 bits (NewApiKey) and cannot be
// guessed from a list. Find compares the key with all hashes, each in constant time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "serve/http/message.h"

namespace weft::serve {

struct KeyLimits {
    int64_t requests_per_minute = 0, tokens_per_minute = 0, concurrent = 0;  // 0: no limit
    int priority = 0;
    double weight = 1;
    std::string group{};  // keys that share the prefix cache; "": no sharing
    bool operator==(const KeyLimits&) const = default;
};

struct ApiKey {
    std::string name;  // 1 to 64 letters, digits and "._-"
    Sha256Digest digest;
    KeyLimits limits;
};

// The keys of one version of the file. Immutable.
class KeyRing {
  public:
    static constexpr size_t kMostKeys = 4096;

    // where: file name for errors. kCorrupt: names the line, without text that may be a key.
    static Result<KeyRing> Parse(std::string_view text, const std::string& where);
    // Returns the entry whose hash matches `key`, or null. The pointer is valid as long as this
    // ring.
    const ApiKey* Find(std::string_view key) const;
    const std::vector<ApiKey>& keys() const { return keys_; }

  private:
    std::vector<ApiKey> keys_;
};

// The keys of a file that may change while the server runs. Any thread.
class KeyStore {
  public:
    // Warns if other users may read or write the file. Errors: ReadTextFile's and KeyRing::Parse's.
    static Result<std::unique_ptr<KeyStore>> Open(const std::string& path);

    // The current keys. Checks for a changed file at most once a second.
    std::shared_ptr<const KeyRing> ring();
    // Reads the file again (on SIGHUP). If a line is invalid, the old keys stay; the error is
    // logged and returned.
    Status Reload();

  private:
    // File identity (change time, size, inode), to detect a changed or replaced file.
    struct Stamp {
        int64_t changed_ns = 0, bytes = 0;
        uint64_t file = 0;
        bool operator==(const Stamp&) const = default;
    };
    explicit KeyStore(std::string path) : path_(std::move(path)) {}
    Stamp Look() const;
    Status ReloadLocked();

    const std::string path_;
    std::mutex mutex_;
    std::shared_ptr<const KeyRing> ring_;
    Stamp stamp_;
    int64_t looked_ns_ = 0;
};

// A new key: "weft-" and 48 hexadecimal digits.
std::string NewApiKey();
// The file's line for a key.
std::string KeyLine(const std::string& name, std::string_view key, const KeyLimits& limits);
// kUsage: invalid name, or a limit out of range.
Status CheckKey(const std::string& name, const KeyLimits& limits);

// Prefix-cache namespace of a key: its group, or the key itself. The key is represented by its
// hash, since a later key may have the same name.
std::string TenantOf(const ApiKey& key);

// The key in "Authorization: Bearer KEY" or "x-api-key: KEY"; empty: the request has no key.
std::string_view PresentedKey(const HttpRequest& request);

}  // namespace weft::serve
