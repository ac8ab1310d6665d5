#include "serve/keys.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_set>
#include <utility>

#include "base/deadline.h"
#include "base/file.h"
#include "base/log.h"

namespace weft::serve {
namespace {

constexpr uint64_t kMostFileBytes = 1 << 20;
constexpr int64_t kLookNs = 1'000'000'000;
constexpr int64_t kMostLimit = 1'000'000'000'000;
constexpr int kMostPriority = 100;
constexpr double kLeastWeight = 0.01, kMostWeight = 100;

bool IsName(std::string_view text) {
    return !text.empty() && text.size() <= 64 && std::ranges::all_of(text, [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               c == '.' || c == '_' || c == '-';
    });
}

bool ParseDigest(std::string_view text, Sha256Digest& digest) {
    if (text.size() != 2 * digest.size()) return false;
    for (size_t i = 0; i < digest.size(); ++i) {
        const char* begin = text.data() + 2 * i;
        const auto [end, ec] = std::from_chars(begin, begin + 2, digest[i], 16);
        if (ec != std::errc() || end != begin + 2) return false;
    }
    return true;
}

template <typename Number>
bool ParseNumber(std::string_view text, Number least, Number most, Number& number) {
    const char* end = text.data() + text.size();
    const auto [at, ec] = std::from_chars(text.data(), end, number);
    return ec == std::errc() && at == end && number >= least && number <= most;
}

// Parses "rate=60" and similar; each may occur once.
Status ParseLimit(std::string_view word, KeyLimits& limits, std::unordered_set<std::string>& seen) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name(word.substr(0, equals));
    const std::string_view value = word.substr(std::min(equals + 1, word.size()));
    if (!seen.insert(name).second) {
        return MakeError(ErrorCode::kCorrupt, "'{}=' stands twice", name);
    }
    bool ok = false;
    if (name == "rate") {
        ok = ParseNumber<int64_t>(value, 0, kMostLimit, limits.requests_per_minute);
    } else if (name == "tokens") {
        ok = ParseNumber<int64_t>(value, 0, kMostLimit, limits.tokens_per_minute);
    } else if (name == "concurrent") {
        ok = ParseNumber<int64_t>(value, 0, kMostLimit, limits.concurrent);
    } else if (name == "priority") {
        ok = ParseNumber<int>(value, -kMostPriority, kMostPriority, limits.priority);
    } else if (name == "weight") {
        ok = ParseNumber<double>(value, kLeastWeight, kMostWeight, limits.weight);
    } else if (name == "group") {
        ok = IsName(value);
        limits.group = value;
    } else {
        // The word is not quoted: it may be a key.
        return MakeError(
            ErrorCode::kCorrupt,
            "an unknown word; expected rate=, tokens=, concurrent=, priority=, weight= or group=");
    }
    if (ok) return {};
    return MakeError(ErrorCode::kCorrupt,
                     "'{}': expected a number in range (rate, tokens, concurrent: 0 or more; "
                     "priority: -{} to {}; weight: {} to {}) or a name (group)",
                     name, kMostPriority, kMostPriority, kLeastWeight, kMostWeight);
}

Result<ApiKey> ParseLine(std::string_view line) {
    std::vector<std::string_view> words;
    for (size_t at = 0; at < line.size();) {
        const size_t begin = std::min(line.find_first_not_of(" \t", at), line.size());
        const size_t end = std::min(line.find_first_of(" \t", begin), line.size());
        if (end > begin) words.push_back(line.substr(begin, end - begin));
        at = end;
    }
    ApiKey key;
    if (words.size() < 2 || !IsName(words[0]) || !ParseDigest(words[1], key.digest)) {
        return MakeError(ErrorCode::kCorrupt,
                         "expected NAME (letters, digits, '._-') and the key's SHA-256 in 64 "
                         "hexadecimal digits, as printed by 'weft key new NAME'");
    }
    key.name = words[0];
    std::unordered_set<std::string> seen;
    for (size_t i = 2; i < words.size(); ++i) WEFT_TRY(ParseLimit(words[i], key.limits, seen));
    return key;
}

Sha256Digest DigestOf(std::string_view key) {
    return Sha256(std::as_bytes(std::span(key)));
}

void WarnOfAccess(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return;
    if ((status.st_mode & (S_IROTH | S_IWOTH | S_IWGRP)) == 0) return;
    Log(LogLevel::kWarning,
        "{} has mode {:o}: other users can read it or add keys; run 'chmod 600 {}'", path,
        status.st_mode & 07777, path);
}

}  // namespace

Result<KeyRing> KeyRing::Parse(std::string_view text, const std::string& where) {
    KeyRing ring;
    std::unordered_set<std::string> names, digests;
    size_t number = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        std::string_view line = text.substr(at, end - at);
        at = end + 1;
        ++number;
        line = line.substr(0, line.find('#'));
        if (line.find_first_not_of(" \t\r") == line.npos) continue;
        while (line.ends_with('\r')) line.remove_suffix(1);
        const auto fail = [&](const std::string& why) {
            return MakeError(ErrorCode::kCorrupt, "{}:{}: {}", where, number, why);
        };
        Result<ApiKey> key = ParseLine(line);
        if (!key.ok()) return fail(key.error().message);
        if (!names.insert(key->name).second) {
            return fail(
                fmt::format("the name '{}' occurs twice; each key needs its own name", key->name));
        }
        if (!digests.insert(Hex(key->digest)).second) {
            return fail(
                fmt::format("the key of '{}' occurs earlier under another name", key->name));
        }
        if (ring.keys_.size() == kMostKeys) {
            return fail(fmt::format("more than {} keys", kMostKeys));
        }
        ring.keys_.push_back(std::move(key).value());
    }
    return ring;
}

const ApiKey* KeyRing::Find(std::string_view key) const {
    if (key.empty()) return nullptr;
    const Sha256Digest digest = DigestOf(key);
    const ApiKey* found = nullptr;
    for (const ApiKey& candidate : keys_) {
        if (DigestsEqual(candidate.digest, digest)) found = &candidate;
    }
    return found;
}

Result<std::unique_ptr<KeyStore>> KeyStore::Open(const std::string& path) {
    std::unique_ptr<KeyStore> store(new KeyStore(path));
    const std::lock_guard lock(store->mutex_);
    WEFT_TRY(store->ReloadLocked());
    WarnOfAccess(path);
    if (store->ring_->keys().empty()) {
        Log(LogLevel::kWarning,
            "{} contains no key, so nobody can use the server; run 'weft key new NAME >> {}'", path,
            path);
    }
    return store;
}

KeyStore::Stamp KeyStore::Look() const {
    struct stat status {};
    if (::stat(path_.c_str(), &status) != 0) return {};
    return {.changed_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec,
            .bytes = status.st_size,
            .file = status.st_ino};
}

// The stamp is taken before reading, so that a change during the read is seen next time.
Status KeyStore::ReloadLocked() {
    looked_ns_ = NowNs();
    stamp_ = Look();
    WEFT_ASSIGN(const std::string text, ReadTextFile(path_, kMostFileBytes));
    WEFT_ASSIGN(KeyRing ring, KeyRing::Parse(text, path_));
    ring_ = std::make_shared<const KeyRing>(std::move(ring));
    return {};
}

std::shared_ptr<const KeyRing> KeyStore::ring() {
    const std::lock_guard lock(mutex_);
    const int64_t now_ns = NowNs();
    if (now_ns - looked_ns_ < kLookNs) return ring_;
    looked_ns_ = now_ns;
    if (Look() == stamp_) return ring_;
    if (const Status done = ReloadLocked(); !done.ok()) {
        Log(LogLevel::kError, "API keys are unchanged: {}", done.error().message);
    } else {
        Log(LogLevel::kInfo, "{}: {} API keys", path_, ring_->keys().size());
    }
    return ring_;
}

Status KeyStore::Reload() {
    const std::lock_guard lock(mutex_);
    Status done = ReloadLocked();
    if (done.ok()) {
        Log(LogLevel::kInfo, "{}: {} API keys", path_, ring_->keys().size());
    } else {
        Log(LogLevel::kError, "API keys are unchanged: {}", done.error().message);
    }
    return done;
}

std::string NewApiKey() {
    std::array<uint8_t, 24> bytes;
    RandomBytes(std::as_writable_bytes(std::span(bytes)));
    return "weft-" + Hex(bytes);
}

std::string KeyLine(const std::string& name, std::string_view key, const KeyLimits& limits) {
    std::string line = name + " " + Hex(DigestOf(key));
    const KeyLimits none;
    const auto add = [&](const char* word, auto value, auto unless) {
        if (value != unless) line += fmt::format(" {}={}", word, value);
    };
    add("rate", limits.requests_per_minute, none.requests_per_minute);
    add("tokens", limits.tokens_per_minute, none.tokens_per_minute);
    add("concurrent", limits.concurrent, none.concurrent);
    add("priority", limits.priority, none.priority);
    add("weight", limits.weight, none.weight);
    add("group", limits.group, none.group);
    return line;
}

Status CheckKey(const std::string& name, const KeyLimits& limits) {
    const auto parsed = KeyRing::Parse(KeyLine(name, "any", limits), "key");
    if (parsed.ok() && IsName(name) && parsed->keys().size() == 1) return {};
    return MakeError(
        ErrorCode::kUsage, "invalid key '{}': {}", name,
        parsed.ok() ? "a name has 1 to 64 letters, digits and '._-'" : parsed.error().message);
}

std::string TenantOf(const ApiKey& key) {
    return key.limits.group.empty() ? "key " + Hex(key.digest) : "group " + key.limits.group;
}

std::string_view PresentedKey(const HttpRequest& request) {
    std::string_view text = request.Header("Authorization");
    constexpr std::string_view kBearer = "Bearer ";
    if (text.size() > kBearer.size() && SameName(text.substr(0, kBearer.size()), kBearer)) {
        text.remove_prefix(kBearer.size());
        text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
        return text;
    }
    return request.Header("x-api-key");
}

}  // namespace weft::serve
