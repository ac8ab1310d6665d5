#include "serve/api/openai/response_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/file.h"
#include "base/json_digits.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/own_folder.h"

namespace weft::serve {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "resp_", kSuffix = ".json";
constexpr size_t kMostIdBytes = 64;
constexpr int64_t kSweepNs = 3'600'000'000'000;
// An interrupted write is this old, unless the hosts' clocks differ by hours.
constexpr double kAbandonedS = 3600;
// A file nests deeper than the request that it repeats.
constexpr JsonLimits kFileLimits{.bytes = size_t{1} << 30, .depth = 110, .values = size_t{1} << 24};

bool IsWord(std::string_view text) {
    return std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) != 0; });
}

// Whether `id` has the form of this server's ids, and is therefore safe as a file's name.
bool IsResponseId(std::string_view id) {
    return id.starts_with(kPrefix) && id.size() > kPrefix.size() && id.size() <= kMostIdBytes &&
           IsWord(id.substr(kPrefix.size()));
}

// Age by the clock of this host and the time stamp of the file system.
double AgeS(const struct stat& info) {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<double>(now.tv_sec - info.st_mtim.tv_sec) +
           static_cast<double>(now.tv_nsec - info.st_mtim.tv_nsec) * 1e-9;
}

Status MakeFolder(const std::string& path) {
    if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
    return MakeError(ErrorCode::kIo, "{}: cannot create the folder: {}", path,
                     std::strerror(errno));
}

bool IsListOfObjects(const Json& json) {
    return json.is_array() &&
           std::ranges::all_of(json, [](const Json& item) { return item.is_object(); });
}

// Whether a file has the members that readers of a stored response use.
bool IsStored(const Json& file, const std::string& id) {
    if (!file.is_object() || !file.contains("response") || !file.contains("items")) return false;
    const Json& response = file["response"];
    return response.is_object() && response.value("id", Json()) == id &&
           response.contains("output") && IsListOfObjects(response["output"]) &&
           IsListOfObjects(file["items"]);
}

struct Entry {
    std::string path;
    int64_t bytes = 0;
    timespec changed{};
};

bool IsOlder(const Entry& a, const Entry& b) {
    return std::pair(a.changed.tv_sec, a.changed.tv_nsec) <
           std::pair(b.changed.tv_sec, b.changed.tv_nsec);
}

// The responses of one owner, oldest first from `oldest` on.
struct Held {
    std::vector<Entry> entries{};
    size_t oldest = 0;
    int64_t bytes = 0;
    int64_t count() const { return static_cast<int64_t>(entries.size() - oldest); }
};

// Lists an owner's responses. Removes expired ones and abandoned temporary files.
Held List(const fs::path& folder, double age_s) {
    Held held;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        const std::string path = at->path().string(), name = at->path().filename().string();
        struct stat info {};
        if (!name.starts_with(kPrefix) || ::lstat(path.c_str(), &info) != 0) continue;
        if (!S_ISREG(info.st_mode)) continue;
        if (AgeS(info) > (name.ends_with(kSuffix) ? age_s : kAbandonedS)) {
            ::unlink(path.c_str());
        } else if (name.ends_with(kSuffix)) {
            held.entries.push_back({path, info.st_size, info.st_mtim});
            held.bytes += info.st_size;
        }
    }
    std::ranges::sort(held.entries, IsOlder);
    return held;
}

}  // namespace

Result<std::unique_ptr<ResponseFolder>> ResponseFolder::Open(const std::string& path,
                                                             Limits limits) {
    WEFT_TRY(MakeOwnFolder("--responses-dir", path));
    std::unique_ptr<ResponseFolder> folder(new ResponseFolder(path, limits));
    // A folder that cannot be written is an error now, not with the first response.
    const std::string trial = FreshName(folder->PathOf("", "resp_trial"));
    WEFT_TRY(MakeFolder(path + "/all"));
    WEFT_TRY(WriteFile(trial, {}));
    ::unlink(trial.c_str());
    folder->Sweep();
    return folder;
}

// Returns "" if no such response can exist.
std::string ResponseFolder::PathOf(const std::string& owner, const std::string& id) const {
    if (!IsWord(owner) || !IsResponseId(id)) return "";
    return path_ + "/" + (owner.empty() ? "all" : owner) + "/" + id + std::string(kSuffix);
}

Status ResponseFolder::Write(const std::string& owner, const std::string& id,
                             const std::string& text) {
    const std::string path = PathOf(owner, id);
    if (path.empty()) return MakeError(ErrorCode::kUsage, "'{}' is not a response's id", id);
    WEFT_TRY(MakeFolder(fs::path(path).parent_path().string()));
    return ReplaceFile(path, text);
}

void ResponseFolder::Put(const std::string& owner, const std::string& id, Stored stored) {
    if (!on()) return;
    const std::string text =
        DumpJson({{"response", std::move(stored.response)}, {"items", *stored.items}});
    const auto bytes = static_cast<int64_t>(text.size());
    if (bytes > limits_.bytes) return;
    if (const Status written = Write(owner, id, text); !written.ok()) {
        return Log(LogLevel::kWarning, "a response is not stored: {}", written.error().message);
    }
    if (SweepIsDue(bytes)) Sweep();
}

std::shared_ptr<const ResponseStore::Stored> ResponseFolder::Get(const std::string& owner,
                                                                 const std::string& id) const {
    const std::string path = PathOf(owner, id);
    struct stat info {};
    if (path.empty() || ::lstat(path.c_str(), &info) != 0) return nullptr;
    if (!S_ISREG(info.st_mode) || AgeS(info) > limits_.age_s) return nullptr;
    const auto text = ReadTextFile(path, static_cast<uint64_t>(limits_.bytes));
    auto file = text.ok() ? ParseJsonWithDigits(*text, kFileLimits) : Result<Json>(text.error());
    if (file.ok() && !IsStored(*file, id)) {
        file = MakeError(ErrorCode::kCorrupt, "it is not a stored response");
    }
    if (!file.ok()) {
        // (Another server may have removed it meanwhile.)
        if (::lstat(path.c_str(), &info) == 0) {
            Log(LogLevel::kWarning, "{}: {}", path, file.error().message);
        }
        return nullptr;
    }
    auto items = std::make_shared<const Json>(std::move((*file)["items"]));
    Json response = std::move((*file)["response"]);
    const int64_t held = HeldBytes(*items) + HeldBytes(response);
    return std::make_shared<const Stored>(Stored{std::move(response), std::move(items), held});
}

bool ResponseFolder::Remove(const std::string& owner, const std::string& id) {
    const std::string path = PathOf(owner, id);
    struct stat info {};
    if (path.empty() || ::lstat(path.c_str(), &info) != 0) return false;
    const bool expired = AgeS(info) > limits_.age_s;
    return ::unlink(path.c_str()) == 0 && !expired;
}

// Counts a written file of `bytes` bytes.
bool ResponseFolder::SweepIsDue(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    new_count_ += 1;
    new_bytes_ += bytes;
    return new_count_ > limits_.count / 16 || new_bytes_ > limits_.bytes / 16 ||
           NowNs() - swept_ns_ > kSweepNs;
}

void ResponseFolder::Sweep() {
    const std::unique_lock sweeping(sweep_mutex_, std::try_to_lock);
    if (!sweeping.owns_lock()) return;
    {
        const std::lock_guard lock(mutex_);
        new_count_ = new_bytes_ = 0;
        swept_ns_ = NowNs();
    }
    std::vector<Held> owners;
    int64_t count = 0, bytes = 0;
    std::error_code error;
    for (fs::directory_iterator at(path_, error), end; !error && at != end; at.increment(error)) {
        if (!IsWord(at->path().filename().string()) || !at->is_directory(error)) continue;
        Held held = List(at->path(), limits_.age_s);
        count += held.count();
        bytes += held.bytes;
        if (held.count() > 0) owners.push_back(std::move(held));
    }
    while (count > limits_.count || bytes > limits_.bytes) {
        const bool too_many = count > limits_.count;
        const auto largest = std::ranges::max_element(
            owners, {}, [&](const Held& held) { return too_many ? held.count() : held.bytes; });
        const Entry& oldest = largest->entries[largest->oldest++];
        ::unlink(oldest.path.c_str());
        largest->bytes -= oldest.bytes;
        bytes -= oldest.bytes;
        --count;
    }
}

}  // namespace weft::serve
