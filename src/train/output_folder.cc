#include "train/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/log_format.h"
#include "train/checkpoint/writer.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

constexpr char kLockName[] = ".weft-train.lock";
constexpr uint64_t kMostTokenBytes = 4096;
// What a job writes when it is done.
constexpr const char* kResults[] = {"model.gguf", "model/config.json", "adapter_model.safetensors"};

std::string HostName() {
    char name[256] = {};
    if (::gethostname(name, sizeof name - 1) != 0 || name[0] == 0) return "localhost";
    return name;
}

// "process 4711 on host a, since 2026-11-21T18:00:00.000Z [0a1b2c3d]"
std::string OwnToken() {
    std::array<std::byte, 8> id;
    RandomBytes(id);
    return fmt::format("process {} on host {}, since {} [{}]", ::getpid(), HostName(), UtcNow(),
                       Hex({reinterpret_cast<const uint8_t*>(id.data()), id.size()}));
}

Error Failed(const std::string& folder, const std::string& why) {
    return MakeError(ErrorCode::kIo, "--output-dir {}: {}. Name a folder that you may write to",
                     folder, why);
}

// What lies there that would be lost; "".
std::string Found(const std::string& folder) {
    for (const char* name : kResults) {
        std::error_code ignored;
        if (fs::exists(fs::path(folder) / name, ignored)) return name;
    }
    std::vector<std::string> skipped;
    const std::vector<std::string> checkpoints = ListCheckpoints(folder, &skipped);
    if (!checkpoints.empty()) return fs::relative(checkpoints.front(), folder).string();
    return skipped.empty() ? "" : kCheckpointsName;
}

bool IsWithin(const std::string& path, const std::string& folder) {
    std::error_code failed;
    const fs::path inner = fs::weakly_canonical(path, failed);
    const fs::path outer = fs::weakly_canonical(folder, failed);
    if (failed) return false;
    const auto rest = inner.lexically_relative(outer);
    return !rest.empty() && *rest.begin() != "..";
}

Status CheckFree(const OutputWords& words) {
    const std::string& folder = words.folder;
    const bool own =
        words.resume == "auto" || (!words.resume.empty() && IsWithin(words.resume, folder));
    if (words.overwrite && own) {
        return MakeError(ErrorCode::kUsage,
                         "--overwrite with --resume {}: the one begins anew, the other goes on. "
                         "Leave one out",
                         words.resume);
    }
    const std::string found = Found(folder);
    if (found.empty() || words.overwrite) return {};
    const bool goes_on =
        own && (words.resume != "auto" || !ListCheckpoints(folder, nullptr).empty() ||
                found == kCheckpointsName);
    if (goes_on) return {};
    return MakeError(ErrorCode::kUsage,
                     "--output-dir {}: {} of an earlier job is there{}. {}--overwrite begins anew; "
                     "or name another folder",
                     folder, found, own ? ", and no checkpoint to go on from" : "",
                     own ? "" : "--resume auto goes on from its checkpoints; ");
}

}  // namespace

Result<OutputFolder> OutputFolder::Take(const OutputWords& words) {
    const std::string& folder = words.folder;
    std::error_code failed;
    fs::create_directories(folder, failed);
    if (failed) return Failed(folder, "the folder can't be made: " + failed.message());
    const std::string path = folder + "/" + kLockName;
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return Failed(folder, std::string("it can't be written to: ") + std::strerror(errno));
    OutputFolder taken(words, fd);
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
        const int error = errno;
        if (error == EWOULDBLOCK) {
            const std::string who = FolderToken(folder);
            return MakeError(ErrorCode::kDenied,
                             "--output-dir {}: another weft train writes there: {}. Wait for its "
                             "end, or name another folder",
                             folder, who.empty() ? "it did not say which" : who);
        }
        Log(LogLevel::kWarning,
            "--output-dir {}: its file system knows no locks ({}): that no other job writes there "
            "is for you to see to",
            folder, std::strerror(error));
    }
    WEFT_TRY(CheckFree(words));
    taken.token_ = OwnToken();
    const std::string line = taken.token_ + "\n";
    const bool written = ::ftruncate(fd, 0) == 0 && ::pwrite(fd, line.data(), line.size(), 0) ==
                                                        static_cast<ssize_t>(line.size());
    if (!written)
        return Failed(folder, std::string("it can't be written to: ") + std::strerror(errno));
    return taken;
}

OutputFolder::OutputFolder(OutputFolder&& other) noexcept
    : words_(std::move(other.words_)),
      fd_(std::exchange(other.fd_, -1)),
      token_(std::move(other.token_)) {}

// (The file stays: who removed it could take it from one who has just opened it.)
OutputFolder::~OutputFolder() {
    if (fd_ >= 0) ::close(fd_);
}

Status OutputFolder::Clear() {
    if (!std::exchange(words_.overwrite, false)) return {};
    std::error_code failed;
    fs::remove_all(fs::path(words_.folder) / kCheckpointsName, failed);
    for (fs::directory_iterator at(words_.folder, failed), end; !failed && at != end;
         at.increment(failed)) {
        const std::string name = at->path().filename().string();
        if (name != "log.csv" && !name.starts_with("events.out.tfevents.")) continue;
        std::error_code ignored;  // (a log that stays is gone on with)
        fs::remove(at->path(), ignored);
    }
    if (!failed) return {};
    return MakeError(ErrorCode::kIo,
                     "--overwrite: what the job before has left in {} can't be removed: {}",
                     words_.folder, failed.message());
}

std::string FolderToken(const std::string& folder) {
    auto text = ReadTextFile(folder + "/" + kLockName, kMostTokenBytes);
    if (!text.ok()) return "";
    while (text->ends_with('\n')) text->pop_back();
    return *text;
}

}  // namespace weft::train
