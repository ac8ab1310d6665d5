#include "backend/gpu/dry_run.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>
#include <string>

#include "backend/gpu/dispatch/weights.h"
#include "backend/gpu/gpu_device.h"
#include "backend/gpu/lower/fuse.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/products.h"
#include "backend/gpu/memory/buffers.h"
#include "backend/gpu/memory/step_parts.h"
#include "backend/gpu/memory/step_tables.h"
#include "backend/gpu/record/lowering.h"
#include "program/communication.h"
#include "shaders/shaders.h"

namespace weft::backend::on_gpu {
namespace {

// Placeholder for every kernel.
class NoKernel final : public gpu::Kernel {
  public:
    explicit NoKernel(uint32_t subgroup) : subgroup_(subgroup) {}
    uint32_t subgroup() const override { return subgroup_; }

  private:
    uint32_t subgroup_;
};

// Addresses are made up. Values, tables and pieces of scratch memory are far apart.
constexpr uint64_t kApart = uint64_t{1} << 40;

class DryEmitter final : public Emitter {
  public:
    DryEmitter(const program::Program& program, const gpu::Description& gpu,
               const DryOptions& options)
        : program_(program), gpu_(gpu), options_(options), kernel_(gpu.subgroup) {
        set_trains(options.trains);
        for (uint64_t* table :
             {&tables_.tokens, &tables_.positions, &tables_.token_types, &tables_.output_rows,
              &tables_.row_sequence, &tables_.sequences, &tables_.states, &tables_.state_writes,
              &tables_.blocks, &tables_.pages, &tables_.copies, &tables_.targets,
              &tables_.loss_gradient, &tables_.side_gradient, &tables_.token_order,
              &tables_.noise_keys, &tables_.noise_amplitudes}) {
            *table = next_ += kApart;
        }
        for (const program::Value& value : program.values) Place(value);
    }
    void Begin(const StepShape& shape) {
        shape_ = shape;
        ForgetDerived();
    }
    ScratchPlan Plan() const {
        ScratchPlan plan;
        for (const auto& [name, region] : scratch_) plan.sizes.emplace(name, region.bytes);
        for (const auto& [name, region] : constants_) {
            plan.largest_constant_bytes =
                std::max(plan.largest_constant_bytes, Lowering::ScratchSize(region.bytes));
        }
        plan.constant_bytes =
            (constant_bytes_ + kConstantBlockBytes - 1) / kConstantBlockBytes * kConstantBlockBytes;
        return plan;
    }

    const program::Program& program() const override { return program_; }
    const gpu::Description& gpu() const override { return gpu_; }
    const StepShape& shape() const override { return shape_; }
    const StepTables& tables() const override { return tables_; }
    bool reference() const override { return options_.reference; }
    const Arithmetic& arithmetic() const override { return options_.arithmetic; }
    uint64_t Address(program::ValueId id) const override {
        const bool input = program_.value(id).storage == program::Storage::kInput;
        return input ? TableOf(program_, id, tables_) : addresses_[static_cast<size_t>(id)];
    }
    const WeightPlace& Weight(program::ValueId id) const override {
        return weights_[static_cast<size_t>(id)];
    }
    const CachePlace& Cache(program::ValueId id) const override {
        return caches_[static_cast<size_t>(id)];
    }
    Result<Region> Scratch(std::string_view name, uint64_t bytes) override {
        Region& region = scratch_[std::string(name)];
        if (region.address == 0) region.address = next_ += kApart;
        region.bytes = std::max(Lowering::ScratchSize(bytes), region.bytes);
        return Region{region.address, bytes};
    }
    Result<Region> Constant(const std::string& name, uint64_t bytes, const MakeBytes&) override {
        Region& region = constants_[name];
        if (region.address == 0) {
            region = {next_ += kApart, bytes};
            constant_bytes_ += (bytes + kBufferAlign - 1) / kBufferAlign * kBufferAlign;
        }
        return region;
    }
    uint64_t UpdateScalar(UpdateScalarKind, double) override { return kApart; }
    Result<const gpu::Kernel*> Kernel(std::string_view shader, std::span<const uint32_t> constants,
                                      uint32_t args_bytes, uint32_t subgroup) override {
        kernels_.insert(
            {std::string(shader), {constants.begin(), constants.end()}, args_bytes, subgroup});
        if (none_built_ || !shaders::Find(shader).empty()) return &kernel_;
        return MakeError(ErrorCode::kUnsupported, "this weft has no shader '{}'", shader);
    }
    bool Exchanges(const program::Op&) const override { return false; }
    void Emit(Dispatch d) override {
        const std::array<uint32_t, 3>& most = gpu_.most_groups;
        if (d.x <= most[0] && d.y <= most[1] && d.z <= most[2]) return;
        too_many_ = MakeError(ErrorCode::kUnsupported,
                              "a step of {} rows needs {} x {} x {} workgroups; {} supports at "
                              "most {} x {} x {}. Use a smaller {}.",
                              shape_.rows, d.x, d.y, d.z, gpu_.name, most[0], most[1], most[2],
                              trains() ? "--micro-batch (with more --grad-accum) or --seq-len"
                                       : "--prefill-chunk (weft serve: --step-tokens)");
    }
    const std::set<KernelUse>& kernels() const { return kernels_; }
    // Error if any emitted dispatch has more workgroups than the device allows.
    const Status& too_many() const { return too_many_; }

  private:
    void Place(const program::Value& value) {
        addresses_.push_back(next_ += kApart);
        weights_.emplace_back();
        caches_.emplace_back();
        const program::Shape& shape = value.shape;
        if (value.storage == program::Storage::kWeight && !HoldsVectors(shape)) {
            weights_.back() = {value.dtype, shape.rank == 3 ? shape[0] : 1, shape[shape.rank - 2],
                               shape[shape.rank - 1], next_};
        } else if (value.storage == program::Storage::kState) {
            caches_.back() = {value.dtype, shape[0], kPageTokens, shape[1], next_};
        }
    }

    const program::Program& program_;
    const gpu::Description& gpu_;
    StepShape shape_;
    const DryOptions options_;
    const NoKernel kernel_;
    const bool none_built_ = shaders::Names().empty();  // memory is the same without shaders
    StepTables tables_;
    Status too_many_;
    uint64_t next_ = 0, constant_bytes_ = 0;  // constants are allocated in blocks
    std::vector<uint64_t> addresses_;
    std::vector<WeightPlace> weights_;
    std::vector<CachePlace> caches_;
    std::map<std::string, Region> scratch_, constants_;
    std::set<KernelUse> kernels_;
};

Status LowerSteps(DryEmitter& emitter, const Fusion& fusion, std::span<const StepShape> shapes) {
    const program::Program& program = emitter.program();
    emitter.set_fuses(fusion.fuses());
    for (const StepShape& shape : shapes) {
        emitter.Begin(shape);
        for (size_t i = 0; i < program.ops.size(); ++i) {
            const program::Op& op = program.ops[i];
            if (program::IsCommunication(op.kind())) emitter.ForgetDerived();
            if (program::IsCommunication(op.kind()) || IsLeftOut(program, op, shape)) continue;
            Status status = LowerAt(emitter, i, &fusion);
            if (status.ok()) status = emitter.too_many();
            if (!status.ok()) {
                return MakeError(status.error().code, "program op {} ({}): {}", i,
                                 program::OpName(op.kind()), status.error().message);
            }
        }
    }
    return {};
}

Status CheckValue(const program::Value& value) {
    using program::Storage;
    if (value.storage == Storage::kWeight) {
        if (HoldsVectors(value.shape)) return {};
        return CheckWeightType(value.dtype, value.shape[value.shape.rank - 1]);
    }
    const bool known = value.storage == Storage::kInput || value.storage == Storage::kState ||
                       value.dtype == DType::kF32 || value.dtype == DType::kI32 ||
                       value.dtype == DType::kBF16 || value.dtype == DType::kF16;
    if (known) return {};
    return MakeError(ErrorCode::kUnsupported, "Vulkan devices have no activations of type {}",
                     Info(value.dtype).name);
}

}  // namespace

// Lowers steps of few rows and of many.
Status CheckProgram(const program::Program& program, const gpu::Description& gpu,
                    const DryOptions& options) {
    for (const program::Value& value : program.values) {
        if (const Status status = CheckValue(value); !status.ok()) {
            return MakeError(status.error().code, "{}: {}", value.name, status.error().message);
        }
    }
    std::vector<StepShape> shapes;
    for (const int32_t rows : {1, 2, 64}) {
        StepShape& shape = shapes.emplace_back();
        shape.rows = shape.outputs = shape.sequences = shape.blocks = rows;
        shape.positions = 256;
        shape.adapted = true;
    }
    WEFT_TRY(PlanScratch(program, Fusion(), gpu, shapes, options));
    return {};
}

uint64_t ScratchPlan::bytes() const {
    uint64_t sum = constant_bytes;
    for (const auto& [name, size] : sizes) sum += size;
    return sum;
}

Result<ScratchPlan> PlanScratch(const program::Program& program, const Fusion& fusion,
                                const gpu::Description& gpu, std::span<const StepShape> shapes,
                                const DryOptions& options) {
    DryEmitter emitter(program, gpu, options);
    WEFT_TRY(LowerSteps(emitter, fusion, shapes));
    return emitter.Plan();
}

Result<std::vector<KernelUse>> KernelsOf(const program::Program& program, const Fusion& fusion,
                                         const gpu::Description& gpu,
                                         std::span<const StepShape> shapes,
                                         const DryOptions& options) {
    DryEmitter emitter(program, gpu, options);
    WEFT_TRY(LowerSteps(emitter, fusion, shapes));
    return std::vector<KernelUse>(emitter.kernels().begin(), emitter.kernels().end());
}

StepShape MostOf(const CompileOptions& options) {
    StepShape most;
    most.rows = static_cast<int32_t>(options.max_tokens);
    most.outputs = static_cast<int32_t>(options.max_outputs);
    most.sequences = most.blocks = most.rows;
    most.adapted = true;
    const int64_t positions = options.kv_pages * options.page_tokens;
    most.positions = static_cast<int32_t>(
        std::bit_ceil(static_cast<uint32_t>(std::clamp<int64_t>(positions, 1, 1 << 30))));
    return most;
}

std::vector<StepShape> LargestOf(const CompileOptions& options, const Arithmetic& arithmetic) {
    std::vector<StepShape> shapes = {MostOf(options)};
    const int64_t split = arithmetic.split_groups > 0 ? kMostDividedRows : kMatvecRows;
    for (const int64_t most :
         {split, std::max(kMatvecRows, arithmetic.matvec_rows), kMatvecRows, int64_t{1}}) {
        const int32_t rows = std::min(static_cast<int32_t>(most), shapes[0].rows);
        StepShape few = shapes[0];
        few.rows = few.sequences = few.blocks = rows;
        few.outputs = std::min(rows, shapes[0].outputs);
        shapes.push_back(few);
    }
    return shapes;
}

Result<MemoryUse> PlanMemory(const program::Program& program, const CompileOptions& options,
                             const gpu::Description& gpu, const Arithmetic& arithmetic) {
    WEFT_TRY(CheckProgram(program, gpu, {arithmetic}));
    const program::ChunkedProgram chunked{program};
    const Fusion fusion(program, options.keep, options.ways);
    Buffers buffers;
    WEFT_TRY(buffers.Plan(chunked, fusion.LivesOf(program), options));
    WEFT_ASSIGN(const ScratchPlan scratch,
                PlanScratch(program, fusion, gpu, LargestOf(options, arithmetic), {arithmetic}));
    uint64_t tables = TableMemory::Bytes(options);
    const int parts = MostParts(program, options);
    for (int i = 0; i < parts; ++i) tables += TableMemory::Bytes(PartOptions(options, parts));
    return MemoryUse{buffers.weight_bytes(), buffers.kv_bytes(),
                     buffers.arena_bytes() + tables + scratch.bytes(),
                     gpu.unified ? 0 : buffers.host_bytes() + tables};
}

gpu::Description CommonGpu() {
    gpu::Description gpu;
    gpu.name = "a GPU";
    gpu.subgroup = gpu.least_subgroup = gpu.most_subgroup = 32;
    gpu.float16 = true;
    gpu.shared_bytes = 32 << 10;
    gpu.most_invocations = 1024;
    gpu.most_groups = {65535, 65535, 65535};
    return gpu;
}

}  // namespace weft::backend::on_gpu
