// Attention on matrix units: the sizes of attention_matrix.comp's workgroups.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/gpu/dispatch/dispatch.h"

namespace weft::backend::on_gpu {

// Sizes for which kernels of attention over a cache are specialized. key_type, value_type: the
// numbers of the caches' types (CacheType). first_dims: dims of a key that come from the first
// input.
struct AttentionSizes {
    uint32_t key_type = 0, value_type = 0;
    int64_t key_dims = 0, value_dims = 0, first_dims = 0;
};

// A workgroup of attention_matrix.comp: `down` x `across` subgroups. pairs: a multiple of 16, of
// rows and heads. keys: per tile. slice: most dims in shared memory. held: subgroups hold their
// queries in registers. by_dims: rows of values in shared memory are dims.
struct AttentionFragments {
    int64_t pairs = 0, keys = 0, slice = 0, across = 1;
    bool held = false, by_dims = false;
    uint32_t Invocations(uint32_t subgroup) const {
        return subgroup * static_cast<uint32_t>(pairs / 16 * across);
    }
};

// The workgroup for blocks of `wanted` pairs, or nothing if the device has too little shared memory
// or a cache's type would lose precision in f16. Of these sizes, a row's bits depend only on
// `keys`, which is the same for all `wanted`.
std::optional<AttentionFragments> FragmentsOf(const gpu::Description& gpu,
                                              const AttentionSizes& sizes, int64_t wanted,
                                              bool emulated);

// The workgroup that a step uses, or nothing if the step's attention does not run on matrix units.
// Attention runs on matrix units, as products do, in steps with more rows than the matvec kernels
// support.
std::optional<AttentionFragments> StepFragments(const Emitter& e, const AttentionSizes& sizes,
                                                int64_t wanted);

// Rows of a tile of blocks, a multiple of kBlockRows, whose pairs fill workgroups.
int64_t SpanOf(const AttentionFragments& fragments, int64_t group);

}  // namespace weft::backend::on_gpu
