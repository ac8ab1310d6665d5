// Lowers a Program with chunks. Each family of ops has a file: lower_training.cc, lower_experts.cc,
// lower_update.cc.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/lowerer.h"
#include "kernels/dense/experts.h"
#include "kernels/dense/lookup.h"
#include "kernels/dense/update.h"
#include "program/communication.h"

namespace weft::backend {

// The element type of a training value in kernels: kF32 for all types except bfloat16 and float16.
constexpr dense::Element ElementOf(DType dtype) {
    if (dtype == DType::kBF16) return dense::Element::kBf16;
    return dtype == DType::kF16 ? dense::Element::kF16 : dense::Element::kF32;
}

// The scratch memory of one part, for arguments with the members `scratch` and `scratch_bytes`.
template <typename Args>
std::span<std::byte> OwnPart(const Args& args, int part) {
    return {args.scratch + part * args.scratch_bytes, static_cast<size_t>(args.scratch_bytes)};
}

class TrainingLowerer final : Lowerer {
  public:
    TrainingLowerer(const program::ChunkedProgram& chunked, const CompileOptions& options,
                    const kernels::Kernels& kernels, Buffers& buffers)
        : Lowerer(chunked.program, options, kernels, buffers), chunked_(chunked) {}
    Result<std::vector<Call>> Run();

  private:
    using Op = program::Op;
    using ValueId = program::ValueId;
    // Rows of one type, row-major.
    struct Plain {
        DType dtype = DType::kF32;
        int64_t cols = 0;
        OperandRegion region{};
    };

    // The experts of an op with expert matrices, and the stack of these matrices.
    struct Experts {
        ValueId ids = program::kNoValue, stack = program::kNoValue;
        int64_t first = 0, count = 0, used = 0, n = 0, k = 0;
    };

    template <typename T>
    Status LowerAny(const Op& op, const T& a) {
        if constexpr (T::kRow.Is(program::Trait::kTransfer)) {
            return PushTransfer(op);
        } else if constexpr (requires { Lower(op, a); }) {
            return Lower(op, a);
        } else {
            return Unsupported("can not be trained on the CPU");
        }
    }
    Status CheckTypes(const Op& op) const;

    // lower_training.cc
    Status Lower(const Op& op, const program::Embedding& a);
    Status Lower(const Op& op, const program::EmbeddingGrad& a);
    Status Lower(const Op& op, const program::SelectRows& a);
    Status Lower(const Op& op, const program::SelectRowsGrad& a);
    Status Lower(const Op& op, const program::RmsNorm& a);
    Status Lower(const Op& op, const program::RmsNormGradInput& a);
    Status Lower(const Op& op, const program::RmsNormGradWeight& a);
    Status Lower(const Op& op, const program::MatMul& a);
    Status Lower(const Op& op, const program::MatMulGradInput& a);
    Status Lower(const Op& op, const program::MatMulGradWeight& a);
    Status Lower(const Op& op, const program::AddBias& a);
    Status Lower(const Op& op, const program::BiasGrad& a);
    Status Lower(const Op& op, const program::Rope& a);
    Status Lower(const Op& op, const program::Attention& a);
    Status Lower(const Op& op, const program::AttentionGrad& a);
    Status Lower(const Op& op, const program::Glu& a);
    Status Lower(const Op& op, const program::GluGrad& a);
    Status Lower(const Op& op, const program::Add& a);
    Status Lower(const Op& op, const program::Scale& a);
    Status Lower(const Op& op, const program::ScaleByPosition& a);
    Status Lower(const Op& op, const program::SoftCap& a);
    Status Lower(const Op& op, const program::SoftCapGrad& a);
    Status Lower(const Op& op, const program::Zero& a);
    Status Lower(const Op& op, const program::SliceRows& a);
    Status Lower(const Op& op, const program::SliceColumns& a);
    Status Lower(const Op& op, const program::PadColumns& a);
    Status Lower(const Op& op, const program::SoftmaxStats& a);
    Status Lower(const Op& op, const program::CrossEntropy& a);
    Status Lower(const Op& op, const program::CrossEntropyGrad& a);
    CallOf<dense::RmsNormGradArgs> NormGrad(const Op& op, float eps, int64_t group);
    std::string TableName(const program::Rope& a);
    template <typename Args>
    void CopyColumns(CallOf<Args>& call, dense::CopyColumnsArgs& args, const Op& op,
                     int64_t x_begin, int64_t y_begin);
    template <typename Gemm>
    Status PushGemm(CallOf<Gemm>& call, int64_t& rows, ValueId rows_like);
    static void SetOperand(dense::GemmOperand& operand, const Plain& x, bool turned);
    int64_t BlockRows(ValueId weight) const;
    Result<Plain> Widened(ValueId weight, int64_t begin, int64_t count,
                          const Experts* experts = nullptr);
    void SetHeads(dense::CausalArgs& args, const program::Attention& a) const;
    Status CheckAttention(const Op& op, const program::Attention& a, size_t first) const;
    void PretendSequence(dense::CausalArgs& args);
    Status PushTransfer(const Op& op);

    // lower_experts.cc
    Status Lower(const Op& op, const program::Route& a);
    Status Lower(const Op& op, const program::RouteGrad& a);
    Status Lower(const Op& op, const program::ExpertMatMul& a);
    Status Lower(const Op& op, const program::ExpertMatMulGradInput& a);
    Status Lower(const Op& op, const program::ExpertMatMulGradWeight& a);
    Status Lower(const Op& op, const program::ExpertSum& a);
    Status Lower(const Op& op, const program::ExpertSumGradInput& a);
    Status Lower(const Op& op, const program::ExpertSumGradWeight& a);
    Status Lower(const Op& op, const program::GateRows& a);
    Status Lower(const Op& op, const program::GateRowsGrad& a);
    Status Lower(const Op& op, const program::RouterLoad& a);
    Status Lower(const Op& op, const program::RouterLoadGrad& a);
    Status Lower(const Op& op, const program::LoadBalance& a);
    Status Lower(const Op& op, const program::LoadBalanceGrad& a);
    Status Plan(const Experts& experts);
    OperandRegion PlanBegin(const Experts& experts);
    Experts ExpertsOf(ValueId ids, ValueId stack, int64_t first) const;
    template <typename Args>
    void ReadsPlan(CallOf<Args>& call, kernels::ExpertPlan& plan, const Experts& experts);
    Status PushGather(const Experts& experts, ValueId x, const Plain& to, ValueId weights);
    Status PushExpertGemm(const Experts& experts, dense::ExpertProduct product, const Plain& a,
                          const Plain& b, const Plain& c);
    Status PushClearRest(const Experts& experts, ValueId y);
    Status PushCombine(const Experts& experts, const Plain& sums, ValueId weights, ValueId base,
                       ValueId y);
    Plain ScratchSlots(const std::string& name, const Experts& experts, DType dtype, int64_t cols);
    Plain Slots(ValueId id) const { return {TypeOf(id), Cols(id), Of(id)}; }

    // lower_update.cc
    Status Lower(const Op& op, const program::AddSquares& a);
    template <auto kBlocks, auto kAdd, typename Args>
    Status LowerSquares(const Op& op, const program::AddSquares& a);
    Status Lower(const Op& op, const program::AdamUpdate& a);
    Status Lower(const Op& op, const program::Adam8bitUpdate& a);
    Status Lower(const Op& op, const program::SgdUpdate& a);
    Status Lower(const Op& op, const program::AdafactorSums& a);
    Status Lower(const Op& op, const program::AdafactorMoments& a);
    Status Lower(const Op& op, const program::AdafactorSizes& a);
    Status Lower(const Op& op, const program::AdafactorUpdate& a);
    template <typename Args>
    void OwnPartOf(CallOf<Args>& call, const Op& op, size_t copy);
    template <typename Args>
    void ReadsNumbers(CallOf<Args>& call);

    // ---- Operands ---------------------------------------------------------------------------

    // All of a value's bytes.
    OperandRegion Of(ValueId id) const {
        const program::Value& value = program_.value(id);
        const int64_t elements = value.shape.Elements(options_.max_tokens, options_.max_outputs);
        return {buffers_.At(id), 0, RowBytes(value.dtype, elements), id, buffers_.SlotStride(id)};
    }
    template <typename Args>
    void In(CallOf<Args>& call, dense::ConstMatrix& x, ValueId id) {
        call.Reads(x.data, Of(id));
        x.stride = Cols(id);
        x.type = ElementOf(TypeOf(id));
    }
    // As In(), for a call whose arguments have the operand as a Matrix although the call only reads
    // it.
    template <typename Args>
    void Reads(CallOf<Args>& call, dense::Matrix& x, ValueId id) {
        call.Reads(x.data, Of(id));
        x.stride = Cols(id);
        x.type = ElementOf(TypeOf(id));
    }
    template <typename Args>
    void Out(CallOf<Args>& call, dense::Matrix& y, ValueId id) {
        call.Writes(y.data, Of(id));
        y.stride = Cols(id);
        y.type = ElementOf(TypeOf(id));
    }
    template <typename Args>
    void Change(CallOf<Args>& call, dense::Matrix& y, ValueId id) {
        call.Changes(y.data, Of(id));
        y.stride = Cols(id);
        y.type = ElementOf(TypeOf(id));
    }
    // Dimension and factor of a value's rows. A vector without a row dimension of the step is one
    // row; [T, K, n] has K rows per T.
    std::pair<int64_t, int64_t> RowsAndFactor(ValueId id) const {
        const program::Shape& shape = ShapeOf(id);
        if (shape.rank == 1) return {shape[0] < 0 ? shape[0] : 1, 1};
        return {shape[0], shape.rank == 3 ? shape[1] : 1};
    }
    template <typename Args>
    void Rows(CallOf<Args>& call, int64_t& count, ValueId like) {
        const auto [dim, factor] = RowsAndFactor(like);
        call.RowsOf(count, dim, factor);
    }
    template <typename Args>
    void MoreRows(CallOf<Args>& call, int64_t& count, ValueId like) {
        const auto [dim, factor] = RowsAndFactor(like);
        call.MoreRowsOf(count, dim, factor);
    }
    int64_t MostRows(ValueId id) const {
        const auto [dim, factor] = RowsAndFactor(id);
        return program::BindDim(dim, options_.max_tokens, options_.max_outputs) * factor;
    }
    Status NeedFloats(ValueId x, ValueId y) const {
        if (TypeOf(x) == DType::kF32 && TypeOf(y) == DType::kF32) return {};
        return Unsupported("supports float32 only");
    }
    dense::Compute compute() const {
        return options_.compute == DType::kBF16 ? dense::Compute::kBf16 : dense::Compute::kF32;
    }
    template <auto kKernel, typename Args>
    Status Push(CallOf<Args>& call) {
        SetKernel<kKernel>(call);
        Add(call.Take());
        return {};
    }

    const program::ChunkedProgram& chunked_;
    std::vector<std::byte*> tables_made_;  // in the current forward or backward pass of a chunk
    std::vector<std::pair<std::vector<float>, float>> angles_;
    ValueId planned_ids_ = program::kNoValue;
    kernels::Sequence whole_step_;
};

}  // namespace weft::backend
