#include "backend/gpu/record/lowering.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/gpu/lower/lower.h"
#include "base/check.h"
#include "program/communication.h"

namespace weft::backend::on_gpu {
namespace {

constexpr uint64_t kAlign = kBufferAlign;

}  // namespace

using program::OpKind;

bool IsLeftOut(const program::Program& program, const program::Op& op, const StepShape& shape) {
    if (program::IsOfAdapters(op.kind())) return !shape.adapted;
    const auto no_rows = [&](program::ValueId id) {
        const int64_t dim = program.value(id).shape[0];
        return program::PieceOf(dim).rows > 0 && shape.RowsOf(dim) == 0;
    };
    if (std::ranges::any_of(op.inputs, no_rows)) return true;
    if (shape.outputs != 0) return false;
    const program::ValueId rows_like = op.outputs.empty() ? op.inputs[0] : op.outputs[0];
    return program.value(rows_like).shape[0] == program::kOutputs;
}

std::optional<uint64_t> FloatSumBytes(const program::Program& program, const program::Op& op,
                                      const StepShape& shape) {
    if (op.kind() != OpKind::kAllReduce) return std::nullopt;
    const program::Value &x = program.value(op.inputs[0]), &y = program.value(op.outputs[0]);
    if (x.dtype != DType::kF32 || y.dtype != DType::kF32) return std::nullopt;
    return static_cast<uint64_t>(RowBytes(x.dtype, shape.ElementsOf(x.shape)));
}

bool CanExchange(const program::Program& program, const program::Op& op, const StepShape& shape) {
    const std::optional<uint64_t> bytes = FloatSumBytes(program, op, shape);
    return bytes && *bytes <= HostSignal::kMostBytes;
}

// The ops that read an input of the step determine its table. (An embedding may be of positions.)
uint64_t TableOf(const program::Program& program, program::ValueId id, const StepTables& tables) {
    const std::string& name = program.value(id).name;
    if (name == "positions") return tables.positions;
    if (name == "token_types") return tables.token_types;
    if (name == "noise_keys") return tables.noise_keys;
    if (name == "noise_amplitudes") return tables.noise_amplitudes;
    for (const program::Op& op : program.ops) {
        if (op.kind() == OpKind::kEmbedding && op.inputs[0] == id) return tables.tokens;
        if (op.kind() == OpKind::kRope && op.inputs[1] == id) return tables.positions;
        if (op.kind() == OpKind::kSelectRows && op.inputs[1] == id) return tables.output_rows;
    }
    return name == "targets" ? tables.targets : 0;
}

uint64_t GradientOf(const program::ChunkedProgram& chunked, program::ValueId id,
                    const StepTables& tables) {
    for (const program::ModelChunk& chunk : chunked.chunks) {
        if (chunk.output_gradient == id) return tables.loss_gradient;
        if (chunk.side_gradient == id) return tables.side_gradient;
    }
    return 0;
}

uint64_t Lowering::UpdateScalar(UpdateScalarKind kind, double parameter) {
    return scalars_.value().Address(kind, parameter);
}

Result<std::vector<Dispatch>> Lowering::LowerStep(const StepShape& shape, const StepWork& work) {
    set_fuses(work.fusion != nullptr && work.fusion->fuses());
    slot_ = work.slot;
    return Repeat(shape, [&]() -> Status {
        for (size_t i = work.ops.begin; i < work.ops.end; ++i) {
            const program::Op& op = program_.ops[i];
            if (!buffers_.Runs(i, shape)) continue;
            if (program::IsCommunication(op.kind())) ForgetDerived();
            if (program::IsCommunication(op.kind()) || IsLeftOut(program_, op, shape)) continue;
            if (const Status status = LowerAt(i, work.fusion); !status.ok()) {
                return MakeError(status.error().code, "{}: program op {} ({}): {}", context_.Who(),
                                 i, program::OpName(op.kind()), status.error().message);
            }
        }
        op_ = static_cast<int32_t>(work.ops.end);
        return work.wanted.top == 0 ? Status() : LowerTopOf(work.wanted);
    });
}

Status Lowering::LowerAt(size_t op, const Fusion* fusion) {
    op_ = static_cast<int32_t>(op);
    return on_gpu::LowerAt(*this, op, fusion);
}

Status Lowering::LowerTopOf(const WantedRows& wanted) {
    // Some rows at a time, because each needs scratch memory for its candidates.
    constexpr int64_t kRowsAtOnce = 64;
    const int64_t cols = Cols(wanted.value);
    for (int64_t row = 0; row < shape_.outputs; row += kRowsAtOnce) {
        const TopRows rows{
            Address(wanted.value) + static_cast<uint64_t>(row * cols) * sizeof(float),
            std::min(kRowsAtOnce, shape_.outputs - row), cols, wanted.columns};
        const auto before = static_cast<uint64_t>(row * wanted.top) * sizeof(Candidate);
        WEFT_TRY(LowerTop(*this, rows, wanted.top, buffers_.wanted().address() + before));
    }
    return {};
}

uint64_t Lowering::Address(program::ValueId id) const {
    const program::ValueId home = program_.HomeOf(id);
    if (program_.value(home).storage != program::Storage::kInput) {
        return buffers_.At(id, slot_).address();
    }
    uint64_t address = TableOf(program_, home, tables_);
    if (address == 0) address = GradientOf(chunked_, home, tables_);
    WEFT_CHECK(address != 0);
    const program::Value& value = program_.value(id);
    return address + static_cast<uint64_t>(RowBytes(value.dtype, value.base_begin));
}

uint64_t Lowering::scratch_bytes() const {
    uint64_t sum = 0;
    for (const auto& [name, buffer] : scratch_) sum += buffer.size_bytes();
    for (const gpu::Buffer& block : constant_blocks_) sum += block.size_bytes();
    return sum;
}

// Beyond its plan, memory grows by powers of two, because each growth invalidates all recordings;
// but not beyond the driver's limit.
Result<Region> Lowering::Scratch(std::string_view name, uint64_t bytes) {
    const auto found = scratch_.find(name);
    const bool there = found != scratch_.end();
    if (there && found->second.size_bytes() >= bytes) return Region{found->second.address(), bytes};
    const auto planned = plan_.sizes.find(name);
    uint64_t size = ScratchSize(bytes);
    if (planned != plan_.sizes.end() && planned->second >= size) {
        size = planned->second;
    } else {
        size = std::max(size, std::min(std::bit_ceil(size), context_.gpu->most_buffer_bytes()));
    }
    if (there) context_.held_bytes -= found->second.size_bytes();
    if (there) scratch_.erase(found);
    ++generation_;
    WEFT_ASSIGN(gpu::Buffer buffer, context_.gpu->Allocate(size, gpu::Place::kDevice));
    context_.held_bytes += size;
    const uint64_t address = buffer.address();
    scratch_.emplace(std::string(name), std::move(buffer));
    return Region{address, bytes};
}

Result<Region> Lowering::Constant(const std::string& name, uint64_t bytes, const MakeBytes& make) {
    if (const auto found = constants_.find(name); found != constants_.end()) return found->second;
    std::vector<std::byte> made(bytes);
    make(made);
    const uint64_t size = (std::max<uint64_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
    if (constant_blocks_.empty() || constants_used_ + size > constant_blocks_.back().size_bytes()) {
        WEFT_ASSIGN(gpu::Buffer block, context_.gpu->Allocate(std::max(size, kConstantBlockBytes),
                                                              gpu::Place::kDevice));
        context_.held_bytes += block.size_bytes();
        constant_blocks_.push_back(std::move(block));
        constants_used_ = 0;
    }
    const gpu::Buffer& block = constant_blocks_.back();
    const Uploader::Range range{&block, constants_used_, bytes};
    WEFT_TRY(uploader_.Put({&range, 1}, [&](std::span<std::byte* const> out) {
        std::memcpy(out[0], made.data(), made.size());
    }));
    WEFT_TRY(uploader_.Finish());
    const Region region{block.address() + constants_used_, bytes};
    constants_used_ += size;
    constants_.emplace(name, region);
    return region;
}

}  // namespace weft::backend::on_gpu
