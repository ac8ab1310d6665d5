#include "base/confine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/fd.h"
#include "base/home_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

struct Limits {
    FolderLimit named, own;  // own: the cache
};
const Limits* g_limits = nullptr;  // set once, by Confine

// linux/landlock.h of Linux 6.2, which older distributions lack.
struct LandlockRules {
    uint64_t handled_access_fs;
};
struct __attribute__((packed)) LandlockBeneath {
    uint64_t allowed_access;
    int32_t parent_fd;
};
constexpr uint64_t kWriteFile = 1 << 1, kRefer = 1 << 13, kTruncate = 1 << 14;
constexpr uint64_t kRemoveAndMake = 0x1ff0;  // all of REMOVE_DIR (bit 4) to MAKE_SYM (bit 12)
constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;  // on all machines
constexpr unsigned kVersion = 1;
constexpr int kPathBeneath = 1;

// All ways to change files that the kernel can refuse; 0: it can't refuse any.
uint64_t RefusableChanges() {
    const long version = ::syscall(kCreateRuleset, nullptr, 0, kVersion);
    if (version < 1) return 0;
    return kWriteFile | kRemoveAndMake | (version >= 2 ? kRefer : 0) |
           (version >= 3 ? kTruncate : 0);
}

Status KernelError(const char* what) {
    return MakeError(ErrorCode::kIo, "--folders: cannot confine this process: {}: {}", what,
                     std::strerror(errno));
}

// Refuses this process all changes of files outside `folders`, and of devices outside /dev.
Status RefuseChangesOutside(const std::vector<std::string>& folders) {
    const uint64_t changes = RefusableChanges();
    if (changes == 0) return {};
    const LandlockRules rules{changes};
    const Fd ruleset(static_cast<int>(::syscall(kCreateRuleset, &rules, sizeof rules, 0)));
    if (!ruleset.valid()) return KernelError("landlock_create_ruleset");
    for (const std::string& folder : folders) {
        const Fd parent(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        if (!parent.valid()) continue;  // there is nothing to change
        const LandlockBeneath beneath{changes, parent.get()};
        if (::syscall(kAddRule, ruleset.get(), kPathBeneath, &beneath, 0) != 0) {
            return KernelError("landlock_add_rule");
        }
    }
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return KernelError("prctl");
    if (::syscall(kRestrictSelf, ruleset.get(), 0) != 0) {
        return KernelError("landlock_restrict_self");
    }
    return {};
}

// The limit of Weft's cache; none if there is no cache.
FolderLimit OwnLimit() {
    const std::string cache = CacheFolder();
    if (cache.empty()) return {};
    std::error_code ignored;
    fs::create_directories(cache, ignored);
    auto limit = FolderLimit::Make({cache});
    return limit.ok() ? *std::move(limit) : FolderLimit();
}

}  // namespace

Status Confine(const FolderLimit& limit) {
    if (limit.folders().empty()) return {};
    static Limits limits;
    limits = {limit, OwnLimit()};
    std::vector<std::string> changed = {"/dev", "/proc", "/sys"};
    for (const FolderLimit* each : {&limits.named, &limits.own}) {
        changed.insert(changed.end(), each->folders().begin(), each->folders().end());
    }
    WEFT_TRY(RefuseChangesOutside(changed));
    g_limits = &limits;
    return {};
}

Status CheckConfined(const std::string& path) {
    if (g_limits == nullptr) return {};
    Status allowed = g_limits->named.Check(path);
    const bool own = !g_limits->own.folders().empty() && g_limits->own.Check(path).ok();
    return own ? Status() : allowed;
}

Status CheckOpened(int fd, const std::string& path) {
    if (g_limits == nullptr) return {};
    std::error_code error;
    const fs::path opened = fs::read_symlink(fmt::format("/proc/self/fd/{}", fd), error);
    if (error) return MakeError(ErrorCode::kDenied, "{}: {}", path, error.message());
    const Status allowed = CheckConfined(opened.string());
    if (allowed.ok()) return {};
    return MakeError(allowed.error().code, "{}: {}", path, allowed.error().message);
}

}  // namespace weft
