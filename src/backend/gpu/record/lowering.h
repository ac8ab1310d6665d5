// Lowering turns a Program into dispatches for a device. It is the Emitter of an executable: it has
// the addresses of values, tables, scratch memory and constants, and collects the dispatches of
// ops.
//
// Thread: one caller.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/gpu/device/context.h"
#include "backend/gpu/dispatch/dispatch.h"
#include "backend/gpu/dispatch/update_scalars.h"
#include "backend/gpu/dry_run.h"
#include "backend/gpu/lower/fuse.h"
#include "backend/gpu/memory/buffers.h"
#include "backend/gpu/memory/upload.h"

namespace weft::backend::on_gpu {

using program::OpRange;

// The part of a step for which commands are recorded.
struct StepWork {
    OpRange ops;
    const Fusion* fusion = nullptr;  // null: no ops are fused
    WantedRows wanted{};             // results to write to Buffers::wanted()
    int slot = 0;                    // Step::slot
    auto operator<=>(const StepWork&) const = default;
};

// Whether a step of this shape skips the op, because the op works on output rows and there are
// none, or because the op adapts rows and no row uses an adapter.
bool IsLeftOut(const program::Program& program, const program::Op& op, const StepShape& shape);

// The size of a float32 sum over ranks; nullopt: the op is something else.
std::optional<uint64_t> FloatSumBytes(const program::Program& program, const program::Op& op,
                                      const StepShape& shape);
// Whether the op is a sum over ranks that a host signal can exchange: the sum must be float32 and
// have at most HostSignal::kMostBytes.
bool CanExchange(const program::Program& program, const program::Op& op, const StepShape& shape);

// The address of the table in `tables` that holds the value; 0: the value is not an input of the
// step.
uint64_t TableOf(const program::Program& program, program::ValueId id, const StepTables& tables);
// The address of the table in `tables` that holds the value, if the value is an input of a chunk
// and the gradient of an output of that chunk.
uint64_t GradientOf(const program::ChunkedProgram& chunked, program::ValueId id,
                    const StepTables& tables);

// Constants are small, so they share blocks of this size. Larger constants have their own block.
constexpr uint64_t kConstantBlockBytes = uint64_t{256} << 10;

class Lowering final : public Emitter {
  public:
    // compute: CompileOptions::compute, for products of training.
    Lowering(const program::ChunkedProgram& chunked, DType compute, Context& context,
             const Buffers& buffers, Uploader& uploader)
        : chunked_(chunked),
          program_(chunked.program),
          context_(context),
          buffers_(buffers),
          uploader_(uploader),
          arithmetic_(context.arithmetic) {
        arithmetic_.compute = compute;
    }

    void SetTables(const StepTables& tables) { tables_ = tables; }
    // The sizes of scratch memory. More than these is needed only by a step of an unusual shape.
    void SetScratch(ScratchPlan plan) { plan_ = std::move(plan); }
    // The size of a buffer of scratch memory for `bytes`.
    static uint64_t ScratchSize(uint64_t bytes) {
        return std::max((bytes + kBufferAlign - 1) / kBufferAlign * kBufferAlign, kBufferAlign);
    }
    // Sets the place of the update scalars. Call this before lowering anything.
    void SetUpdateScalars(const UpdateScalars& scalars) { scalars_ = scalars; }
    void FillUpdateScalars(const UpdateNumbers& update) { scalars_.value().Fill(update); }
    // Sets the guard of kernels lowered from now on. Only submissions whose kernels are guarded can
    // wait for sums over ranks.
    void SetGuard(Guard guard) { guard_ = guard; }
    // Returns the dispatches for everything that the device computes, in order. Dispatch::op is the
    // op in whose place the dispatch runs, or ops.end for work after all ops. When scratch memory
    // grows, generation() changes and all earlier recordings become invalid.
    Result<std::vector<Dispatch>> LowerStep(const StepShape& shape, const StepWork& work);
    // Returns the dispatches that `emit` emits. These dispatches do not belong to a step.
    template <typename Emit>
    Result<std::vector<Dispatch>> LowerAlone(const StepShape& shape, const Emit& emit) {
        return Repeat(shape, [&] { return emit(static_cast<Emitter&>(*this)); });
    }
    int64_t generation() const { return generation_; }
    uint64_t scratch_bytes() const;
    KernelCache& kernels() { return context_.kernels; }

    const program::Program& program() const override { return program_; }
    const gpu::Description& gpu() const override { return context_.gpu->description(); }
    const StepShape& shape() const override { return shape_; }
    const StepTables& tables() const override { return tables_; }
    bool reference() const override { return context_.reference; }
    const Arithmetic& arithmetic() const override { return arithmetic_; }
    uint64_t Address(program::ValueId id) const override;
    const WeightPlace& Weight(program::ValueId id) const override { return buffers_.Weight(id); }
    const CachePlace& Cache(program::ValueId id) const override { return buffers_.Cache(id); }
    Result<Region> Scratch(std::string_view name, uint64_t bytes) override;
    Result<Region> Constant(const std::string& name, uint64_t bytes,
                            const MakeBytes& make) override;
    uint64_t UpdateScalar(UpdateScalarKind kind, double parameter) override;
    Result<const gpu::Kernel*> Kernel(std::string_view shader, std::span<const uint32_t> constants,
                                      uint32_t args_bytes, uint32_t subgroup) override {
        return context_.kernels.Get(shader, {constants.begin(), constants.end()}, args_bytes,
                                    subgroup, guard_);
    }
    bool Exchanges(const program::Op& sum) const override {
        return guard_ == Guard::kStopWord && CanExchange(program_, sum, shape_);
    }
    void Emit(Dispatch dispatch) override {
        dispatch.op = op_;
        dispatches_.push_back(std::move(dispatch));
    }

  private:
    Status LowerAt(size_t op, const Fusion* fusion);
    Status LowerTopOf(const WantedRows& wanted);
    template <typename Emit>
    Result<std::vector<Dispatch>> Repeat(const StepShape& shape, const Emit& emit) {
        shape_ = shape;
        for (;;) {
            const int64_t before = generation_;
            dispatches_.clear();
            ForgetDerived();
            op_ = 0;
            WEFT_TRY(emit());
            if (generation_ == before) return std::move(dispatches_);
        }
    }

    const program::ChunkedProgram& chunked_;
    const program::Program& program_;
    Context& context_;
    const Buffers& buffers_;
    Uploader& uploader_;
    Arithmetic arithmetic_;
    StepTables tables_;
    std::optional<UpdateScalars> scalars_;
    StepShape shape_;
    int slot_ = 0;
    int32_t op_ = 0;
    std::vector<Dispatch> dispatches_;
    ScratchPlan plan_;
    std::map<std::string, gpu::Buffer, std::less<>> scratch_;
    std::map<std::string, Region> constants_;
    std::vector<gpu::Buffer> constant_blocks_;
    uint64_t constants_used_ = 0;  // bytes used in the last block
    int64_t generation_ = 0;
    Guard guard_ = Guard::kNone;
};

}  // namespace weft::backend::on_gpu
