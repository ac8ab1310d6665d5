#include "train/room.h"

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

// Of the logs and TensorBoard's files; and what file systems need for themselves.
constexpr uint64_t kRowBytes = 512;
constexpr uint64_t kSlackBytes = 64 << 10;
constexpr uint64_t kMostLogBytes = 1 << 30;

// (A product that does not fit is as much as no disk has.)
uint64_t Times(uint64_t bytes, uint64_t count) {
    uint64_t product = 0;
    return __builtin_mul_overflow(bytes, count, &product) ? UINT64_MAX / 4 : product;
}

uint64_t LogBytes(const RoomPlan& plan) {
    return std::min(Times(kRowBytes, static_cast<uint64_t>(plan.steps)), kMostLogBytes);
}

uint64_t FileSizeOf(const std::string& folder) {
    uint64_t bytes = 0;
    std::error_code failed;
    for (fs::directory_iterator at(folder, failed), end; !failed && at != end;
         at.increment(failed)) {
        std::error_code ignored;
        const uint64_t size = at->file_size(ignored);
        if (!ignored) bytes += size;
    }
    return bytes;
}

// Of what goes for new checkpoints: all but the newest.
uint64_t OldBytes(const std::string& folder) {
    std::vector<std::string> old = ListCheckpoints(folder, nullptr);
    const Leftovers others = ListLeftovers(folder);
    if (!old.empty()) {
        old.erase(old.begin());
        old.insert(old.end(), others.aside.begin(), others.aside.end());
        old.insert(old.end(), others.broken.begin(), others.broken.end());
    }
    old.insert(old.end(), others.unfinished.begin(), others.unfinished.end());
    uint64_t bytes = 0;
    for (const std::string& each : old) bytes += FileSizeOf(each);
    return bytes;
}

// The disk of the checkpoints.
struct CheckpointDisk {
    std::string folder;
    bool apart = false;  // another one than the model's
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

Status CheckResultRoom(const RoomPlan& plan) {
    WEFT_ASSIGN(const uint64_t free, FreeBytes(plan.folder));
    if (free >= plan.result_bytes + kSlackBytes) return {};
    return MakeError(ErrorCode::kIo,
                     "--output-dir {}: {} are free, and {} are needed for the result. The disk is "
                     "too full: free some space, name a folder on another disk, or write less "
                     "(--save-type)",
                     plan.folder, BytesText(free), BytesText(plan.result_bytes + kSlackBytes));
}

// (No model is written then: its room is the checkpoint's.)
Status CheckStopRoom(const RoomPlan& plan, const CheckpointDisk& disk, uint64_t free) {
    const uint64_t needed = plan.checkpoint_bytes + kSlackBytes;
    if (plan.checkpoints > 0 || plan.checkpoint_bytes == 0 || free >= needed) return {};
    std::string text =
        fmt::format("--output-dir {}: {} are free, and {} are needed for the checkpoint of a stop",
                    disk.folder, BytesText(free), BytesText(needed));
    if (plan.limited) {
        return MakeError(ErrorCode::kIo,
                         "{}. The disk is too full: free some space, name a folder on another "
                         "disk, or leave --time-limit out",
                         text);
    }
    Log(LogLevel::kWarning,
        "{}: after a signal to stop, only the model as it is then could be written", text);
    return {};
}

}  // namespace

Status CheckRoomFor(const RoomPlan& plan) {
    const CheckpointDisk disk = CheckpointDiskOf(plan.folder);
    WEFT_ASSIGN(const uint64_t left, FreeBytes(disk.folder));
    const uint64_t free = left + OldBytes(plan.folder);
    const uint64_t result = disk.apart ? 0 : plan.result_bytes;
    if (disk.apart) WEFT_TRY(CheckResultRoom(plan));
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
    WEFT_TRY(CheckStopRoom(plan, disk, free));
    const uint64_t more = keeps && count > 0 ? count - 1 : count;
    // (A log that can't be written ends nothing, so it is no reason to refuse.)
    const uint64_t logs = disk.apart ? 0 : LogBytes(plan);
    if (free < need(more) + logs) {
        Log(LogLevel::kWarning,
            "--output-dir {}. When room ends, the oldest checkpoints go first, then no more are "
            "saved; the model's room is kept. A lower --keep-last takes less",
            text(more, logs));
    }
    return {};
}

Status MakeRoom(const RoomPlan& plan, const std::vector<std::string>& bad) {
    const CheckpointDisk disk = CheckpointDiskOf(plan.folder);
    const uint64_t result = disk.apart ? 0 : plan.result_bytes;
    const uint64_t needed = plan.checkpoint_bytes + result + kSlackBytes;
    while (true) {
        WEFT_ASSIGN(const uint64_t free, FreeBytes(disk.folder));
        if (free >= needed) return {};
        const std::string removed =
            plan.has_manifests ? RemoveOldest(plan.folder, bad) : std::string();
        if (removed.empty()) {
            return MakeError(ErrorCode::kIo,
                             "{}: the disk is too full for a checkpoint of {} beside the model "
                             "({}): {} are free. Free some space",
                             disk.folder, BytesText(plan.checkpoint_bytes), BytesText(result),
                             BytesText(free));
        }
        Log(LogLevel::kWarning,
            "{}: {} are free, and {} are needed for the next checkpoint and the model: {} was "
            "removed",
            disk.folder, BytesText(free), BytesText(needed), removed);
    }
}

}  // namespace weft::train
