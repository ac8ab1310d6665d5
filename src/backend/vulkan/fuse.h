// Fusion: finds runs of ops that one kernel computes, once per Program. No other op reads the
// values between the ops of a run, and the kernel does not store them.
//
// A run is computed in the place of its last op. The ops in between neither write memory that the
// run's ops touch nor read memory that they write, and none is a transfer. All operands of the run
// must live until its last op (LivesOf). The bits equal those of the single ops, so steps under a
// probe or trace are lowered without fusion.
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

// The index of an op in its Program; kNoOp: the run lacks this op.
inline constexpr int32_t kNoOp = -1;

// The end of one block and the beginning of the next:
//     add_bias, rms_norm, scale, then add (to another value), then scale, select_rows, rms_norm.
struct ResidualRun {
    int32_t bias = kNoOp, norm = kNoOp, scale = kNoOp;
    int32_t add = kNoOp;  // always present
    int32_t sum_scale = kNoOp, select = kNoOp, next = kNoOp;
};
// The ops between the products of q, k and v and the attention, which is lowered after the run:
// norms (per head, or of all columns of q and of k with precomputed squares), RoPE, and writes of
// rows into the cache. The norm of v has no weight.
struct HeadsRun {
    int32_t q_norm = kNoOp, q_rope = kNoOp;
    int32_t k_norm = kNoOp, k_rope = kNoOp;
    int32_t v_norm = kNoOp;
    int32_t attention = kNoOp;  // always present
};
// As HeadsRun, for latent attention: rotates the RoPE columns of q; norms and rotates columns of
// the product that is cached. All ops are always present.
struct LatentRun {
    int32_t q_pick = kNoOp, q_rope = kNoOp;
    int32_t latent_pick = kNoOp, latent_norm = kNoOp;
    int32_t key_pick = kNoOp, key_rope = kNoOp;
    int32_t attention = kNoOp;
};
// Two products of one x with weights of the same type and shape, and the gating of one by the
// other. If the weights differ, the gate product stays outside the run. In steps of at most as many
// rows as a matvec takes, one kernel computes the run; larger steps compute the ops one by one in
// the place of the last op.
struct GluRun {
    int32_t gate = kNoOp;
    int32_t up = kNoOp, glu = kNoOp;  // always present
};
// The product that scores experts, and the routing. One kernel computes both in steps of very few
// rows if the weight is not quantized.
struct RouteRun {
    int32_t product = kNoOp, route = kNoOp;  // always present
};
// A run of at least two ops.
struct FusedRun {
    std::variant<ResidualRun, HeadsRun, LatentRun, GluRun, RouteRun> what;
    std::vector<int32_t> ops;  // ascending
};

class Fusion {
  public:
    Fusion() = default;  // nothing is fused
    // keep: values that the host reads after the step.
    Fusion(const program::Program& program, std::span<const program::ValueId> keep);

    bool fuses() const { return !run_of_.empty(); }
    std::span<const FusedRun> runs() const { return runs_; }
    // The run that is computed at this op; null: none.
    const FusedRun* RunAt(size_t op) const {
        const FusedRun* run = RunOf(op);
        return run != nullptr && static_cast<size_t>(run->ops.back()) == op ? run : nullptr;
    }
    // Whether the op is computed in the place of a later op.
    bool Moves(size_t op) const { return RunOf(op) != nullptr && RunAt(op) == nullptr; }
    // The Program as the plan of the arena must see it: the last op of a run touches everything
    // that the run's ops touch.
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
// Emits what is computed at an op: the op, the run that ends there, or nothing. fusion: null means
// no fusion.
Status LowerAt(Emitter& e, size_t op, const Fusion* fusion);

}  // namespace weft::backend::vulkan
