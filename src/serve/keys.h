// API keys: who may ask, how much, and before whom. They stand in a file, a line each:
//
//     # comments and empty lines
//     NAME SHA256HEX [rate=N] [tokens=N] [concurrent=N] [priority=N] [weight=W] [group=NAME]
//
// rate: requests a minute; tokens: tokens a minute, prompt and answer; concurrent: requests at
// once, and sequences that run at once; 0 or absent: no limit. priority (-100 to 100, 0) and
// weight (0.01 to 100, 1) are the scheduler's. Keys of one group share the prefix cache, all
// others have it each for itself.
//
// The file holds no key, only its SHA-256: who reads it can't ask. A plain hash suffices (no salt,
// no slow hash), because keys are random, of 192 bits (NewApiKey), and not words that people
// choose: there is no list to try. Hashes are compared in constant time, all of them at each
// look-up.
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
    std::string group{};  // who shares the prefix cache; "": nobody else
    bool operator==(const KeyLimits&) const = default;
};

struct ApiKey {
    std::string name;  // 1 to 64 letters, digits and "._-"
    Sha256Digest digest;
    KeyLimits limits;
};

// The keys of one state of the file. Immutable.
class KeyRing {
  public:
    static constexpr size_t kMostKeys = 4096;

    // where: the file's name, for errors. kCorrupt names the line; never what may be a key.
    static Result<KeyRing> Parse(std::string_view text, const std::string& where);
    // The one of which `key` is the text; null where there is none. Lives as long as the ring.
    const ApiKey* Find(std::string_view key) const;
    const std::vector<ApiKey>& keys() const { return keys_; }

  private:
    std::vector<ApiKey> keys_;
};

// The keys of a file that may change while they are used. Any thread.
class KeyStore {
  public:
    // Errors as ReadTextFile and KeyRing::Parse. Warns of a file that others may read or write.
    static Result<std::unique_ptr<KeyStore>> Open(const std::string& path);

    // The keys as they are now; looks, at most once a second, whether the file has changed.
    std::shared_ptr<const KeyRing> ring();
    // Reads the file again (on SIGHUP). A file with a bad line leaves the old keys, and the error
    // that is returned is logged, too.
    Status Reload();

  private:
    // What tells a file that was changed or replaced.
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
// The line of the file for it.
std::string KeyLine(const std::string& name, std::string_view key, const KeyLimits& limits);
// kUsage where it is no name, or a limit is out of its range.
Status CheckKey(const std::string& name, const KeyLimits& limits);

// Whose texts in the prefix cache requests with this key may meet: those of its group, or its own.
// Goes by the key itself, not by its name, which another may have after it.
std::string TenantOf(const ApiKey& key);

// What a request has in "Authorization: Bearer KEY" or "x-api-key: KEY"; empty where neither.
std::string_view PresentedKey(const HttpRequest& request);

}  // namespace weft::serve
