#include "backend/cpu/scratch.h"

#include <algorithm>

#include "kernels/experts.h"
#include "kernels/latent.h"

namespace weft::backend {
namespace {

using program::Op;
using program::OpKind;
using program::ValueId;

int64_t Align(int64_t bytes) {
    constexpr int64_t kScratchAlign = 64;
    return (bytes + kScratchAlign - 1) / kScratchAlign * kScratchAlign;
}

// What the ops need, at the most.
class Needs {
  public:
    Needs(const program::Program& program, int64_t rows, const kernels::Kernels& kernels)
        : program_(program), rows_(rows), kernels_(kernels) {
        for (const Op& op : program.ops) {
            following_ = op.kind() == OpKind::kAdapt ? following_ + 1 : 0;
            Raise(adapts, following_);
            Add(op);
        }
    }

    int64_t prepared = 0;   // bytes of one buffer of prepared activations
    int64_t attention = 0;  // floats a thread
    int64_t rotary = 0;
    int64_t slots = 0, experts = 0, group = 0, wide = 0;  // of mixtures of experts
    int64_t adapts = 0, adapter_rank = 0, adapted = 0;    // Adapt ops that follow one another
    std::set<ValueId> segmented;
    std::map<Scratch::Angles, Region> tables;

  private:
    static void Raise(int64_t& most, int64_t value) { most = std::max(most, value); }
    const program::Shape& ShapeOf(ValueId id) const { return program_.value(id).shape; }
    int64_t Cols(ValueId id) const { return ShapeOf(id)[ShapeOf(id).rank - 1]; }
    // A product of rows that are `times` of each token.
    void AddProduct(const Op& op, int64_t times) {
        const program::Value& weight = program_.value(WeightOf(op));
        if (kernels_.prepared_as(weight.dtype) == kernels::Prepared::kNone) return;
        Raise(prepared,
              rows_ * times * kernels_.prepared_bytes(weight.shape[weight.shape.rank - 1]));
    }

    void Add(const Op& op) {
        if (op.kind() == OpKind::kAdapt) {
            Raise(adapter_rank, AdapterStride(program_, op));
            const ValueId y = op.outputs[0];
            const bool wide_output = program_.value(y).dtype == DType::kF64;
            if (op.as<program::Adapt>().segment_cols == 0 || wide_output) return;
            // A sum over columns that is no sum over ranks: it is rounded here, behind the
            // adapters, as it is behind the all-reduce where there are several ranks.
            Raise(adapted, rows_ * Cols(y));
            segmented.insert(y);
        } else if (op.kind() == OpKind::kMatMul) {
            AddProduct(op, 1);
        } else if (op.kind() == OpKind::kAttention) {
            const auto& a = op.as<program::Attention>();
            Raise(attention, kernels_.attention_scratch(a.head_dim, a.group));
        } else if (op.kind() == OpKind::kLatentAttention) {
            Raise(attention, kernels::LatentScratch(Cols(op.inputs[2]), Cols(op.inputs[3])));
        } else if (op.kind() == OpKind::kRope) {
            const auto& a = op.as<program::Rope>();
            if (tables.emplace(Scratch::AnglesOf(a), Region{}).second) rotary += a.rotary_dim;
        } else if (op.kind() == OpKind::kExpertMatMul || op.kind() == OpKind::kExpertSum) {
            const program::Shape& weight = ShapeOf(WeightOf(op));
            const int64_t used = Cols(op.inputs[1]);
            AddProduct(op, ShapeOf(op.inputs[0]).rank == 3 ? used : 1);
            Raise(slots, rows_ * used);
            Raise(experts, weight[0]);
            Raise(group, kernels::GroupScratchBytes(kernels_, weight[2]));
            if (op.kind() == OpKind::kExpertSum) Raise(wide, rows_ * weight[1]);
        } else if (op.kind() == OpKind::kHeadMatMul) {
            const program::Shape& weight = ShapeOf(WeightOf(op));
            AddProduct(op, weight[0]);
            Raise(group, kernels::GroupScratchBytes(kernels_, weight[2]));
        }
    }

    const program::Program& program_;
    const int64_t rows_;
    const kernels::Kernels& kernels_;
    int64_t following_ = 0;
};

}  // namespace

int64_t AdapterStride(const program::Program& program, const Op& op) {
    int64_t rank = 0;
    const auto& a = op.as<program::Adapt>();
    for (size_t i = 0; i < a.adapters.size(); ++i) {
        rank = std::max(rank, program.value(a.A(op.inputs, i)).shape[0]);
    }
    return (rank + kernels::kStripRows - 1) / kernels::kStripRows * kernels::kStripRows;
}

namespace {

// Regions one after another, from `base` on; null: only how many bytes they take.
class Places {
  public:
    explicit Places(std::byte* base) : base_(base) {}
    void Take(Region& region, int64_t bytes) {
        region.data = base_ == nullptr ? nullptr : base_ + total_;
        region.bytes = bytes;
        total_ += Align(bytes);
    }
    int64_t total() const { return total_; }

  private:
    std::byte* base_;
    int64_t total_ = 0;
};

Scratch LayOut(const program::Program& program, const CompileOptions& options,
               const kernels::Kernels& kernels, int threads, Places& places) {
    const int64_t rows = std::max(options.max_tokens, options.max_outputs);
    Needs needs(program, rows, kernels);
    Scratch scratch;
    scratch.segmented = std::move(needs.segmented);
    scratch.tables = std::move(needs.tables);
    scratch.attention_floats = Align(needs.attention * 4) / 4;
    scratch.group_bytes = Align(needs.group);
    scratch.adapter_u_bytes = Align(rows * needs.adapter_rank * 8);
    const auto take = [&](Region& region, int64_t bytes) { places.Take(region, bytes); };
    for (Region& prepared : scratch.prepared) take(prepared, needs.prepared);
    take(scratch.attention, scratch.attention_floats * 4 * threads);
    take(scratch.group, scratch.group_bytes * threads);
    take(scratch.plan_begin, (needs.experts + 1) * 4);
    take(scratch.plan_slots, needs.slots * 4);
    take(scratch.wide, needs.wide * 8);
    take(scratch.adapter_u, scratch.adapter_u_bytes * needs.adapts);
    take(scratch.adapted, needs.adapted * 8);
    for (auto& [angles, table] : scratch.tables) take(table, needs.rotary * options.max_tokens * 4);
    return scratch;
}

}  // namespace

int64_t ScratchBytes(const program::Program& program, const CompileOptions& options,
                     const kernels::Kernels& kernels, int threads) {
    Places places(nullptr);
    LayOut(program, options, kernels, threads, places);
    return places.total();
}

Result<Scratch> AllocateScratch(const program::Program& program, const CompileOptions& options,
                                const kernels::Kernels& kernels, int threads, Memory& memory) {
    const int64_t bytes = ScratchBytes(program, options, kernels, threads);
    WEFT_ASSIGN(memory, Memory::Allocate(bytes, "scratch"));
    Places places(memory.data());
    return LayOut(program, options, kernels, threads, places);
}

}  // namespace weft::backend
