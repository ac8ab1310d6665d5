#include "train/checkpoint/writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/bytes.h"
#include "base/confine.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/start_thread.h"
#include "hw/cpu.h"
#include "train/checkpoint/own_files.h"
#include "train/checkpoint/reader.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

// Bytes per write; data two windows back is already on disk.
constexpr uint64_t kWriteWindowBytes = 32 << 20;
static_assert(kWriteWindowBytes % kCheckedBytes == 0);
// Waits before retries: a disk may be full or absent for a moment.
constexpr int64_t kRetryMs[] = {250, 1000};

Error IoError(const std::string& path, const char* what, int error) {
    return MakeError(ErrorCode::kIo, "{}: cannot {}: {}", path, what, std::strerror(error));
}

// Makes new files in the folder survive a power failure.
Status SyncFolder(const std::string& folder) {
    const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return IoError(folder, "open", errno);
    // (Some network file systems lack fsync of folders and do not need it.)
    const int failed = ::fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
    ::close(fd);
    if (failed != 0) return IoError(folder, "write it to the disk", failed);
    return {};
}

Status MakeFolder(const std::string& folder) {
    WEFT_TRY(CheckConfined(folder));
    std::error_code failed;
    fs::create_directories(folder, failed);
    if (!failed) return {};
    return MakeError(ErrorCode::kIo,
                     "{}: the folder of a checkpoint can't be made: {}. Give --output-dir a folder "
                     "that all ranks may write to",
                     folder, failed.message());
}

// Writes the manifest under another name, then renames it.
Status WriteManifest(const std::string& folder, const Manifest& manifest) {
    const std::string text = ManifestText(manifest), path = folder + "/" + kManifestName;
    WEFT_ASSIGN(auto file, OutputFile::Create(path, text.size(), true));
    WEFT_TRY(file.WriteAt(0, std::as_bytes(std::span(text))));
    return file.Finish();
}

struct Found {
    std::string folder;
    int64_t sequence, step;
};

// "step-00000120"; not "step-00000120.bad".
bool IsStepName(std::string_view name) {
    if (!name.starts_with(kStepPrefix)) return false;
    name.remove_prefix(std::strlen(kStepPrefix));
    return !name.empty() && name.find_first_not_of("0123456789") == name.npos;
}

// "step-00000120.bad", "step-00000120.bad-2".
bool IsAsideName(std::string_view name) {
    const size_t dot = name.find('.');
    return dot != name.npos && IsStepName(name.substr(0, dot)) &&
           name.substr(dot).starts_with(kAsideSuffix);
}

// Step folders with a manifest, the newest first. All other folders go to `leftovers`, and errors
// of manifests to `skipped` (both may be null).
std::vector<Found> FindAll(const std::string& dir, std::vector<std::string>* skipped,
                           Leftovers* leftovers) {
    Leftovers ignored;
    Leftovers& others = leftovers != nullptr ? *leftovers : ignored;
    std::vector<Found> found;
    std::error_code failed;
    for (fs::directory_iterator at(fs::path(dir) / kCheckpointsName, failed), end;
         at != end && !failed; at.increment(failed)) {
        const std::string folder = at->path().string();
        const std::string name = at->path().filename().string();
        if (IsAsideName(name)) others.aside.push_back(folder);
        if (!IsStepName(name)) continue;
        const std::string path = folder + "/" + kManifestName;
        const auto text = ReadTextFile(path, kMostManifestBytes);
        if (!text.ok() && text.error().code == ErrorCode::kNotFound) {
            // (Other folders and links are not Weft's to remove.)
            if (ContentOfStep(folder) != StepContent::kForeign) others.unfinished.push_back(folder);
            continue;
        }
        const auto manifest =
            text.ok() ? ParseManifest(*text, path) : Result<Manifest>(text.error());
        if (manifest.ok()) {
            found.push_back({folder, manifest->sequence, manifest->step});
            continue;
        }
        // (An unreadable manifest may be intact.)
        if (manifest.error().code == ErrorCode::kCorrupt) others.broken.push_back(folder);
        if (skipped != nullptr) skipped->push_back(manifest.error().message);
    }
    std::ranges::sort(found, [](const Found& a, const Found& b) {
        return std::tie(b.sequence, b.step, b.folder) < std::tie(a.sequence, a.step, a.folder);
    });
    return found;
}

// Compares step names regardless of the spelling of the folders above.
bool SameStep(const std::string& one, const std::string& other) {
    return fs::path(one).filename() == fs::path(other).filename();
}

bool IsOf(const std::vector<std::string>& folders, const std::string& folder) {
    const fs::path path = fs::path(folder).lexically_normal();
    return std::ranges::any_of(
        folders, [&](const auto& one) { return fs::path(one).lexically_normal() == path; });
}

// Leaves files that Weft did not write.
void Remove(const std::string& folder) {
    const Status removed = RemoveStepFiles(folder);
    if (removed.ok()) return;
    Log(LogLevel::kWarning, "{}: an old checkpoint can't be removed: {}", folder,
        removed.error().message);
}

// Removes the files of earlier saves of the same step.
void RemoveUnlisted(const std::string& folder, const Manifest& manifest) {
    (void)RemoveRankFiles(folder, [&](std::string_view name) {
        return std::ranges::find(manifest.files, name, &CheckpointFile::name) !=
               manifest.files.end();
    });
}

// A link to a checkpoint elsewhere: a save of the same step must not write there.
void ReplaceLink(const std::string& folder) {
    std::error_code failed;
    if (fs::is_symlink(folder, failed)) Remove(folder);
}

}  // namespace

RankWriter::RankWriter(std::string dir, int rank, std::vector<int> cores)
    : dir_(std::move(dir)), rank_(rank), cores_(std::move(cores)) {}

RankWriter::~RankWriter() {
    if (!running()) return;
    stop_ = true;
    thread_.join();
    std::error_code ignored;
    if (result_.ok()) fs::remove(fs::path(StepFolder(dir_, step_)) / result_->name, ignored);
}

Status RankWriter::Start(int64_t step, std::vector<Piece> pieces) {
    WEFT_CHECK(!running() && !pieces.empty());
    for (const Piece& piece : pieces) {
        WEFT_CHECK(IsValidArray(piece.array) && IsInside(piece.region, piece.array) &&
                   (piece.read || piece.data.size() == piece.bytes()));
    }
    ReplaceLink(StepFolder(dir_, step));
    WEFT_TRY(MakeFolder(StepFolder(dir_, step)));
    step_ = step;
    pieces_ = std::move(pieces);
    return StartThread(thread_, [this] { Main(); });
}

Result<CheckpointFile> RankWriter::Finish() {
    WEFT_CHECK(running());
    thread_.join();
    if (result_.ok()) return result_;
    uint64_t bytes = 0;
    for (const Piece& piece : pieces_) bytes += piece.bytes();
    const auto free = FreeBytes(dir_);
    return MakeError(
        result_.error().code,
        "the checkpoint of step {} was not written: rank {} has to write {}, and {}: {}", step_,
        rank_, BytesText(bytes), free.ok() ? BytesText(*free) + " are free" : free.error().message,
        result_.error().message);
}

void RankWriter::Main() {
    RunThisThreadOn(cores_);
    result_ = Write();
    for (const int64_t wait_ms : kRetryMs) {
        if (result_.ok() || result_.error().code != ErrorCode::kIo || stop_) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
        result_ = Write();
    }
}

// Returns at most kWriteWindowBytes from `begin` on.
Result<std::span<const std::byte>> RankWriter::Window(const Piece& piece, uint64_t begin) {
    const uint64_t count = std::min(piece.bytes() - begin, kWriteWindowBytes);
    if (!piece.read) return piece.data.subspan(begin, count);
    window_.resize(count);
    const uint64_t element = begin / model_files::hf::SafeTypeBytes(piece.array.type);
    WEFT_TRY(piece.read(static_cast<int64_t>(element), window_));
    return std::span<const std::byte>(window_);
}

Result<CheckpointFile> RankWriter::Write() {
    std::vector<StoredPiece> stored;
    for (const Piece& piece : pieces_) stored.push_back({piece.array, piece.region, 0, {}});
    WEFT_TRY(CheckRankHeader(stored));
    uint64_t at = RankHeader(step_, stored).size();
    uint64_t bytes = at;
    for (const Piece& piece : pieces_) bytes += piece.bytes();
    std::array<std::byte, 4> id;
    RandomBytes(id);
    CheckpointFile file;
    file.name = fmt::format("rank-{:05}-{}.safetensors", rank_,
                            Hex({reinterpret_cast<const uint8_t*>(id.data()), id.size()}));
    file.bytes = bytes;
    WEFT_ASSIGN(auto out,
                OutputFile::Create(StepFolder(dir_, step_) + "/" + file.name, bytes, false));
    uint64_t settled = 0;
    for (size_t i = 0; i < pieces_.size(); ++i) {
        for (uint64_t begin = 0; begin < pieces_[i].bytes(); begin += kWriteWindowBytes) {
            if (stop_) return MakeError(ErrorCode::kCancelled, "stopped");
            WEFT_ASSIGN(const std::span<const std::byte> now, Window(pieces_[i], begin));
            for (uint64_t b = 0; b < now.size(); b += kCheckedBytes) {
                const auto part = now.subspan(b, std::min<uint64_t>(kCheckedBytes, now.size() - b));
                stored[i].checksums.push_back(Crc32c(part));
            }
            WEFT_TRY(out.WriteAt(at, now));
            at += now.size();
            if (at - settled < 2 * kWriteWindowBytes) continue;
            out.Settle(settled, kWriteWindowBytes);
            settled += kWriteWindowBytes;
        }
    }
    const std::string header = RankHeader(step_, stored);
    file.header = Sha256(std::as_bytes(std::span(header)));
    WEFT_TRY(out.WriteAt(0, std::as_bytes(std::span(header))));
    WEFT_TRY(out.Finish());
    return file;
}

std::string StepFolder(const std::string& dir, int64_t step) {
    return fmt::format("{}/{}/{}{:08}", dir, kCheckpointsName, kStepPrefix, step);
}

Status CommitCheckpoint(const std::string& dir, Manifest manifest, int keep,
                        const std::vector<std::string>& bad) {
    const std::string folder = StepFolder(dir, manifest.step);
    Leftovers leftovers;
    std::vector<Found> others = FindAll(dir, nullptr, &leftovers);
    manifest.sequence = others.empty() ? 1 : others.front().sequence + 1;
    // (Files on other hosts' disks are not here.)
    WEFT_ASSIGN(Manifest read, ParseManifest(ManifestText(manifest), kManifestName));
    const auto opened = Checkpoint::Open(folder, std::move(read));
    if (!opened.ok() && opened.error().code != ErrorCode::kNotFound) {
        return MakeError(ErrorCode::kIo, "what was written can't be read: {}",
                         opened.error().message);
    }
    WEFT_TRY(SyncFolder(folder));
    Status written = WriteManifest(folder, manifest);
    for (const int64_t wait_ms : kRetryMs) {
        if (written.ok() || written.error().code != ErrorCode::kIo) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
        written = WriteManifest(folder, manifest);
    }
    WEFT_TRY(std::move(written));
    WEFT_TRY(SyncFolder(fs::path(folder).parent_path()));
    RemoveUnlisted(folder, manifest);
    for (const std::string& other : leftovers.unfinished) {
        if (!SameStep(other, folder)) Remove(other);
    }
    std::erase_if(others, [&](const Found& other) {
        return SameStep(other.folder, folder) || IsOf(bad, other.folder);
    });
    for (size_t i = 0; keep > 0 && i < others.size(); ++i) {
        if (i + 1 >= static_cast<size_t>(keep)) Remove(others[i].folder);
    }
    return {};
}

void RemoveUnfinished(const std::string& dir, const Manifest& manifest) {
    const fs::path folder = StepFolder(dir, manifest.step);
    std::error_code ignored;
    const auto text = ReadTextFile((folder / kManifestName).string(), kMostManifestBytes);
    for (const CheckpointFile& file : manifest.files) {
        const bool named = text.ok() && text->find(file.name) != text->npos;
        if (!named) fs::remove(folder / file.name, ignored);
    }
    fs::remove(folder, ignored);  // (only if it is empty)
}

std::vector<std::string> Removable(const std::string& dir, const std::vector<std::string>& bad) {
    Leftovers leftovers;
    std::vector<Found> all = FindAll(dir, nullptr, &leftovers);
    std::erase_if(all, [&](const Found& found) { return IsOf(bad, found.folder); });
    std::vector<std::string> order = leftovers.unfinished;
    if (!all.empty()) {
        order.insert(order.end(), leftovers.aside.begin(), leftovers.aside.end());
        order.insert(order.end(), leftovers.broken.begin(), leftovers.broken.end());
    }
    for (size_t i = all.size(); i > 1; --i) order.push_back(all[i - 1].folder);
    return order;
}

bool RemoveStep(const std::string& folder) {
    Remove(folder);
    std::error_code failed;
    return !fs::exists(folder, failed) && !failed;
}

void RemoveCheckpoint(const std::string& folder) {
    Remove(folder);
    // (A link, a mount point or a folder that is not empty stays.)
    ::rmdir(fs::path(folder).parent_path().c_str());
}

bool IsCheckpoint(const std::string& folder) {
    std::error_code failed;
    return fs::exists(fs::path(folder) / kManifestName, failed) && !failed;
}

void RemoveOthers(const std::string& dir, const std::vector<std::string>& kept) {
    Leftovers leftovers;
    (void)FindAll(dir, nullptr, &leftovers);
    for (const std::string& folder : leftovers.unfinished) {
        const std::string name = fs::path(folder).filename().string();
        if (std::ranges::find(kept, name) == kept.end()) Remove(folder);
    }
}

std::vector<std::string> ListCheckpoints(const std::string& dir,
                                         std::vector<std::string>* skipped) {
    std::vector<std::string> folders;
    for (const Found& found : FindAll(dir, skipped, nullptr)) folders.push_back(found.folder);
    return folders;
}

std::string ForeignStep(const std::string& dir) {
    std::error_code failed;
    for (fs::directory_iterator at(fs::path(dir) / kCheckpointsName, failed), end;
         at != end && !failed; at.increment(failed)) {
        const std::string folder = at->path().string();
        if (!IsStepName(at->path().filename().string())) continue;
        if (ContentOfStep(folder) != StepContent::kForeign) continue;
        std::error_code ignored;
        if (!fs::is_symlink(folder, ignored) || !HasOwnManifest(folder)) return folder;
    }
    return "";
}

Status RemoveSteps(const std::string& dir) {
    std::error_code failed;
    std::vector<std::string> folders;
    for (fs::directory_iterator at(fs::path(dir) / kCheckpointsName, failed), end;
         at != end && !failed; at.increment(failed)) {
        const std::string name = at->path().filename().string();
        if (IsStepName(name) || IsAsideName(name)) folders.push_back(at->path().string());
    }
    for (const std::string& folder : folders) WEFT_TRY(RemoveStepFiles(folder));
    if (!failed || failed == std::errc::no_such_file_or_directory) return {};
    return MakeError(ErrorCode::kIo, "{}/{}: {}", dir, kCheckpointsName, failed.message());
}

Leftovers ListLeftovers(const std::string& dir) {
    Leftovers leftovers;
    (void)FindAll(dir, nullptr, &leftovers);
    return leftovers;
}

void RemoveUnfinished(const std::string& dir) {
    Leftovers leftovers;
    if (FindAll(dir, nullptr, &leftovers).empty()) return;
    for (const std::string& folder : leftovers.unfinished) {
        Log(LogLevel::kDebug, "{}: removing the files of an unfinished save", folder);
        Remove(folder);
    }
}

}  // namespace weft::train
