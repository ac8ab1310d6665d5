#include "train/room.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/bytes.h"
#include "base/log.h"
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

uint64_t SizeOf(const std::string& folder) {
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

// Of checkpoints that will go as new ones come: all but the newest.
uint64_t OldBytes(const std::string& folder) {
    uint64_t bytes = 0;
    const std::vector<std::string> all = ListCheckpoints(folder, nullptr);
    for (size_t i = 1; i < all.size(); ++i) bytes += SizeOf(all[i]);
    return bytes;
}

}  // namespace

Result<uint64_t> FreeBytes(const std::string& folder) {
    struct statvfs info {};
    if (::statvfs(folder.c_str(), &info) == 0) {
        return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
    }
    return MakeError(ErrorCode::kIo, "{}: cannot look at its disk: {}", folder,
                     std::strerror(errno));
}

Status CheckRoomFor(const RoomPlan& plan) {
    WEFT_ASSIGN(const uint64_t left, FreeBytes(plan.folder));
    const uint64_t free = left + OldBytes(plan.folder);
    const bool keeps = !ListCheckpoints(plan.folder, nullptr).empty();
    const uint64_t besides = plan.result_bytes + kSlackBytes;
    const auto count = static_cast<uint64_t>(plan.checkpoints);
    const uint64_t least = std::min<uint64_t>(count, keeps ? 1 : 2);
    const auto need = [&](uint64_t checkpoints) {
        return besides + Times(plan.checkpoint_bytes, checkpoints);
    };
    const auto text = [&](uint64_t checkpoints, uint64_t logs) {
        std::string parts = fmt::format("the result ({})", BytesText(plan.result_bytes));
        if (checkpoints > 0) {
            parts += fmt::format(", {} checkpoint{} of {}", checkpoints,
                                 checkpoints == 1 ? "" : "s", BytesText(plan.checkpoint_bytes));
        }
        if (logs > 0) parts += fmt::format(", logs of {}", BytesText(logs));
        return fmt::format("{}: {} are free, and {} are needed: {}", plan.folder, BytesText(free),
                           BytesText(need(checkpoints) + logs), parts);
    };
    if (free < need(least)) {
        return MakeError(ErrorCode::kIo,
                         "--output-dir {}. The disk is too full: free some space, name a folder on "
                         "another disk{}",
                         text(least, 0),
                         plan.checkpoints > 0 ? ", or leave --save-every out (no checkpoints)"
                                              : ", or write less (--save-type)");
    }
    const uint64_t more = keeps && count > 0 ? count - 1 : count;
    // (A log that can't be written ends nothing, so it is no reason to refuse.)
    const uint64_t logs = LogBytes(plan);
    if (free < need(more) + logs) {
        Log(LogLevel::kWarning,
            "--output-dir {}. When room ends, the oldest checkpoints go first, then no more are "
            "saved; the model's room is kept. A lower --keep-last takes less",
            text(more, logs));
    }
    return {};
}

Status MakeRoom(const RoomPlan& plan, const std::vector<std::string>& bad) {
    const uint64_t needed = plan.checkpoint_bytes + plan.result_bytes + kSlackBytes;
    while (true) {
        WEFT_ASSIGN(const uint64_t free, FreeBytes(plan.folder));
        if (free >= needed) return {};
        if (!RemoveOldest(plan.folder, bad)) {
            return MakeError(ErrorCode::kIo,
                             "{}: the disk is too full for a checkpoint of {} beside the model "
                             "({}): {} are free. Free some space",
                             plan.folder, BytesText(plan.checkpoint_bytes),
                             BytesText(plan.result_bytes), BytesText(free));
        }
        Log(LogLevel::kWarning,
            "{}: {} are free, and {} are needed for the next checkpoint and the model: the oldest "
            "checkpoint was removed",
            plan.folder, BytesText(free), BytesText(needed));
    }
}

}  // namespace weft::train
