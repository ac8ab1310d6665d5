#include "backend/gpu/memory/upload.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tensor/quant.h"

namespace weft::backend::on_gpu {
namespace {

// Rows of a weight are read and packed in pieces of about this size.
constexpr int64_t kPieceBytes = 1 << 20;
constexpr uint64_t kLeastSlotBytes = uint64_t{4} << 20;
constexpr uint64_t kRangeAlign = 64;
constexpr int64_t kCopyMs = 60'000;

uint64_t Aligned(uint64_t bytes) {
    return (bytes + kRangeAlign - 1) / kRangeAlign * kRangeAlign;
}

}  // namespace

// ---- The ring -----------------------------------------------------------------------------------

Status Uploader::Put(std::span<const Range> ranges, const Fill& fill) {
    std::vector<std::byte*> out;
    uint64_t bytes = 0;
    const auto is_mapped = [](const Range& range) { return range.to->host() != nullptr; };
    if (context_.limits.maps_memory && std::ranges::all_of(ranges, is_mapped)) {
        for (const Range& range : ranges) out.push_back(range.to->host() + range.at);
        fill(out);
        return {};
    }
    for (const Range& range : ranges) bytes += Aligned(range.bytes);
    Slot& slot = TakeSlot();
    Status status = Prepare(slot, bytes);
    if (status.ok()) {
        uint64_t at = 0;
        for (const Range& range : ranges) {
            out.push_back(slot.memory.host() + at);
            at += Aligned(range.bytes);
        }
        fill(out);
        status = Copy(slot, ranges);
    }
    GiveBack(slot);
    return status;
}

// The free slot whose last copies were submitted first.
Uploader::Slot& Uploader::TakeSlot() {
    std::unique_lock lock(mutex_);
    Slot* found = nullptr;
    given_back_.wait(lock, [&] {
        for (Slot& slot : slots_) {
            if (slot.taken) continue;
            if (found == nullptr || slot.submission < found->submission) found = &slot;
        }
        return found != nullptr;
    });
    found->taken = true;
    return *found;
}

void Uploader::GiveBack(Slot& slot) {
    {
        const std::lock_guard lock(mutex_);
        slot.taken = false;
    }
    given_back_.notify_one();
}

// Waits until the slot's last copies are done, and makes it at least this number of bytes.
Status Uploader::Prepare(Slot& slot, uint64_t bytes) {
    const std::lock_guard lock(context_.mutex);
    if (slot.commands != nullptr) {
        WEFT_TRY(context_.gpu->Wait(slot.submission, Deadline::In(kCopyMs)));
        slot.commands.reset();
    }
    if (slot.memory.size_bytes() >= bytes) return {};
    slot.memory = {};
    WEFT_ASSIGN(slot.memory,
                context_.gpu->Allocate(std::max(bytes, kLeastSlotBytes), gpu::Place::kHost));
    return {};
}

Status Uploader::Copy(Slot& slot, std::span<const Range> ranges) {
    const std::lock_guard lock(context_.mutex);
    WEFT_ASSIGN(slot.commands, context_.gpu->Record());
    uint64_t at = 0;
    for (const Range& range : ranges) {
        slot.commands->Copy(slot.memory, at, *range.to, range.at, range.bytes);
        at += Aligned(range.bytes);
    }
    WEFT_TRY(slot.commands->End());
    WEFT_ASSIGN(slot.submission, context_.gpu->Submit(*slot.commands));
    return {};
}

Status Uploader::Finish() {
    const std::lock_guard lock(context_.mutex);
    for (Slot& slot : slots_) {
        if (slot.commands != nullptr) {
            WEFT_TRY(context_.gpu->Wait(slot.submission, Deadline::In(kCopyMs)));
            slot.commands.reset();
        }
        slot.memory = {};
    }
    return {};
}

// ---- Weights ------------------------------------------------------------------------------------

Status LoadMatrix(const program::Value& value, const WeightLayout& layout, const gpu::Buffer& to,
                  uint64_t at, const RowSource& source, Uploader& uploader, LoadPart part) {
    const program::Shape& shape = value.shape;
    const int64_t cols = shape[shape.rank - 1], rows = shape[shape.rank - 2];
    const int64_t matrices = shape.rank == 3 ? shape[0] : 1;
    const int64_t row_bytes = RowBytes(value.dtype, cols);
    const int64_t piece = std::clamp<int64_t>(kPieceBytes / row_bytes, 1, rows);
    std::vector<std::byte> raw(static_cast<size_t>(piece * row_bytes));
    const int64_t end = matrices * rows * (part.part + 1) / part.parts;
    for (int64_t row = matrices * rows * part.part / part.parts; row < end;) {
        // (The rows of one piece lie in one matrix.)
        const int64_t count = std::min({piece, rows - row % rows, end - row});
        WEFT_TRY(source(row, count, std::span(raw).first(static_cast<size_t>(count * row_bytes))));
        std::vector<Uploader::Range> ranges;
        for (size_t p = 0; p < layout.count; ++p) {
            const Plane& plane = layout.planes[p];
            ranges.push_back({&to, at + plane.offset + static_cast<uint64_t>(row) * plane.row_bytes,
                              static_cast<uint64_t>(count) * plane.row_bytes});
        }
        WEFT_TRY(uploader.Put(ranges, [&](std::span<std::byte* const> planes) {
            std::array<std::byte*, WeightLayout::kMostPlanes> out{};
            for (int64_t i = 0; i < count; ++i) {
                for (size_t p = 0; p < layout.count; ++p) {
                    out[p] = planes[p] + static_cast<uint64_t>(i) * layout.planes[p].row_bytes;
                }
                PackRow(value.dtype, cols, raw.data() + i * row_bytes,
                        std::span(out).first(layout.count));
            }
        }));
        row += count;
    }
    if (layout.table_bytes == 0 || part.part > 0) return {};
    const Uploader::Range table{&to, at + layout.table_offset, layout.table_bytes};
    return uploader.Put({&table, 1},
                        [&](std::span<std::byte* const> out) { PackTable(value.dtype, out[0]); });
}

// Loads a stack [m, 1, n], each row of which is a vector.
Status LoadVectors(const program::Value& value, const gpu::Buffer& to, uint64_t at,
                   const RowSource& source, Uploader& uploader) {
    const bool stack = value.shape.rank == 3;
    const int64_t count = stack ? value.shape[2] : value.shape[0];
    const auto bytes = static_cast<size_t>(count) * sizeof(float);
    std::vector<std::byte> raw(static_cast<size_t>(RowBytes(value.dtype, count)));
    std::vector<float> floats(static_cast<size_t>(count));
    for (int64_t i = 0; i < (stack ? value.shape[0] : 1); ++i) {
        WEFT_TRY(stack ? source(i, 1, raw) : source(0, count, raw));
        DequantizeRow(value.dtype, raw, floats);
        const Uploader::Range range{&to, at + static_cast<uint64_t>(i) * bytes, bytes};
        WEFT_TRY(uploader.Put({&range, 1}, [&](std::span<std::byte* const> out) {
            std::memcpy(out[0], floats.data(), bytes);
        }));
    }
    return {};
}

}  // namespace weft::backend::on_gpu
