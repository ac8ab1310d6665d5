#include "serve/rate_table.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>

#include "base/deadline.h"
#include "base/memory_file.h"
#include "serve/keys.h"
#include "serve/limiter.h"

namespace weft::serve {
namespace {

constexpr double kMinuteMs = 60'000;
constexpr size_t kEntries = 2 * KeyRing::kMostKeys;
constexpr size_t kProbes = 64;  // most entries that a search for a key visits
// Longest wait for the lock: a process that is stopped while it holds the lock delays others no
// longer.
constexpr long kLockNs = 100'000'000;

constexpr size_t kKeyBytes = 72;

struct Entry {
    char key[kKeyBytes] = {};  // "": unused
    int64_t used_ns = 0;
    Rates rates;
};

struct OpenEntry {
    char key[kKeyBytes] = {};
    pid_t process = 0;  // 0: unused
    OpenCharges charges{};
};

std::string NameOf(const char* key) {
    return {key, ::strnlen(key, kKeyBytes)};
}

void SetName(char* key, const std::string& name) {
    key[name.copy(key, kKeyBytes - 1)] = '\0';
}

}  // namespace

void Bucket::Fill(int64_t new_limit, int64_t now_ns) {
    const double ms = static_cast<double>(std::max<int64_t>(0, now_ns - at_ns)) * 1e-6;
    level = limit > 0 ? level + ms * static_cast<double>(limit) / kMinuteMs
                      // a new limit begins with a full bucket
                      : static_cast<double>(new_limit);
    limit = new_limit;
    at_ns = now_ns;
    level = std::min(level, static_cast<double>(limit));
}

void Bucket::Give(double amount) {
    level = std::min(level + amount, static_cast<double>(limit));
}

int64_t Bucket::WaitMs(double needed) const {
    if (limit <= 0 || level >= needed) return 0;
    return static_cast<int64_t>(
        std::ceil((needed - level) * kMinuteMs / static_cast<double>(limit)));
}

int64_t Bucket::remaining() const {
    return static_cast<int64_t>(std::max(0.0, std::floor(level)));
}

void Bucket::AddHeaders(const char* what, Headers& headers) const {
    if (limit <= 0) return;
    const std::string prefix = "x-ratelimit-";
    headers.emplace_back(prefix + "limit-" + what, std::to_string(limit));
    headers.emplace_back(prefix + "remaining-" + what, std::to_string(remaining()));
    headers.emplace_back(prefix + "reset-" + what,
                         DurationText(WaitMs(static_cast<double>(limit))));
}

struct RateTable::Page {
    pthread_mutex_t mutex;
    Entry entries[kEntries];
    OpenEntry open[kEntries];

    // Finds or makes the entry of this process and key; null: all places are taken.
    OpenEntry* Open(const std::string& key) {
        const pid_t process = ::getpid();
        const size_t begin = std::hash<std::string>()(key) % kEntries;
        OpenEntry* free = nullptr;
        for (size_t i = 0; i < kProbes; ++i) {
            OpenEntry& entry = open[(begin + i) % kEntries];
            if (entry.process == process && NameOf(entry.key) == key) return &entry;
            if (entry.process == 0 && free == nullptr) free = &entry;
        }
        if (free == nullptr) return nullptr;
        *free = {.process = process};
        SetName(free->key, key);
        return free;
    }
};

RateTable::RateTable() : page_(new Page()) {
    ::pthread_mutex_init(&page_->mutex, nullptr);
}

RateTable::~RateTable() {
    if (!fd_.valid()) {
        delete page_;
    } else if (page_ != nullptr) {
        ::munmap(page_, sizeof(Page));
    }
}

Result<std::shared_ptr<RateTable>> RateTable::Share() {
    Fd fd = MemoryFile("weft-rates");
    if (!fd.valid() || ::ftruncate(fd.get(), sizeof(Page)) != 0) {
        return MakeError(ErrorCode::kIo, "cannot share the rates of API keys: {}",
                         std::strerror(errno));
    }
    WEFT_ASSIGN(std::shared_ptr<RateTable> table, Attach(std::move(fd)));
    pthread_mutexattr_t shared;
    ::pthread_mutexattr_init(&shared);
    ::pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    ::pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    ::pthread_mutex_init(&table->page_->mutex, &shared);
    ::pthread_mutexattr_destroy(&shared);
    return table;
}

Result<std::shared_ptr<RateTable>> RateTable::Attach(Fd fd) {
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0 || info.st_size != sizeof(Page)) {
        return MakeError(ErrorCode::kCorrupt,
                         "the rates of API keys are not table of this program");
    }
    std::shared_ptr<RateTable> table(new RateTable(std::move(fd)));
    void* const page =
        ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, table->fd_.get(), 0);
    if (page == MAP_FAILED) {
        return MakeError(ErrorCode::kIo, "cannot map the rates of API keys: {}",
                         std::strerror(errno));
    }
    table->page_ = static_cast<Page*>(page);
    return table;
}

Rates& RateTable::Find(const std::string& key) {
    const size_t begin = std::hash<std::string>()(key) % kEntries;
    Entry* oldest = nullptr;
    for (size_t i = 0; i < kProbes; ++i) {
        Entry& entry = page_->entries[(begin + i) % kEntries];
        if (NameOf(entry.key) == key) {
            entry.used_ns = NowNs();
            return entry.rates;
        }
        if (oldest == nullptr || entry.used_ns < oldest->used_ns) oldest = &entry;
    }
    *oldest = {};
    SetName(oldest->key, key);
    oldest->used_ns = NowNs();
    return oldest->rates;
}

bool RateTable::Lock() {
    timespec until{};
    ::clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += kLockNs;
    if (until.tv_nsec >= 1'000'000'000) ++until.tv_sec, until.tv_nsec -= 1'000'000'000;
    const int locked = ::pthread_mutex_timedlock(&page_->mutex, &until);
    // (The numbers are valid even if the lock's holder was killed.)
    if (locked == EOWNERDEAD) ::pthread_mutex_consistent(&page_->mutex);
    return locked == 0 || locked == EOWNERDEAD;
}

void RateTable::With(const std::string& key, const Change& change) {
    OpenCharges unowned;
    if (!Lock()) {
        Rates alone;  // no limit holds while the table cannot be used
        return change(alone, unowned);
    }
    OpenEntry* const open = page_->Open(key);
    change(Find(key), open != nullptr ? open->charges : unowned);
    if (open != nullptr && open->charges.requests <= 0 && open->charges.tokens <= 0) *open = {};
    ::pthread_mutex_unlock(&page_->mutex);
}

void RateTable::GiveBackOfEnded() {
    if (!Lock()) return;
    for (OpenEntry& open : page_->open) {
        if (open.process == 0 || ::kill(open.process, 0) == 0 || errno != ESRCH) continue;
        Rates& rates = Find(NameOf(open.key));
        rates.requests.Give(open.charges.requests);
        rates.tokens.Give(open.charges.tokens);
        open = {};
    }
    ::pthread_mutex_unlock(&page_->mutex);
}

}  // namespace weft::serve
