// Fusion: runs of ops that one kernel computes, found once for a Program. A value between the ops
// of a run is read by nobody else, and then is not written at all.
//
// A run is computed where its last op stands: no op in between touches what the others write, or
// writes what they read, and none is a transfer. Operands of all of them must live until then
// (LivesOf). Bits are those of the ops one by one, so that steps that a probe or a trace looks into
// are lowered without fusion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "backend/vulkan/dispatch.h"
#include "base/result.h"
#include "program/program.h"

namespace weft::backend::vulkan {

// The number of an op in its Program; kNoOp: the run has none.
inline constexpr int32_t kNoOp = -1;

// From the end of a block into the next:
//     add_bias, rms_norm, scale, then add (to another value), then scale, select_rows, rms_norm.
struct ResidualRun {
    int32_t bias = kNoOp, norm = kNoOp, scale = kNoOp;
    int32_t add = kNoOp;  // always there
    int32_t sum_scale = kNoOp, select = kNoOp, next = kNoOp;
};
// From the products of q, k and v into attention, which is lowered behind it: norms of heads, or of
// all columns of q and of k by squares that are there, RoPE, rows into the cache. v's norm has no
// weight.
struct HeadsRun {
    int32_t q_norm = kNoOp, q_rope = kNoOp;
    int32_t k_norm = kNoOp, k_rope = kNoOp;
    int32_t v_norm = kNoOp;
    int32_t attention = kNoOp;  // always there
};
// The same into latent attention: of q, the columns that are rotated; of the product that is
// cached, those that are normed and those that are rotated. All ops are always there.
struct LatentRun {
    int32_t q_pick = kNoOp, q_rope = kNoOp;
    int32_t latent_pick = kNoOp, latent_norm = kNoOp;
    int32_t key_pick = kNoOp, key_rope = kNoOp;
    int32_t attention = kNoOp;
};
// Two products of one x, by weights of one type and shape, and what gates one by the other; where
// they are not alike, the gate stays apart. One kernel in steps of as many rows as a matvec takes;
// in larger ones the ops one by one, where the last stands.
struct GluRun {
    int32_t gate = kNoOp;
    int32_t up = kNoOp, glu = kNoOp;  // always there
};
// The product that scores experts, and the choice by it: one kernel in steps of very few rows,
// where its weight is not quantized.
struct RouteRun {
    int32_t product = kNoOp, route = kNoOp;  // always there
};
// Two ops at least.
struct FusedRun {
    std::variant<ResidualRun, HeadsRun, LatentRun, GluRun, RouteRun> what;
    std::vector<int32_t> ops;  // ascending
};

class Fusion {
  public:
    Fusion() = default;  // nothing is fused
    // keep: values that are read after the step.
    Fusion(const program::Program& program, std::span<const program::ValueId> keep);

    bool fuses() const { return !run_of_.empty(); }
    std::span<const FusedRun> runs() const { return runs_; }
    // The run that is computed where this op stands; null: none.
    const FusedRun* RunAt(size_t op) const {
        const FusedRun* run = RunOf(op);
        return run != nullptr && static_cast<size_t>(run->ops.back()) == op ? run : nullptr;
    }
    // Whether the op is computed where a later one stands.
    bool Moves(size_t op) const { return RunOf(op) != nullptr && RunAt(op) == nullptr; }
    // The Program as a plan of the arena must see it: the last op of a run touches all that its ops
    // do.
    program::Program LivesOf(const program::Program& program) const;

  private:
    const FusedRun* RunOf(size_t op) const {
        return run_of_.empty() || run_of_[op] < 0 ? nullptr
                                                  : &runs_[static_cast<size_t>(run_of_[op])];
    }
    void Add(FusedRun run);

    std::vector<FusedRun> runs_;
    std::vector<int32_t> run_of_;  // by op: its run, -1: none
};

// Emits a run, for the emitter's Program and shape (lower_fused.cc).
Status LowerRun(Emitter& e, const FusedRun& run);
// What is computed where an op stands: itself, the run that ends there, or nothing. fusion: null:
// nothing is fused.
Status LowerAt(Emitter& e, size_t op, const Fusion* fusion);

}  // namespace weft::backend::vulkan
