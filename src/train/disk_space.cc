#include "train/disk_space.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "base/bytes.h"
#include "base/log.h"
#include "base/output_file.h"
#include "train/checkpoint/writer.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

// Bytes per row of the logs and TensorBoard's files, and overhead of file systems.
constexpr uint64_t kRowBytes = 512;
constexpr uint64_t kSlackBytes = 64 << 10;
constexpr uint64_t kMostLogBytes = 1 << 30;

// (Saturates at more than any disk has.)
uint64_t Times(uint64_t bytes, uint64_t count) {
    uint64_t product = 0;
    return __builtin_mul_overflow(bytes, count, &product) ? UINT64_MAX / 4 : product;
}

uint64_t LogBytes(const SpacePlan& plan) {
    return std::min(Times(kRowBytes, static_cast<uint64_t>(plan.steps)), kMostLogBytes);
}

// Size in blocks, as file systems count. (Removing a link frees nothing.)
uint64_t FileSizeOf(const std::string& folder) {
    constexpr uint64_t kBlock = 4096;
    uint64_t bytes = 0;
    std::error_code failed;
    if (fs::is_symlink(folder, failed)) return 0;
    for (fs::directory_iterator at(folder, failed), end; !failed && at != end;
         at.increment(failed)) {
        std::error_code ignored;
        const uint64_t size = at->file_size(ignored);
        if (!ignored) bytes += (size + kBlock - 1) / kBlock * kBlock;
    }
    return bytes;
}

uint64_t FileSizeOf(const std::vector<std::string>& folders) {
    uint64_t bytes = 0;
    for (const std::string& each : folders) bytes += FileSizeOf(each);
    return bytes;
}

// Bytes of a checkpoint with its headers and manifest.
uint64_t WholeCheckpointBytes(const SpacePlan& plan) {
    const uint64_t most = plan.checkpoint_bytes + plan.checkpoint_bytes / 64 + kSlackBytes;
    for (const std::string& folder : ListCheckpoints(plan.folder, nullptr)) {
        const uint64_t bytes = FileSizeOf(folder);
        if (bytes >= plan.checkpoint_bytes && bytes <= most) return bytes;
    }
    return plan.checkpoint_bytes + kSlackBytes;
}

struct CheckpointDisk {
    std::string folder;
    bool apart = false;  // not the model's disk
};

CheckpointDisk CheckpointDiskOf(const std::string& folder) {
    const std::string inner = folder + "/" + kCheckpointsName;
    struct stat own {};
    struct stat of_inner {};
    if (::stat(folder.c_str(), &own) != 0 || ::stat(inner.c_str(), &of_inner) != 0) {
        return {folder};
    }
    return {inner, own.st_dev != of_inner.st_dev};
}

struct SpaceNow {
    std::string folder;
    uint64_t result = 0, needed = 0;  // the result's part of `needed`
};

SpaceNow SpaceNowOf(const SpacePlan& plan) {
    const CheckpointDisk disk = CheckpointDiskOf(plan.folder);
    const uint64_t result = disk.apart ? 0 : plan.result_bytes;
    const uint64_t whole = WholeCheckpointBytes(plan);
    if (result == 0) return {disk.folder, 0, whole};
    return {disk.folder, result, std::max(whole, plan.checkpoint_bytes + kSlackBytes) + result};
}

Status CheckResultSpace(const SpacePlan& plan) {
    WEFT_ASSIGN(const uint64_t free, FreeBytes(plan.folder));
    if (free >= plan.result_bytes + kSlackBytes) return {};
    return MakeError(ErrorCode::kIo,
                     "--output-dir {}: {} are free, and {} are needed for the result. The disk is "
                     "too full: free some space, name a folder on another disk, or write less "
                     "(--save-type)",
                     plan.folder, BytesText(free), BytesText(plan.result_bytes + kSlackBytes));
}

// Without --save-every: checks the space for the checkpoint of a stop, which uses the result's
// space, and for the checkpoint before the result.
Status CheckDefaultSpace(const SpacePlan& plan, const CheckpointDisk& disk, uint64_t free) {
    const uint64_t needed = plan.checkpoint_bytes + kSlackBytes;
    const uint64_t result = disk.apart ? 0 : plan.result_bytes;
    if (plan.checkpoints > 0 || plan.checkpoint_bytes == 0 || free >= needed + result) return {};
    const auto text = [&](uint64_t bytes, const char* what) {
        return fmt::format("--output-dir {}: {} are free, and {} are needed for {}", disk.folder,
                           BytesText(free), BytesText(bytes), what);
    };
    if (free < needed && plan.limited) {
        return MakeError(ErrorCode::kIo,
                         "{}. The disk is too full: free some space, name a folder on another "
                         "disk, or leave --time-limit out",
                         text(needed, "the checkpoint of a stop"));
    }
    if (free < needed) {
        Log(LogLevel::kWarning,
            "{}: after a signal to stop, Weft has room for the model of that moment only, not for "
            "a checkpoint",
            text(needed, "the checkpoint of a stop"));
        return {};
    }
    Log(LogLevel::kWarning,
        "{}: there is no room for that checkpoint. If a rank is lost while Weft writes the result, "
        "all updates are lost. Free some space",
        text(needed + result, "the result and a checkpoint before it"));
    return {};
}

}  // namespace

Status CheckSpaceFor(const SpacePlan& plan) {
    const CheckpointDisk disk = CheckpointDiskOf(plan.folder);
    WEFT_ASSIGN(const uint64_t left, FreeBytes(disk.folder));
    const uint64_t free = left + FileSizeOf(Removable(plan.folder));
    const uint64_t result = disk.apart ? 0 : plan.result_bytes;
    if (disk.apart) WEFT_TRY(CheckResultSpace(plan));
    const bool keeps = !ListCheckpoints(plan.folder, nullptr).empty();
    const uint64_t besides = result + kSlackBytes;
    const auto count = static_cast<uint64_t>(plan.checkpoints);
    const uint64_t least = std::min<uint64_t>(count, keeps ? 1 : 2);
    const auto need = [&](uint64_t checkpoints) {
        return besides + Times(plan.checkpoint_bytes, checkpoints);
    };
    const auto text = [&](uint64_t checkpoints, uint64_t logs) {
        std::vector<std::string> parts;
        if (!disk.apart) parts.push_back(fmt::format("the result ({})", BytesText(result)));
        if (checkpoints > 0) {
            parts.push_back(fmt::format("{} checkpoint{} of {}", checkpoints,
                                        checkpoints == 1 ? "" : "s",
                                        BytesText(plan.checkpoint_bytes)));
        }
        if (logs > 0) parts.push_back("logs of " + BytesText(logs));
        return fmt::format("{}: {} are free, and {} are needed: {}", disk.folder, BytesText(free),
                           BytesText(need(checkpoints) + logs), fmt::join(parts, ", "));
    };
    if (free < need(least)) {
        return MakeError(ErrorCode::kIo,
                         "--output-dir {}. The disk is too full: free some space, name a folder on "
                         "another disk{}",
                         text(least, 0),
                         plan.checkpoints > 0 ? ", or leave --save-every out (no checkpoints)"
                                              : ", or write less (--save-type)");
    }
    WEFT_TRY(CheckDefaultSpace(plan, disk, free));
    const uint64_t more = keeps && count > 0 ? count - 1 : count;
    // (A log that can't be written does not end a job, so it is not an error.)
    const uint64_t logs = disk.apart ? 0 : LogBytes(plan);
    if (free < need(more) + logs) {
        Log(LogLevel::kWarning,
            "--output-dir {}. When the disk fills, Weft removes the oldest checkpoints, then saves "
            "no more; the space for the result stays reserved. A lower --keep-last needs less",
            text(more, logs));
    }
    return {};
}

Result<bool> CheckSpaceNow(const SpacePlan& plan, const std::vector<std::string>& bad) {
    const SpaceNow now = SpaceNowOf(plan);
    WEFT_ASSIGN(const uint64_t free, FreeBytes(now.folder));
    if (free >= now.needed) return true;
    const uint64_t old = plan.removes_old ? FileSizeOf(Removable(plan.folder, bad)) : 0;
    if (free + old >= now.needed) return false;
    return MakeError(ErrorCode::kIo,
                     "{}: the disk is too full for a checkpoint of {}{}: {} are free{}. Free some "
                     "space",
                     now.folder, BytesText(plan.checkpoint_bytes),
                     now.result > 0 ? " beside the result (" + BytesText(now.result) + ")" : "",
                     BytesText(free),
                     old > 0 ? ", and older checkpoints have " + BytesText(old) : "");
}

Status MakeSpace(const SpacePlan& plan, const std::vector<std::string>& bad) {
    WEFT_ASSIGN(const bool fits, CheckSpaceNow(plan, bad));
    if (fits) return {};
    const SpaceNow now = SpaceNowOf(plan);
    for (const std::string& old : Removable(plan.folder, bad)) {
        WEFT_ASSIGN(const uint64_t free, FreeBytes(now.folder));
        if (free >= now.needed) return {};
        if (!RemoveStep(old)) continue;
        Log(LogLevel::kWarning,
            "{}: {} are free, and {} are needed for the next checkpoint{}: {} was removed",
            now.folder, BytesText(free), BytesText(now.needed),
            now.result > 0 ? " and the result" : "", old);
    }
    WEFT_ASSIGN(const uint64_t free, FreeBytes(now.folder));
    if (free >= now.needed) return {};
    return MakeError(ErrorCode::kIo,
                     "{}: older checkpoints were removed, and {} are free for a checkpoint that "
                     "takes {}. Free some space",
                     now.folder, BytesText(free), BytesText(now.needed));
}

bool MakeResultSpace(const std::string& folder, uint64_t bytes) {
    const auto lacks = [&] {
        const auto free = FreeBytes(folder);
        return free.ok() && *free < bytes;
    };
    if (!lacks() || CheckpointDiskOf(folder).apart) return false;
    const std::vector<std::string> old = Removable(folder);
    const auto free = FreeBytes(folder);
    if (!free.ok() || *free + FileSizeOf(old) < bytes) return false;
    bool removed = false;
    for (size_t i = 0; i < old.size() && lacks(); ++i) removed = RemoveStep(old[i]) || removed;
    return removed;
}

}  // namespace weft::train
