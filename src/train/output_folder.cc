#include "train/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/large_file.h"
#include "base/log.h"
#include "base/log_format.h"
#include "base/output_file.h"
#include "model_files/hf/export.h"
#include "model_files/lora/adapter.h"
#include "train/checkpoint/own_files.h"
#include "train/checkpoint/writer.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

constexpr char kLockName[] = ".weft-train.lock";
constexpr uint64_t kMostTokenBytes = 4096;
// At the end of the lock file, after Clear has removed the files of other jobs.
constexpr std::string_view kBegunAnew = ", begun anew";

std::string OwnHostName() {
    char name[256] = {};
    if (::gethostname(name, sizeof name - 1) != 0 || name[0] == 0) return "localhost";
    return name;
}

// "process 4711 on host a, since 2026-11-21T18:00:00.000Z [0a1b2c3d]"
std::string OwnToken() {
    std::array<std::byte, 8> id;
    RandomBytes(id);
    return fmt::format("process {} on host {}, since {} [{}]", ::getpid(), OwnHostName(), UtcNow(),
                       Hex({reinterpret_cast<const uint8_t*>(id.data()), id.size()}));
}

Error FolderFailed(const std::string& folder, const std::string& why) {
    return MakeError(ErrorCode::kIo, "--output-dir {}: {}. Name a folder that you may write to",
                     folder, why);
}

Error FolderFailed(const std::string& folder, int error) {
    const std::string why = std::string("it can't be written to: ") + std::strerror(error);
    if (error == EFBIG) {
        return MakeError(ErrorCode::kIo, "--output-dir {}: {}{}", folder, why, LargeFileAdvice());
    }
    if (error != ENOSPC && error != EDQUOT) return FolderFailed(folder, why);
    return MakeError(ErrorCode::kIo,
                     "--output-dir {}: {}. Free some space, or name a folder on another disk",
                     folder, why);
}

// Before loading, tries all file operations that a result and a checkpoint need. (The space is
// checked when the needed size is known.)
Status TryWriting(const std::string& folder) {
    constexpr std::string_view kText = "weft train was here";
    const std::string path = folder + "/.weft-train.try";
    const auto tried = [&]() -> Status {
        WEFT_ASSIGN(auto file, OutputFile::Create(path, kText.size(), true));
        WEFT_TRY(file.WriteAt(0, std::as_bytes(std::span(kText))));
        return file.Finish();
    }();
    ::unlink(path.c_str());
    if (tried.ok()) return {};
    constexpr uint64_t kFull = 64 << 10;
    const auto free = FreeBytes(folder);
    if (free.ok() && *free < kFull) return {};
    return FolderFailed(folder, "a file can't be written there: " + tried.error().message);
}

// Overwrites an earlier job's token and truncates after it: that works on a full disk too.
Status WriteToken(int fd, const std::string& folder, const std::string& token) {
    const std::string line = token + "\n";
    for (size_t at = 0; at < line.size();) {  // (The write after a short one has the reason.)
        const ssize_t put =
            ::pwrite(fd, line.data() + at, line.size() - at, static_cast<off_t>(at));
        if (put <= 0) return FolderFailed(folder, put < 0 ? errno : ENOSPC);
        at += static_cast<size_t>(put);
    }
    if (::ftruncate(fd, static_cast<off_t>(line.size())) != 0) return FolderFailed(folder, errno);
    // (Ranks of other hosts read it. If fsync fails, they see it later or not at all.)
    ::fsync(fd);
    return {};
}

// Whether there are checkpoints. (Damaged ones also count as a user's work.)
bool HasCheckpoints(const std::string& folder) {
    std::vector<std::string> skipped;
    return !ListCheckpoints(folder, &skipped).empty() || !skipped.empty() ||
           !ListLeftovers(folder).aside.empty();
}

// An existing result or checkpoint that would be lost; "" for none.
std::string Found(const std::string& folder) {
    const fs::path adapter = model_files::AdapterTensorsPath(folder);
    for (const fs::path& name :
         {fs::path("model.gguf"), fs::path("model") / "config.json", adapter.filename()}) {
        std::error_code ignored;
        if (fs::exists(folder / name, ignored)) return name.string();
    }
    const std::vector<std::string> checkpoints = ListCheckpoints(folder, nullptr);
    if (!checkpoints.empty()) {
        const fs::path newest = checkpoints.front();
        return (kCheckpointsName / newest.filename()).string();
    }
    return HasCheckpoints(folder) ? kCheckpointsName : "";
}

// Removes parts of killed exports and logs. (Only the holder of the lock writes here.)
void RemoveParts(const fs::path& folder) {
    const auto is_own = [](const fs::directory_entry& entry, bool inner) {
        const std::string name = entry.path().filename().string();
        std::error_code failed;
        if (!name.ends_with(".part") || !entry.is_regular_file(failed)) return false;
        return inner || name.starts_with("model.gguf") || name.starts_with("adapter_") ||
               name.starts_with("log") || name.starts_with(".weft-train");
    };
    for (const bool inner : {false, true}) {
        std::error_code failed, ignored;
        for (fs::directory_iterator at(inner ? folder / "model" : folder, failed), end;
             !failed && at != end; at.increment(failed)) {
            if (is_own(*at, inner)) fs::remove(at->path(), ignored);
        }
    }
}

bool IsWithin(const std::string& path, const std::string& folder) {
    std::error_code failed;
    const fs::path inner = fs::weakly_canonical(path, failed);
    const fs::path outer = fs::weakly_canonical(folder, failed);
    if (failed) return false;
    const auto rest = inner.lexically_relative(outer);
    return !rest.empty() && *rest.begin() != "..";
}

// Keeps files that the job reads: a restarted rank opens them again.
void RemoveResults(const OutputFolderOptions& words) {
    const fs::path folder = words.folder;
    std::error_code ignored;
    std::vector<fs::path> results = {folder / "model.gguf", folder / "adapter_config.json",
                                     model_files::AdapterTensorsPath(words.folder)};
    const fs::path model = folder / "model";
    if (fs::exists(model / "config.json", ignored)) results.push_back(model);
    for (const fs::path& result : results) {
        const bool is_read = std::ranges::any_of(words.read, [&](const std::string& path) {
            return !path.empty() && (IsWithin(path, result) || IsWithin(result, path));
        });
        if (is_read) continue;
        if (result == model) {
            (void)RemoveOwnFiles(model, model_files::hf::IsExportedName);
        } else {
            fs::remove(result, ignored);
        }
    }
}

// A step's folder with other files is refused before the job trains. (A folder that an earlier
// start of the same job saw, or that lies beside checkpoints, may hold files of a user.)
Status CheckSteps(const OutputFolderOptions& words, bool own) {
    const bool goes_on = own && !ListCheckpoints(words.folder, nullptr).empty();
    const std::string foreign = goes_on || words.begun_anew ? "" : ForeignStep(words.folder);
    if (foreign.empty()) return {};
    return MakeError(ErrorCode::kUsage,
                     "--output-dir {}: {} has the name of a checkpoint's folder, but nothing in it "
                     "is a checkpoint of Weft. Move it away, or name another folder",
                     words.folder, foreign);
}

Status CheckFree(const OutputFolderOptions& words) {
    const std::string& folder = words.folder;
    const bool own =
        words.resume == "auto" || (!words.resume.empty() && IsWithin(words.resume, folder));
    if (words.overwrite && own) {
        return MakeError(ErrorCode::kUsage,
                         "--overwrite with --resume {}: the first starts over, the second "
                         "continues. Remove one of them",
                         words.resume);
    }
    WEFT_TRY(CheckSteps(words, own));
    const std::string found = Found(folder);
    if (found.empty() || words.overwrite) return {};
    const bool goes_on =
        own && (words.resume != "auto" || !ListCheckpoints(folder, nullptr).empty() ||
                found == kCheckpointsName);
    if (goes_on) return {};
    return MakeError(ErrorCode::kUsage,
                     "--output-dir {}: the folder has {} of an earlier job{}. {}--overwrite starts "
                     "over; or name another folder",
                     folder, found, own ? ", but no checkpoint to continue from" : "",
                     own ? "" : "--resume auto continues from its checkpoints; ");
}

}  // namespace

Result<OutputFolder> OutputFolder::Take(const OutputFolderOptions& words) {
    const std::string& folder = words.folder;
    std::error_code failed;
    fs::create_directories(folder, failed);
    if (failed) return FolderFailed(folder, "the folder can't be made: " + failed.message());
    const std::string path = folder + "/" + kLockName;
    // (Anyone who may write to the folder may lock it; the umask decides who may.)
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return FolderFailed(folder, errno);
    OutputFolder taken(words, fd);
    const bool locked = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (!locked) {
        const int error = errno;
        if (error == EWOULDBLOCK) {
            const std::string who = FolderToken(folder);
            return MakeError(ErrorCode::kDenied,
                             "--output-dir {}: another weft train writes there: {}. Wait for its "
                             "end, or name another folder",
                             folder, who.empty() ? "its lock file names no process" : who);
        }
        Log(LogLevel::kWarning,
            "--output-dir {}: its file system supports no locks ({}): make sure that no other job "
            "writes there",
            folder, std::strerror(error));
    }
    WEFT_TRY(CheckFree(words));
    if (locked) RemoveParts(folder);
    if (words.resume == "auto") RemoveUnfinished(folder);
    taken.token_ = OwnToken();
    if (words.begun_anew) taken.token_ += kBegunAnew;
    WEFT_TRY(WriteToken(fd, folder, taken.token_));
    WEFT_TRY(TryWriting(folder));
    return taken;
}

Status OutputFolder::Clear() {
    if (!std::exchange(words_.overwrite, false)) return {};
    const auto steps = RemoveSteps(words_.folder);
    std::error_code failed;
    for (fs::directory_iterator at(words_.folder, failed), end; !failed && at != end;
         at.increment(failed)) {
        const std::string name = at->path().filename().string();
        if (name != "log.csv" && !name.starts_with("events.out.tfevents.")) continue;
        std::error_code ignored;  // (a remaining log is continued)
        fs::remove(at->path(), ignored);
    }
    RemoveResults(words_);
    token_ += kBegunAnew;
    if (!failed && steps.ok()) return WriteToken(fd_.get(), words_.folder, token_);
    return MakeError(ErrorCode::kIo,
                     "--overwrite: files of the previous job in {} can't be removed: {}",
                     words_.folder, failed ? failed.message() : steps.error().message);
}

bool GoesOnAfterRestart(const std::string& folder, bool overwrite) {
    if (overwrite && !FolderToken(folder).ends_with(kBegunAnew)) return false;
    return HasCheckpoints(folder);
}

std::string FolderToken(const std::string& folder) {
    auto text = ReadTextFile(folder + "/" + kLockName, kMostTokenBytes);
    if (!text.ok()) return "";
    while (text->ends_with('\n')) text->pop_back();
    return *text;
}

}  // namespace weft::train
