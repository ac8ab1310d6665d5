#include "backend/cpu/buffers.h"

#include <algorithm>

namespace weft::backend {
namespace {

using program::Pool;
using program::ValueId;

constexpr int64_t kAlign = 64;
// Pretended addresses of the pools before allocation.
constexpr uintptr_t kNowhere = uintptr_t{1} << 44;

int64_t LineUp(int64_t bytes) {
    return (bytes + kAlign - 1) / kAlign * kAlign;
}

// Whether the value holds vectors, which are float32: also a stack of vectors [m, 1, n].
bool IsVectors(const program::Shape& shape) {
    return shape.rank == 1 || (shape.rank == 3 && shape[1] == 1);
}

std::vector<bool> FindAdapters(const program::Program& program) {
    std::vector<bool> found(program.values.size());
    for (const program::Op& op : program.ops) {
        if (op.kind() != program::OpKind::kAdapt) continue;
        for (size_t i = 1; i + 1 < op.inputs.size(); ++i) {
            found[static_cast<size_t>(op.inputs[i])] = true;
        }
    }
    return found;
}

const char* PoolText(Pool pool) {
    switch (pool) {
        case Pool::kWeight: return "the weights";
        case Pool::kGradient: return "gradients";
        case Pool::kOptimizer: return "the optimizer's state";
        case Pool::kCache: return "the KV cache and recurrent state";
        case Pool::kInput: return "inputs";
        case Pool::kKept:
        case Pool::kBrief:
        case Pool::kNone: break;
    }
    return "activations";
}

}  // namespace

// ---- Scratch ------------------------------------------------------------------------------------

std::byte* Scratch::Take(const std::string& name, int64_t bytes) {
    auto part = std::ranges::find(parts_, name, &Part::name);
    if (part == parts_.end()) part = parts_.insert(parts_.end(), {name, 0, 0});
    if (memory_.data() == nullptr) {
        part->bytes = std::max(part->bytes, LineUp(bytes));
        return reinterpret_cast<std::byte*>(kNowhere);
    }
    WEFT_CHECK(bytes <= part->bytes);
    return memory_.data() + part->offset;
}

std::byte* Scratch::TakeOwn(int64_t bytes_of_thread) {
    if (memory_.data() == nullptr) {
        own_bytes_ = std::max(own_bytes_, LineUp(bytes_of_thread));
        return reinterpret_cast<std::byte*>(kNowhere);
    }
    WEFT_CHECK(bytes_of_thread <= own_bytes_);
    return memory_.data();
}

int64_t Scratch::TotalBytes(int threads) const {
    int64_t bytes = own_bytes_ * threads;
    for (const Part& part : parts_) bytes += part.bytes;
    return bytes;
}

Status Scratch::Allocate(int threads) {
    int64_t offset = own_bytes_ * threads;
    for (Part& part : parts_) {
        part.offset = offset;
        offset += part.bytes;
    }
    WEFT_ASSIGN(memory_, Memory::Allocate(std::max(offset, kAlign), "scratch"));
    return {};
}

// ---- Values -------------------------------------------------------------------------------------

Buffers::Buffers(const program::ChunkedProgram& chunked, const CompileOptions& options,
                 const kernels::Kernels& kernels)
    : program_(chunked.program),
      options_(options),
      kernels_(kernels),
      packs_(chunked.chunks.empty()),
      is_adapter_(FindAdapters(chunked.program)) {
    program::LayoutOptions layout;
    layout.tokens = options.max_tokens;
    layout.outputs = options.max_outputs;
    layout.positions = options.kv_pages * options.page_tokens;
    layout.state_slots = options.state_slots;
    layout.slots = options.slots;
    layout.overlap = options.beside;
    layout.in_halves = options.overlap != Overlap::kNever;
    layout.keep = options.keep;
    if (packs_) layout.weight_bytes = [this](ValueId id) { return WeightBytes(id); };
    layout_ = program::MemoryLayout(chunked, layout);
    PointAtWeights();
}

int64_t Buffers::WeightBytes(ValueId id) const {
    const program::Value& value = program_.value(id);
    const program::Shape& shape = value.shape;
    if (IsVectors(shape)) return shape.Elements(0, 0) * static_cast<int64_t>(sizeof(float));
    if (is_adapter(id)) return kernels::AdapterBytes(value.dtype, shape[0], shape[1]);
    if (shape.rank == 2) return kernels_.packed_bytes(value.dtype, shape[0], shape[1]);
    return shape[0] * kernels::StackStride(kernels_, value.dtype, shape[1], shape[2]);
}

Status Buffers::Allocate() {
    for (size_t i = 0; i < program::kPools; ++i) {
        const auto pool = static_cast<Pool>(i);
        // (Empty values also have an address, such as the share of a rank that has none.)
        const int64_t bytes = std::max(layout_.PoolBytes(pool), kAlign);
        WEFT_ASSIGN(pools_[i], Memory::Allocate(bytes, PoolText(pool)));
    }
    allocated_ = true;
    PointAtWeights();
    return {};
}

std::byte* Buffers::At(ValueId id, int slot) const {
    const Pool pool = layout_.PlaceOf(id).pool;
    if (pool == Pool::kNone) return nullptr;
    const auto index = static_cast<size_t>(pool);
    std::byte* const begin =
        allocated_ ? pools_[index].data() : reinterpret_cast<std::byte*>(kNowhere * (index + 2));
    return begin + layout_.OffsetOf(id, slot);
}

std::span<std::byte> Buffers::PoolBytes(Pool pool) const {
    const Memory& memory = pools_[static_cast<size_t>(pool)];
    return {memory.data(), static_cast<size_t>(memory.size_bytes())};
}

void Buffers::PointAtWeights() {
    const size_t count = program_.values.size();
    matrices_.assign(count, {});
    stacks_.assign(count, {});
    caches_.assign(count, {});
    for (size_t i = 0; i < count; ++i) {
        const program::Value& value = program_.values[i];
        const program::Shape& s = value.shape;
        std::byte* const data = At(static_cast<ValueId>(i));
        if (value.storage == program::Storage::kState) {
            const int64_t page_rows = options_.page_tokens / value.row_positions;
            caches_[i] = {value.dtype, data, s[0], page_rows, s[1]};
        } else if (value.storage != program::Storage::kWeight || !packs_) {
            continue;
        } else if (s.rank == 2) {
            matrices_[i] = {value.dtype, s[0], s[1], data};
        } else if (!IsVectors(s)) {
            const int64_t stride = kernels::StackStride(kernels_, value.dtype, s[1], s[2]);
            stacks_[i] = {value.dtype, s[0], s[1], s[2], stride, data};
        }
    }
}

MemoryUse Buffers::Use(int threads) const {
    const auto bytes = [&](std::initializer_list<Pool> pools) {
        int64_t sum = 0;
        for (const Pool pool : pools) sum += layout_.PoolBytes(pool);
        return static_cast<uint64_t>(sum);
    };
    return {bytes({Pool::kWeight, Pool::kGradient, Pool::kOptimizer}), bytes({Pool::kCache}),
            bytes({Pool::kInput, Pool::kKept, Pool::kBrief}) +
                static_cast<uint64_t>(scratch_.TotalBytes(threads))};
}

}  // namespace weft::backend
