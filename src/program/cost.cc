#include "program/cost.h"

#include <algorithm>

namespace weft::program {
namespace {

class Coster {
  public:
    Coster(const Program& program, int64_t tokens, int64_t outputs, int64_t context)
        : program_(program), tokens_(tokens), outputs_(outputs), context_(context) {}

    OpCost Of(const Op& op) {
        op_ = &op;
        cost_ = {};
        for (ValueId id : op.inputs) cost_.read_bytes += Bytes(id);
        for (ValueId id : op.outputs) cost_.written_bytes += Bytes(id);
        std::visit([this](const auto& attributes) { Count(attributes); }, op.attributes);
        return cost_;
    }

  private:
    int64_t Elements(ValueId id) const {
        return program_.value(id).shape.Elements(tokens_, outputs_);
    }
    int64_t Rows(size_t i) const { return Elements(op_->inputs[i]); }
    // For FLOPs.
    double In(size_t i) const { return static_cast<double>(Elements(op_->inputs[i])); }
    double Out() const { return static_cast<double>(Elements(op_->outputs[0])); }
    double Outputs() const { return static_cast<double>(outputs_); }
    int64_t Bytes(ValueId id) const {
        const Value& value = program_.value(id);
        return value.storage == Storage::kState ? 0 : RowBytes(value.dtype, Elements(id));
    }
    int64_t ColumnCount(ValueId id) const {
        const Shape& shape = program_.value(id).shape;
        return shape[shape.rank - 1];
    }
    double Columns(ValueId id) const { return static_cast<double>(ColumnCount(id)); }
    // Keys that all rows see together, each at most `window` of them (0: all before it).
    double Pairs(int64_t context, int64_t window = 0) const {
        const bool whole = window == 0 || context + tokens_ <= window;
        const auto before = static_cast<double>(context), rows = static_cast<double>(tokens_);
        const double growing =
            whole ? rows : std::clamp(static_cast<double>(window) - before, 0.0, rows);
        const double seen = growing * before + growing * (growing + 1) / 2;
        return seen + (rows - growing) * static_cast<double>(window);
    }

    // Only the rows that are named are read of a table.
    void Count(const Embedding&) {
        const ValueId table = op_->inputs[1];
        cost_.read_bytes -= Bytes(table);
        cost_.read_bytes += Rows(0) * RowBytes(program_.value(table).dtype, ColumnCount(table));
    }
    void Count(const RmsNorm&) { cost_.flops = 4 * Out(); }
    void Count(const SumSquares& a) {
        for (const auto& columns : a.columns) {
            cost_.flops += 2.0 * static_cast<double>(tokens_ * columns.count);
        }
    }
    void Count(const MatMul&) {
        cost_.flops = 2 * Out() * Columns(op_->inputs[0]) + (op_->inputs.size() == 3 ? Out() : 0);
    }
    void Count(const Rope& a) {
        cost_.flops =
            3 * Out() / static_cast<double>(a.head_dim) * static_cast<double>(a.rotary_dim);
    }
    void Count(const Attention& a) {
        const bool cached = a.cached(op_->inputs.size());
        const int64_t each = 4 * a.head_dim + (a.soft_cap > 0 ? 16 : 4);
        cost_.flops = static_cast<double>(each * a.heads) * Pairs(cached ? context_ : 0, a.window);
        // The rows' windows together cover at most the window before the first, and the rows.
        const int64_t before = a.window == 0 ? context_ : std::min(context_, a.window - 1);
        for (size_t i = a.sinks ? 4 : 3; i < op_->inputs.size(); ++i) {
            const int64_t position =
                a.kv_heads * RowBytes(program_.value(op_->inputs[i]).dtype, a.head_dim);
            cost_.read_bytes += (tokens_ + before) * position;
            cost_.written_bytes += tokens_ * position;
        }
    }
    void Count(const Glu& a) {
        cost_.flops = (a.activation == Activation::kGeluTanh ? 9 : 5) * Out();
    }
    void Count(const Add&) { cost_.flops = Out(); }
    void Count(const AddBias&) { cost_.flops = Out(); }
    void Count(const Scale&) { cost_.flops = Out(); }
    void Count(const SoftCap&) { cost_.flops = 12 * Out(); }
    // Only the selected rows are read.
    void Count(const SelectRows&) {
        cost_.read_bytes += Bytes(op_->outputs[0]) - Bytes(op_->inputs[0]);
    }
    void Count(const AllReduce&) { cost_.wire_bytes = Bytes(op_->inputs[0]); }
    void Count(const AllGather&) { cost_.wire_bytes = Bytes(op_->outputs[0]); }
    void Count(const GatherRows&) { cost_.wire_bytes = Bytes(op_->outputs[0]); }
    void Count(const ReduceScatterRows&) { cost_.wire_bytes = Bytes(op_->inputs[0]); }
    void Count(const SliceRows&) {
        cost_.read_bytes += Bytes(op_->outputs[0]) - Bytes(op_->inputs[0]);
    }
    void Count(const Send&) { cost_.wire_bytes = Bytes(op_->inputs[0]); }
    void Count(const Recv&) { cost_.wire_bytes = Bytes(op_->outputs[0]); }
    void Count(const Zero&) {}
    void Count(const SliceColumns&) {
        cost_.read_bytes += Bytes(op_->outputs[0]) - Bytes(op_->inputs[0]);
    }
    void Count(const PadColumns&) {}
    void Count(const Route&) { cost_.flops = 8 * In(0); }
    // Of a stack only the matrices that some token chose are read: no more than rows that choose.
    void ReadTouched(ValueId stack, int64_t rows) {
        const int64_t all = program_.value(stack).shape[0];
        cost_.read_bytes -= Bytes(stack) / all * (all - std::min(all, rows));
    }
    void Count(const ExpertMatMul&) {
        cost_.flops = 2 * Out() * Columns(op_->inputs[0]) + (op_->inputs.size() == 4 ? Out() : 0);
        for (size_t i = 2; i < op_->inputs.size(); ++i) ReadTouched(op_->inputs[i], Rows(1));
    }
    void Count(const ExpertSum& a) {
        const double products =
            In(0) * static_cast<double>(program_.value(op_->inputs[3]).shape[1]);
        cost_.flops = 2 * products + 2 * In(1) * Columns(op_->outputs[0]);
        ReadTouched(op_->inputs[3], Rows(1));
        if (a.bias) ReadTouched(op_->inputs[4], Rows(1));
    }
    // Of a step whose rows use no adapter.
    void Count(const Adapt&) { cost_ = {}; }
    void Count(const GateRows&) { cost_.flops = Out() + 4 * In(1); }
    void Count(const RouterLoad&) { cost_.flops = 4 * In(0); }
    void Count(const LoadBalance&) { cost_.flops = 2 * In(0); }
    void Count(const HeadMatMul&) { cost_.flops = 2 * Out() * Columns(op_->inputs[1]); }
    void Count(const PickColumns&) {
        cost_.read_bytes += Bytes(op_->outputs[0]) - Bytes(op_->inputs[0]);
    }
    void Count(const LatentAttention& a) {
        const Value& cache = program_.value(op_->inputs[4]);
        const int64_t rank = ColumnCount(op_->inputs[2]), width = cache.shape[1];
        cost_.flops = static_cast<double>((2 * (width + rank) + 4) * a.heads) * Pairs(context_);
        cost_.read_bytes += (tokens_ + context_) * RowBytes(cache.dtype, width);
        cost_.written_bytes += tokens_ * RowBytes(cache.dtype, width);
    }
    void Count(const SoftmaxCrossEntropy&) { cost_.flops = 3 * In(0); }

    void Count(const LinearCrossEntropy&) {
        const auto rows = static_cast<double>(program_.value(op_->inputs[1]).shape[0]);
        cost_.flops = 2 * In(0) * rows + 3 * rows * Outputs();
    }
    void Count(const GatherShares&) { cost_.wire_bytes = Bytes(op_->outputs[0]); }
    void Count(const ReduceShares&) { cost_.wire_bytes = Bytes(op_->inputs[0]); }

    void Count(const MatMulGradInput&) { cost_.flops = 2 * In(0) * Columns(op_->inputs[1]); }
    void Count(const MatMulGradWeight&) { cost_.flops = 2 * In(0) * Columns(op_->inputs[1]); }
    void Count(const BiasGrad&) { cost_.flops = In(0); }
    void Count(const RmsNormGradInput&) { cost_.flops = 8 * Out(); }
    void Count(const RmsNormGradWeight&) { cost_.flops = 6 * In(1); }
    void Count(const AttentionGrad& a) {
        const int64_t each = (10 * a.forward.head_dim + 8) * a.forward.heads;
        cost_.flops = static_cast<double>(each) * Pairs(0);
    }
    void Count(const GluGrad&) { cost_.flops = 11 * Out(); }
    void Count(const RouteGrad&) { cost_.flops = 4 * In(1) + 3 * In(0); }
    void Count(const ExpertMatMulGradInput&) {
        cost_.flops = 2 * In(0) * Columns(op_->inputs[2]);
        ReadTouched(op_->inputs[2], Rows(1));
    }
    // Of gradients, too, only the chosen experts' are read and written.
    void WriteTouched(ValueId stack, int64_t rows) {
        ReadTouched(stack, rows);
        const int64_t all = program_.value(stack).shape[0];
        cost_.written_bytes -= Bytes(stack) / all * (all - std::min(all, rows));
    }
    void Count(const ExpertMatMulGradWeight&) {
        cost_.flops = 2 * In(0) * Columns(op_->inputs[1]);
        WriteTouched(op_->inputs[3], Rows(2));
    }
    void Count(const ExpertSumGradInput&) {
        cost_.flops = 2 * In(1) * Columns(op_->inputs[0]) + 3 * In(1);
        ReadTouched(op_->inputs[4], Rows(2));
    }
    void Count(const ExpertSumGradWeight&) {
        cost_.flops = 2 * In(1) * Columns(op_->inputs[0]) + In(1);
        WriteTouched(op_->inputs[4], Rows(2));
    }
    void Count(const GateRowsGrad&) { cost_.flops = 3 * In(1) + 6 * In(2); }
    void Count(const RouterLoadGrad&) { cost_.flops = 6 * In(1); }
    void Count(const LoadBalanceGrad&) { cost_.flops = 2 * In(1); }
    // Only the rows that tokens name are read and written.
    void Count(const EmbeddingGrad&) {
        cost_.flops = In(0);
        cost_.read_bytes += Bytes(op_->inputs[0]) - Bytes(op_->inputs[2]);
        cost_.written_bytes = Bytes(op_->inputs[0]);
    }
    void Count(const SelectRowsGrad&) { cost_.flops = In(0); }
    void Count(const SoftmaxCrossEntropyGrad&) { cost_.flops = 3 * Out(); }
    // The logits again, and two products with their gradient.
    void Count(const LinearCrossEntropyGrad&) {
        const auto rows = static_cast<double>(program_.value(op_->inputs[2]).shape[0]);
        const double products = op_->outputs.size() == 2 ? 3 : 2;
        cost_.flops = products * 2 * In(1) * rows + 6 * rows * Outputs();
    }

    void Count(const SumOver&) { cost_.wire_bytes = Bytes(op_->inputs[0]); }
    void Count(const AddSquares&) { cost_.flops = 2 * In(0); }
    void Count(const AdamUpdate&) { cost_.flops = 14 * In(0); }
    void Count(const Adam8bitUpdate&) { cost_.flops = 24 * In(0); }
    void Count(const SgdUpdate&) { cost_.flops = 6 * In(0); }
    void Count(const AdafactorSums& a) { cost_.flops = (a.sizes ? 6 : 4) * In(0); }
    void Count(const AdafactorMoments&) { cost_.flops = 8 * In(0); }
    void Count(const AdafactorSizes&) { cost_.flops = 3 * In(0); }
    void Count(const AdafactorUpdate&) { cost_.flops = 4 * In(0); }

    const Program& program_;
    const int64_t tokens_, outputs_, context_;
    const Op* op_ = nullptr;
    OpCost cost_;
};

}  // namespace

std::vector<OpCost> Cost(const Program& program, int64_t tokens, int64_t outputs, int64_t context) {
    Coster coster(program, tokens, outputs, context);
    std::vector<OpCost> costs;
    for (const Op& op : program.ops) costs.push_back(coster.Of(op));
    return costs;
}

OpCost Total(std::span<const OpCost> costs) {
    OpCost total;
    for (const OpCost& cost : costs) {
        total.flops += cost.flops;
        total.read_bytes += cost.read_bytes;
        total.written_bytes += cost.written_bytes;
        total.wire_bytes += cost.wire_bytes;
    }
    return total;
}

}  // namespace weft::program
