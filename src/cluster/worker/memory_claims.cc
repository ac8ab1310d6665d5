#include "cluster/worker/memory_claims.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <string_view>

#include "base/deadline.h"
#include "base/file_lock.h"
#include "base/memory_file.h"
#include "cluster/frame.h"
#include "hw/environment.h"

namespace weft::cluster {
namespace {

constexpr size_t kMostClaims = 8;  // memories of a job
constexpr int64_t kLockMs = 5000;

struct MemoryClaim {
    uint64_t memory = 0;  // hash of its name
    uint64_t bytes = 0;   // resident: of the process once everything is filled
    uint64_t resident = 0;
};
// The content of a slot.
struct JobRecord {
    int32_t pid = 0;  // 0: no job
    uint32_t count = 0;
    uint64_t ticket = 0;
    int64_t began_ns = 0;
    std::array<char, 64> from{};
    std::array<MemoryClaim, kMostClaims> claims{};
};

off_t PlaceOf(size_t slot) {
    return static_cast<off_t>(slot * sizeof(JobRecord));
}

// Reads a slot. Returns an empty record if nothing was written there.
JobRecord Read(const Fd& fd, size_t slot) {
    JobRecord record;
    const ssize_t got = ::pread(fd.get(), &record, sizeof record, PlaceOf(slot));
    if (got != static_cast<ssize_t>(sizeof record)) record = {};
    record.count = std::min<uint32_t>(record.count, kMostClaims);
    record.from.back() = '\0';
    return record;
}

void Write(const Fd& fd, size_t slot, const JobRecord& record) {
    [[maybe_unused]] const ssize_t put = ::pwrite(fd.get(), &record, sizeof record, PlaceOf(slot));
}

class Lock {
  public:
    static Result<Lock> Take(const Fd& fd) {
        WEFT_TRY(LockOpenFile(fd.get(), "the memory claims of this worker's jobs", kLockMs));
        return Lock(fd.get());
    }
    Lock(Lock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Lock& operator=(Lock&&) = delete;
    ~Lock() {
        if (fd_ >= 0) ::flock(fd_, LOCK_UN);
    }

  private:
    explicit Lock(int fd) : fd_(fd) {}
    int fd_;
};

// Bytes that the process has filled; nullopt: the process has ended.
std::optional<uint64_t> FilledBytes(pid_t pid) {
    std::ifstream file(fmt::format("/proc/{}/status", pid));
    std::optional<uint64_t> filled;
    for (std::string line; std::getline(file, line);) {
        for (const std::string_view key : {"RssAnon:", "RssShmem:"}) {
            if (!line.starts_with(key)) continue;
            filled =
                filled.value_or(0) + std::strtoull(line.c_str() + key.size(), nullptr, 10) * 1024;
        }
    }
    return filled;
}

uint64_t HashOf(const std::string& memory) {
    return std::hash<std::string>()(memory);
}

uint64_t Above(uint64_t a, uint64_t b) {
    return a - std::min(a, b);
}

// One other job's claim to one memory.
struct Claimed {
    uint64_t bytes = 0;     // all
    uint64_t unfilled = 0;  // of these
};
Claimed ClaimedBy(const JobRecord& record, uint64_t memory, uint64_t filled) {
    Claimed claimed;
    for (const MemoryClaim& claim : std::span(record.claims).first(record.count)) {
        if (claim.memory != memory) continue;
        claimed.bytes += claim.bytes;
        claimed.unfilled += claim.resident != 0 ? Above(claim.bytes, filled) : claim.bytes;
    }
    return claimed;
}

}  // namespace

std::string JobText(pid_t pid, const std::string& from, int64_t began_ns) {
    std::string kind;
    std::ifstream file(fmt::format("/proc/{}/comm", pid));
    std::getline(file, kind);
    // (A new process still has the program's name.)
    if (kind.empty() || kind == "weft" || kind == "exe") kind = "a job";
    return fmt::format("{} of {}, for {:.0f} s", kind, from, SecondsSince(began_ns));
}

Result<MemoryClaims> MemoryClaims::Make() {
    MemoryClaims claims;
    claims.fd_ = MemoryFile("weft-claims");
    if (claims.fd_.valid()) return claims;
    return MakeError(ErrorCode::kIo, "cannot make a file of memory claims: {}",
                     std::strerror(errno));
}

std::string MemoryClaims::WordOf(size_t slot) const {
    return fmt::format("/proc/{}/fd/{}:{}", ::getpid(), fd_.get(), slot);
}

Result<MemoryClaims> MemoryClaims::Open(const std::string& word) {
    const size_t colon = word.rfind(':');
    MemoryClaims claims;
    const char* const end = word.data() + word.size();
    const bool has_slot = colon != std::string::npos && colon + 1 < word.size();
    if (!has_slot || std::from_chars(word.data() + colon + 1, end, claims.slot_).ptr != end ||
        claims.slot_ >= kMostJobs) {
        return MakeError(ErrorCode::kUsage,
                         "--claims {}: not a slot of a worker. Weft itself starts its jobs", word);
    }
    const std::string path = word.substr(0, colon);
    claims.fd_ = Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!claims.fd_.valid()) return MakeError(ErrorCode::kIo, "{}: {}", path, std::strerror(errno));
    JobRecord own = Read(claims.fd_, claims.slot_);
    own.pid = ::getpid();
    Write(claims.fd_, claims.slot_, own);
    return claims;
}

void MemoryClaims::Begin(size_t slot, uint64_t ticket, const std::string& from) const {
    JobRecord record{.ticket = ticket, .began_ns = NowNs()};
    from.copy(record.from.data(), record.from.size() - 1);
    Write(fd_, slot, record);
}

void MemoryClaims::Clear(size_t slot) const {
    Write(fd_, slot, {});
}

// Subtracts the claims of other jobs from the free bytes of `need`.
void MemoryClaims::CountOthers(uint64_t ticket, MemoryNeed& need) const {
    const auto limit = need.memory.empty() ? MemoryOfEnvironment() : std::nullopt;
    uint64_t all = 0, unfilled = 0;
    for (size_t slot = 0; slot < kMostJobs; ++slot) {
        const JobRecord other = Read(fd_, slot);
        // (Another rank of the same job adds its own needs.)
        const bool own = slot == slot_ || (ticket != 0 && other.ticket == ticket);
        if (own || other.pid == 0) continue;
        const std::optional<uint64_t> filled = FilledBytes(other.pid);
        if (!filled.has_value()) continue;
        const Claimed claimed = ClaimedBy(other, HashOf(need.memory), *filled);
        all += claimed.bytes;
        unfilled += claimed.unfilled;
        const uint64_t holds = limit ? claimed.bytes : claimed.unfilled;
        if (holds == 0) continue;
        need.claimants += fmt::format("{}{}: {:.0f} MiB", need.claimants.empty() ? "" : "; ",
                                      JobText(other.pid, other.from.data(), other.began_ns),
                                      static_cast<double>(holds) / 1048576.0);
    }
    uint64_t available = Above(need.free_bytes, unfilled);
    // The free bytes below the user's limit include what other jobs have filled.
    if (limit) available = std::min(available, Above(*limit, all));
    need.claimed_bytes = need.free_bytes - available;
}

Status MemoryClaims::Claim(std::span<MemoryNeed> needs) const {
    if (!fd_.valid()) return {};
    WEFT_ASSIGN(const Lock lock, Lock::Take(fd_));
    JobRecord own = Read(fd_, slot_);
    own.count = 0;
    for (MemoryNeed& need : needs) CountOthers(own.ticket, need);
    const bool fits = std::ranges::all_of(needs, [](const MemoryNeed& need) {
        return need.free_bytes == 0 || need.needed_bytes <= need.free_bytes - need.claimed_bytes;
    });
    const uint64_t filled = FilledBytes(own.pid).value_or(0);
    for (const MemoryNeed& need : needs) {
        if (!fits || own.count == kMostClaims) break;
        own.claims[own.count++] = {HashOf(need.memory),
                                   need.needed_bytes + (need.resident ? filled : 0),
                                   need.resident ? 1u : 0u};
    }
    Write(fd_, slot_, own);
    return {};
}

void MemoryClaims::Release() const {
    if (!fd_.valid()) return;
    JobRecord own = Read(fd_, slot_);
    own.count = 0;
    Write(fd_, slot_, own);
}

void MemoryClaims::NoteLoaded() const {
    if (!fd_.valid()) return;
    JobRecord own = Read(fd_, slot_);
    for (MemoryClaim& claim : std::span(own.claims).first(own.count)) {
        if (claim.resident == 0) claim.bytes = 0;
    }
    Write(fd_, slot_, own);
}

}  // namespace weft::cluster
