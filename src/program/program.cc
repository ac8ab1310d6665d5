#include "program/program.h"

#include <algorithm>

namespace weft::program {

Shape::Shape(std::initializer_list<int64_t> list) : rank(static_cast<int>(list.size())) {
    WEFT_CHECK(list.size() <= dims.size());
    std::copy(list.begin(), list.end(), dims.begin());
}

int64_t Shape::Elements(int64_t tokens, int64_t outputs) const {
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) {
        const int64_t dim = (*this)[i];
        const int64_t ranks = SharingRanks(dim);
        if (ranks > 0) {
            count *= (tokens + ranks - 1) / ranks;
        } else {
            count *= dim == kTokens ? tokens : dim == kOutputs ? outputs : dim;
        }
    }
    return count;
}

std::string Shape::Text() const {
    std::string text = "[";
    for (int i = 0; i < rank; ++i) {
        if (i > 0) text += ", ";
        const int64_t dim = (*this)[i];
        const int64_t ranks = SharingRanks(dim);
        if (ranks > 0) text += fmt::format("T/{}", ranks);
        if (ranks > 0) continue;
        text += dim == kTokens ? "T" : dim == kOutputs ? "R" : std::to_string(dim);
    }
    return text + "]";
}

int64_t FileRow(const Value& weight, int64_t row) {
    const WeightSlice& slice = weight.slice;
    if (weight.shape.rank < 3) return slice.row_begin + row;
    const int64_t matrix = slice.first_matrix + row / weight.shape[1];
    return matrix * slice.matrix_rows + slice.row_begin + row % weight.shape[1];
}

Value MatrixOf(const Value& stack, int64_t i) {
    WEFT_CHECK(stack.shape.rank == 3);
    Value matrix = stack;
    matrix.name = fmt::format("{}.{}", stack.name, i);
    matrix.shape = {stack.shape[1], stack.shape[2]};
    matrix.slice.row_begin = FileRow(stack, i * stack.shape[1]);
    matrix.slice.first_matrix = matrix.slice.matrix_rows = 0;
    return matrix;
}

const char* OpName(OpKind kind) {
    switch (kind) {
        case OpKind::kEmbedding: return "embedding";
        case OpKind::kRmsNorm: return "rms_norm";
        case OpKind::kSumSquares: return "sum_squares";
        case OpKind::kMatMul: return "mat_mul";
        case OpKind::kRope: return "rope";
        case OpKind::kAttention: return "attention";
        case OpKind::kGlu: return "glu";
        case OpKind::kAdd: return "add";
        case OpKind::kAddBias: return "add_bias";
        case OpKind::kScale: return "scale";
        case OpKind::kSoftCap: return "soft_cap";
        case OpKind::kSelectRows: return "select_rows";
        case OpKind::kAllReduce: return "all_reduce";
        case OpKind::kAllGather: return "all_gather";
        case OpKind::kGatherRows: return "gather_rows";
        case OpKind::kReduceScatterRows: return "reduce_scatter_rows";
        case OpKind::kSliceRows: return "slice_rows";
        case OpKind::kSend: return "send";
        case OpKind::kRecv: return "recv";
        case OpKind::kZero: return "zero";
        case OpKind::kSliceColumns: return "slice_columns";
        case OpKind::kPadColumns: return "pad_columns";
        case OpKind::kRoute: return "route";
        case OpKind::kExpertMatMul: return "expert_mat_mul";
        case OpKind::kExpertSum: return "expert_sum";
        case OpKind::kGateRows: return "gate_rows";
        case OpKind::kRouterLoad: return "router_load";
        case OpKind::kLoadBalance: return "load_balance";
        case OpKind::kAdapt: return "adapt";
        case OpKind::kHeadMatMul: return "head_mat_mul";
        case OpKind::kPickColumns: return "pick_columns";
        case OpKind::kLatentAttention: return "latent_attention";
        case OpKind::kSoftmaxCrossEntropy: return "softmax_cross_entropy";
        case OpKind::kLinearCrossEntropy: return "linear_cross_entropy";
        case OpKind::kGatherShares: return "gather_shares";
        case OpKind::kReduceShares: return "reduce_shares";
        case OpKind::kMatMulGradInput: return "mat_mul_grad_input";
        case OpKind::kMatMulGradWeight: return "mat_mul_grad_weight";
        case OpKind::kBiasGrad: return "bias_grad";
        case OpKind::kRmsNormGradInput: return "rms_norm_grad_input";
        case OpKind::kRmsNormGradWeight: return "rms_norm_grad_weight";
        case OpKind::kAttentionGrad: return "attention_grad";
        case OpKind::kGluGrad: return "glu_grad";
        case OpKind::kRouteGrad: return "route_grad";
        case OpKind::kExpertMatMulGradInput: return "expert_mat_mul_grad_input";
        case OpKind::kExpertMatMulGradWeight: return "expert_mat_mul_grad_weight";
        case OpKind::kExpertSumGradInput: return "expert_sum_grad_input";
        case OpKind::kExpertSumGradWeight: return "expert_sum_grad_weight";
        case OpKind::kGateRowsGrad: return "gate_rows_grad";
        case OpKind::kRouterLoadGrad: return "router_load_grad";
        case OpKind::kLoadBalanceGrad: return "load_balance_grad";
        case OpKind::kEmbeddingGrad: return "embedding_grad";
        case OpKind::kSelectRowsGrad: return "select_rows_grad";
        case OpKind::kSoftmaxCrossEntropyGrad: return "softmax_cross_entropy_grad";
        case OpKind::kLinearCrossEntropyGrad: return "linear_cross_entropy_grad";
        case OpKind::kSumOver: return "sum_over";
        case OpKind::kAddSquares: return "add_squares";
        case OpKind::kAdamUpdate: return "adam_update";
        case OpKind::kAdam8bitUpdate: return "adam8bit_update";
        case OpKind::kSgdUpdate: return "sgd_update";
        case OpKind::kAdafactorSums: return "adafactor_sums";
        case OpKind::kAdafactorMoments: return "adafactor_moments";
        case OpKind::kAdafactorSizes: return "adafactor_sizes";
        case OpKind::kAdafactorUpdate: return "adafactor_update";
    }
    return "";
}

ValueId Program::AddValue(Value value) {
    values.push_back(std::move(value));
    return static_cast<ValueId>(values.size() - 1);
}

ValueId Program::Emit(OpAttributes attributes, std::vector<ValueId> inputs, std::string name,
                      Shape shape) {
    Value value;
    value.name = std::move(name);
    value.shape = shape;
    const ValueId output = AddValue(std::move(value));
    ops.push_back(Op{std::move(attributes), std::move(inputs), {output}});
    return output;
}

ValueId Program::Find(std::string_view name) const {
    const auto found = std::ranges::find(values, name, &Value::name);
    return found == values.end() ? kNoValue : static_cast<ValueId>(found - values.begin());
}

int64_t StateBytes(const Value& state, int64_t positions) {
    return positions * state.shape[0] * RowBytes(state.dtype, state.shape[1]);
}

int64_t StateBytes(const Program& program, int64_t positions) {
    int64_t bytes = 0;
    for (const Value& value : program.values) {
        if (value.storage == Storage::kState) bytes += StateBytes(value, positions);
    }
    return bytes;
}

}  // namespace weft::program
