// Fusion: finds groups of ops of a Program that one kernel can compute. A group of fused ops is
// called a run. Values that one op of a run passes to another have no other readers, and the kernel
// does not store these values.
//
// A run is computed at the position of its last op. Other ops that lie between the ops of a run do
// not write memory that the run's ops touch, do not read memory that the run's ops write, and are
// not transfers. All operands of the run must live until its last op (LivesOf). Results have the
// same bits as without fusion, so steps with a probe or trace can be lowered without it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "backend/gpu/dispatch/dispatch.h"
#include "base/result.h"
#include "program/placement.h"
#include "program/program.h"

namespace weft::backend::on_gpu {

// The index of an op in its Program; kNoOp: the run lacks this op.
inline constexpr int32_t kNoOp = -1;

// The ops at the end of one block of layers and at the beginning of the next:
//     add_bias, rms_norm, scale, then add (to another value), then scale, select_rows, rms_norm.
struct ResidualRun {
    int32_t bias = kNoOp, norm = kNoOp, scale = kNoOp;
    int32_t add = kNoOp;  // never kNoOp
    int32_t sum_scale = kNoOp, select = kNoOp, next = kNoOp;
};
// The ops that come after the products that compute q, k and v, and before the attention: norms
// (per head, or of all columns of q and of k with precomputed squares), RoPE, and writes of rows
// into the cache. The attention itself is lowered after the run. The norm of v has no weight.
struct HeadsRun {
    int32_t q_norm = kNoOp, q_rope = kNoOp;
    int32_t k_norm = kNoOp, k_rope = kNoOp;
    int32_t v_norm = kNoOp;
    int32_t attention = kNoOp;  // never kNoOp
};
// As HeadsRun, for latent attention. The run applies RoPE to some columns of q, and a norm and RoPE
// to columns of the product that is cached. All ops are always present.
struct LatentRun {
    int32_t q_pick = kNoOp, q_rope = kNoOp;
    int32_t latent_pick = kNoOp, latent_norm = kNoOp;
    int32_t key_pick = kNoOp, key_rope = kNoOp;
    int32_t attention = kNoOp;
};
// Two products that have the same input x, called gate and up, and the op that multiplies up by the
// activation of gate. If the two weights differ in type or shape, the gate product is not part of
// the run. One kernel computes the run in steps with at most as many rows as the matvec kernels
// support. In larger steps, each op has its own kernel, at the position of the last op.
struct GluRun {
    int32_t gate = kNoOp;
    int32_t up = kNoOp, glu = kNoOp;  // never kNoOp
};
// The product that computes the scores of experts, and the op that chooses experts by these scores.
// One kernel computes both in steps of very few rows if the weight is not quantized.
struct RouteRun {
    int32_t product = kNoOp, route = kNoOp;  // never kNoOp
};
// A run of at least two ops.
struct FusedRun {
    std::variant<ResidualRun, HeadsRun, LatentRun, GluRun, RouteRun> what;
    std::vector<int32_t> ops;  // ascending
};

class Fusion {
  public:
    Fusion() = default;  // nothing is fused
    // keep: values that the host reads after the step. ways: CompileOptions::ways; all ops of a run
    // have the same program::Way.
    Fusion(const program::Program& program, std::span<const program::ValueId> keep,
           std::span<const program::Way> ways = {});

    bool fuses() const { return !run_of_.empty(); }
    std::span<const FusedRun> runs() const { return runs_; }
    // The run whose last op is this op, and which is therefore computed there; null: none.
    const FusedRun* RunAt(size_t op) const {
        const FusedRun* run = RunOf(op);
        return run != nullptr && static_cast<size_t>(run->ops.back()) == op ? run : nullptr;
    }
    // Whether the op is computed in the place of a later op.
    bool Moves(size_t op) const { return RunOf(op) != nullptr && RunAt(op) == nullptr; }
    // The Program with the lifetimes of values for which the arena must be planned: the last op of
    // a run touches everything that the run's ops touch.
    program::Program LivesOf(const program::Program& program) const;

  private:
    const FusedRun* RunOf(size_t op) const {
        return run_of_.empty() || run_of_[op] < 0 ? nullptr
                                                  : &runs_[static_cast<size_t>(run_of_[op])];
    }
    void Add(FusedRun run);

    std::vector<FusedRun> runs_;
    std::vector<int32_t> run_of_;  // for each op, the index of its run; -1: none
};

// Emits a run, for the emitter's Program and shape (fused.cc).
Status LowerRun(Emitter& e, const FusedRun& run);
// Emits the dispatches at the position of an op: the run's dispatches if a run ends there, nothing
// if the op belongs to a run that ends later, else the op's dispatches. fusion: may be null.
Status LowerAt(Emitter& e, size_t op, const Fusion* fusion);

}  // namespace weft::backend::on_gpu
