// Lowering of a Program on a device: the Emitter of an executable. It knows where values, tables,
// scratch and constants lie, and collects what ops emit.
//
// Thread: one caller.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backend/vulkan/buffers.h"
#include "backend/vulkan/context.h"
#include "backend/vulkan/dispatch.h"
#include "backend/vulkan/fuse.h"
#include "backend/vulkan/upload.h"

namespace weft::backend::vulkan {

using program::OpRange;

// What a recording computes.
struct StepWork {
    OpRange ops;
    const Fusion* fusion = nullptr;  // null: each op by itself
    WantedRows wanted{};             // goes to Buffers::wanted(); whole rows are the recorder's
    auto operator<=>(const StepWork&) const = default;
};

// Whether a step of this shape leaves the op out: it works on output rows and there are none, or
// adapts rows and none is adapted.
bool IsLeftOut(const program::Program& program, const program::Op& op, const StepShape& shape);

// Whether a gate takes the sum over ranks: float32, and not too long (Gate::kMostBytes).
bool CanExchange(const program::Program& program, const program::Op& op, const StepShape& shape);

// The table among these that an input of the step is; 0: none.
uint64_t TableOf(const program::Program& program, program::ValueId id, const StepTables& tables);

// Constants are small: they share blocks of this size, and larger ones have their own.
constexpr uint64_t kConstantBlockBytes = uint64_t{256} << 10;

class Lowering final : public Emitter {
  public:
    Lowering(const program::Program& program, Context& context, const Buffers& buffers,
             Uploader& uploader)
        : program_(program), context_(context), buffers_(buffers), uploader_(uploader) {}

    void SetTables(const StepTables& tables) { tables_ = tables; }
    // Of the kernels of what is lowered from now on (KernelCode::guarded). False: and no sum is
    // waited for within submissions.
    void SetGuarded(bool guarded) { guarded_ = guarded; }
    // The dispatches of all that is computed on the device, in order: Dispatch::op is the op where
    // they stand, or ops.end of what comes behind all ops. Where scratch has grown, `generation`
    // has changed, and no recording made before is good.
    Result<std::vector<Dispatch>> LowerStep(const StepShape& shape, const StepWork& work);
    // What `emit` emits, by itself.
    template <typename Emit>
    Result<std::vector<Dispatch>> LowerAlone(const StepShape& shape, const Emit& emit) {
        return Repeat(shape, [&] { return emit(static_cast<Emitter&>(*this)); });
    }
    int64_t generation() const { return generation_; }
    uint64_t scratch_bytes() const;

    const program::Program& program() const override { return program_; }
    const gpu::Description& gpu() const override { return context_.gpu->description(); }
    const StepShape& shape() const override { return shape_; }
    const StepTables& tables() const override { return tables_; }
    bool reference() const override { return context_.reference; }
    const Arithmetic& arithmetic() const override { return context_.arithmetic; }
    uint64_t Address(program::ValueId id) const override;
    const WeightPlace& Weight(program::ValueId id) const override { return buffers_.Weight(id); }
    const CachePlace& Cache(program::ValueId id) const override { return buffers_.Cache(id); }
    Result<Region> Scratch(std::string_view name, uint64_t bytes) override;
    Result<Region> Constant(const std::string& name, uint64_t bytes,
                            const MakeBytes& make) override;
    Result<const gpu::Kernel*> Kernel(std::string_view shader,
                                      std::initializer_list<uint32_t> constants,
                                      uint32_t args_bytes, uint32_t subgroup) override {
        return context_.kernels.Get(shader, constants, args_bytes, subgroup, guarded_);
    }
    bool Exchanges(const program::Op& sum) const override {
        return guarded_ && CanExchange(program_, sum, shape_);
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
            ForgetMade();
            op_ = 0;
            WEFT_TRY(emit());
            if (generation_ == before) return std::move(dispatches_);
        }
    }

    const program::Program& program_;
    Context& context_;
    const Buffers& buffers_;
    Uploader& uploader_;
    StepTables tables_;
    StepShape shape_;
    int32_t op_ = 0;
    std::vector<Dispatch> dispatches_;
    std::map<std::string, gpu::Buffer, std::less<>> scratch_;
    std::map<std::string, Region> constants_;
    std::vector<gpu::Buffer> constant_blocks_;
    uint64_t constants_used_ = 0;  // of the last block
    int64_t generation_ = 0;
    bool guarded_ = false;
};

}  // namespace weft::backend::vulkan
