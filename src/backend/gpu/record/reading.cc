#include "backend/gpu/record/reading.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/gpu/lower/lower.h"
#include "base/check.h"
#include "program/hazards.h"

namespace weft::backend::on_gpu {
namespace {

constexpr size_t kMostTopCommands = 256;

}  // namespace

Result<std::unique_ptr<gpu::Commands>> RecordAlone(gpu::Device& device,
                                                   std::span<const Dispatch> dispatches) {
    WEFT_ASSIGN(std::unique_ptr<gpu::Commands> commands, device.Record());
    commands->Barrier();
    program::Hazards<Region> hazards;
    for (const Dispatch& d : dispatches) {
        if (hazards.Touch(d.reads, d.writes)) commands->Barrier();
        commands->Run(*d.kernel, std::span(d.args).first(d.args_bytes), d.x, d.y, d.z);
    }
    WEFT_TRY(commands->End());
    return commands;
}

Status RunAlone(gpu::Device& device, const gpu::Commands& commands, int64_t deadline_ms) {
    WEFT_ASSIGN(const uint64_t number, device.Submit(commands));
    return device.Wait(number, Deadline::In(deadline_ms));
}

bool Reading::ReadBrought(program::ValueId id, uint64_t first_byte,
                          std::span<std::byte> out) const {
    if (first_byte % sizeof(float) != 0 || out.size() % sizeof(float) != 0) return false;
    const auto held = std::as_bytes(HostFloats(id, static_cast<int64_t>(first_byte / sizeof(float)),
                                               static_cast<int64_t>(out.size() / sizeof(float))));
    std::ranges::copy(held, out.begin());
    return !held.empty();
}

// Copies begin and end at multiples of four bytes.
Status Reading::Read(std::span<const ReadPart> parts, int slot, int64_t deadline_ms) {
    constexpr uint64_t kUnit = 4, kMost = Buffers::kReadBytes;
    gpu::Device& device = *context_.gpu;
    std::unique_ptr<gpu::Commands> commands;
    std::vector<Copied> copied;
    uint64_t used = 0;
    const auto run = [&]() -> Status {
        if (commands == nullptr) return {};
        WEFT_TRY(commands->End());
        WEFT_TRY(RunAlone(device, *commands, deadline_ms));
        for (const Copied& copy : copied) {
            std::memcpy(copy.out.data(), buffers_.read().host() + copy.at, copy.out.size());
        }
        commands.reset();
        copied.clear();
        used = 0;
        return {};
    };
    for (const ReadPart& part : parts) {
        WEFT_CHECK(buffers_.Has(part.id));
        for (size_t at = 0; at < part.out.size();) {
            if (used + 2 * kUnit > kMost) WEFT_TRY(run());
            Spot from = buffers_.At(part.id, slot);
            from.offset += static_cast<uint64_t>(part.first_byte) + at;
            const uint64_t before = from.offset % kUnit;
            const auto out = part.out.subspan(
                at, std::min<uint64_t>(kMost - used - kUnit, part.out.size() - at));
            const uint64_t bytes = (before + out.size() + kUnit - 1) / kUnit * kUnit;
            if (commands == nullptr) {
                WEFT_ASSIGN(commands, device.Record());
                commands->Barrier();
            }
            commands->Copy(*from.buffer, from.offset - before, buffers_.read(), used, bytes);
            copied.push_back({out, used + before});
            used += bytes;
            at += out.size();
        }
    }
    return run();
}

Status Reading::ReadTopK(program::ValueId id, int slot, int64_t row, int64_t columns,
                         std::span<Candidate> out, int64_t deadline_ms) {
    if (HasTop(id, row, columns, out)) return {};
    // The host searches a row that it has read for a larger number of best elements.
    if (std::cmp_greater(out.size(), Buffers::kMostTop)) {
        const int64_t stride = lowering_.Cols(id);
        std::vector<float> values(static_cast<size_t>(columns));
        const ReadPart part{id, row * stride * static_cast<int64_t>(sizeof(float)),
                            std::as_writable_bytes(std::span(values))};
        if (!ReadBrought(id, static_cast<uint64_t>(part.first_byte), part.out)) {
            WEFT_TRY(Read({&part, 1}, slot, deadline_ms));
        }
        TopK(values, out);
        return {};
    }
    const TopKey key{id, slot, row, columns, static_cast<int64_t>(out.size())};
    WEFT_ASSIGN(const gpu::Commands* const commands, TopCommands(key));
    WEFT_TRY(RunAlone(*context_.gpu, *commands, deadline_ms));
    std::memcpy(out.data(), buffers_.read().host(), out.size_bytes());
    return {};
}

std::span<const float> Reading::HostFloats(program::ValueId id, int64_t first,
                                           int64_t count) const {
    if (id != brought_.value || !brought_.whole) return {};
    if (first + count > brought_rows_ * lowering_.Cols(id)) return {};
    const std::byte* const rows = buffers_.wanted().host() + buffers_.top_bytes();
    return {reinterpret_cast<const float*>(rows) + first, static_cast<size_t>(count)};
}

// The candidates are in order, so the first ones answer a smaller request.
bool Reading::HasTop(program::ValueId id, int64_t row, int64_t columns,
                     std::span<Candidate> out) const {
    if (id != brought_.value || columns != brought_.columns || row >= brought_rows_ ||
        std::cmp_greater(out.size(), brought_.top)) {
        return false;
    }
    const auto bytes = static_cast<int64_t>(sizeof(Candidate));
    std::memcpy(out.data(), buffers_.wanted().host() + row * brought_.top * bytes,
                out.size_bytes());
    return true;
}

Result<const gpu::Commands*> Reading::TopCommands(const TopKey& key) {
    if (generation_ != lowering_.generation() || tops_.size() > kMostTopCommands) tops_.clear();
    generation_ = lowering_.generation();
    if (const auto found = tops_.find(key); found != tops_.end()) return found->second.get();
    WEFT_CHECK(buffers_.InArena(key.id));
    const uint64_t row_bytes = static_cast<uint64_t>(lowering_.Cols(key.id)) * sizeof(float);
    TopRows row;
    row.address =
        buffers_.At(key.id, key.slot).address() + static_cast<uint64_t>(key.row) * row_bytes;
    row.columns = key.columns;
    WEFT_ASSIGN(const std::vector<Dispatch> dispatches,
                lowering_.LowerAlone(lowering_.shape(), [&](Emitter& emitter) {
                    return LowerTop(emitter, row, key.count, buffers_.read().address());
                }));
    if (generation_ != lowering_.generation()) tops_.clear();
    generation_ = lowering_.generation();
    WEFT_ASSIGN(std::unique_ptr<gpu::Commands> commands, RecordAlone(*context_.gpu, dispatches));
    return tops_.emplace(key, std::move(commands)).first->second.get();
}

}  // namespace weft::backend::on_gpu
