// Plans and allocates the memory of a Program on the CPU.
#include "backend/cpu/compile.h"
#include "backend/cpu/cpu_device.h"
#include "backend/cpu/lower.h"
#include "backend/cpu/scratch.h"
#include "program/arena.h"

namespace weft::backend {
namespace {

constexpr int64_t kAlign = 64;

// Hands out aligned pieces of a region whose size is known at the end.
struct Allotter {
    int64_t size = 0;
    int64_t Take(int64_t bytes) {
        const int64_t at = size;
        size += (bytes + kAlign - 1) / kAlign * kAlign;
        return at;
    }
};

// A stack of vectors [m, 1, n] holds floats, as vectors do.
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

int64_t WeightBytes(const program::Value& value, bool adapter, const kernels::Kernels& kernels) {
    const program::Shape& shape = value.shape;
    if (IsVectors(shape)) return shape.Elements(0, 0) * static_cast<int64_t>(sizeof(float));
    if (adapter) return kernels::AdapterBytes(value.dtype, shape[0], shape[1]);
    if (shape.rank == 2) return kernels.packed_bytes(value.dtype, shape[0], shape[1]);
    return shape[0] * kernels::StackStride(kernels, value.dtype, shape[1], shape[2]);
}

// Where weights and states lie in their regions.
struct Offsets {
    std::vector<int64_t> of;  // by ValueId; -1: neither
    int64_t weight_bytes = 0, kv_bytes = 0;
};

Offsets PlanOffsets(const program::Program& program, const CompileOptions& options,
                    const kernels::Kernels& kernels, const std::vector<bool>& is_adapter) {
    Allotter weights, kv;
    Offsets offsets;
    offsets.of.assign(program.values.size(), -1);
    for (size_t i = 0; i < program.values.size(); ++i) {
        const program::Value& value = program.values[i];
        if (value.storage == program::Storage::kWeight) {
            offsets.of[i] = weights.Take(WeightBytes(value, is_adapter[i], kernels));
        } else if (value.storage == program::Storage::kState) {
            offsets.of[i] =
                kv.Take(program::StateBytes(value, options.kv_pages * options.page_tokens));
        }
    }
    offsets.weight_bytes = weights.size;
    offsets.kv_bytes = kv.size;
    return offsets;
}

program::ArenaPlan PlanActivations(const program::Program& program, const CompileOptions& options) {
    const auto plan_arena =
        options.overlap == Overlap::kNever ? program::PlanArena : program::PlanArenaInHalves;
    return plan_arena(program, options.max_tokens, options.max_outputs, options.keep);
}

}  // namespace

MemoryUse PlanCpuMemory(const program::Program& program, const CompileOptions& options,
                        CpuLevel level, int threads) {
    const kernels::Kernels& kernels = kernels::KernelsFor(level);
    const Offsets offsets = PlanOffsets(program, options, kernels, FindAdapters(program));
    const int64_t arena = PlanActivations(program, options).size_bytes +
                          ScratchBytes(program, options, kernels, threads);
    return {static_cast<uint64_t>(offsets.weight_bytes), static_cast<uint64_t>(offsets.kv_bytes),
            static_cast<uint64_t>(arena)};
}

Result<Buffers> AllocateBuffers(const program::Program& program, const CompileOptions& options,
                                const kernels::Kernels& kernels) {
    Buffers buffers;
    const size_t count = program.values.size();
    buffers.values.assign(count, nullptr);
    buffers.matrices.resize(count);
    buffers.stacks.resize(count);
    buffers.caches.resize(count);
    buffers.is_adapter = FindAdapters(program);
    const program::ArenaPlan plan = PlanActivations(program, options);
    const Offsets planned = PlanOffsets(program, options, kernels, buffers.is_adapter);
    const std::vector<int64_t>& offsets = planned.of;
    WEFT_ASSIGN(buffers.weights, Memory::Allocate(planned.weight_bytes, "the weights"));
    WEFT_ASSIGN(buffers.kv, Memory::Allocate(planned.kv_bytes, "the KV cache"));
    WEFT_ASSIGN(buffers.arena, Memory::Allocate(plan.size_bytes, "activations"));
    for (size_t i = 0; i < count; ++i) {
        const program::Value& value = program.values[i];
        if (value.storage == program::Storage::kWeight) {
            std::byte* data = buffers.weights.data() + offsets[i];
            buffers.values[i] = data;
            if (value.shape.rank == 2) {
                buffers.matrices[i] = {value.dtype, value.shape[0], value.shape[1], data};
            } else if (!IsVectors(value.shape)) {
                const program::Shape& s = value.shape;
                buffers.stacks[i] = {value.dtype,
                                     s[0],
                                     s[1],
                                     s[2],
                                     kernels::StackStride(kernels, value.dtype, s[1], s[2]),
                                     data};
            }
        } else if (value.storage == program::Storage::kState) {
            buffers.caches[i] = {value.dtype, buffers.kv.data() + offsets[i], value.shape[0],
                                 options.page_tokens, value.shape[1]};
        } else if (plan.offsets[i] >= 0) {
            buffers.values[i] = buffers.arena.data() + plan.offsets[i];
        }
    }
    return buffers;
}

}  // namespace weft::backend
