#include "program/cost.h"

#include <algorithm>
#include <cmath>

namespace weft::program {
namespace {

class Coster {
  public:
    Coster(const Program& program, int64_t tokens, int64_t outputs, int64_t context)
        : program_(program), tokens_(tokens), outputs_(outputs), context_(context) {}
    Coster(const Program& program, const StepShape& step)
        : Coster(program, step.rows(), step.outputs, step.context) {
        expects_ = true;
    }

    OpCost Of(const Op& op) {
        op_ = &op;
        cost_ = {};
        const OpRow& row = RowOf(op.kind());
        const Operands operands = OperandsOf(op).value();
        for (size_t i = 0; i < op.inputs.size(); ++i) {
            cost_.read_bytes += Touched(op.inputs[i], *operands.inputs[i]);
            if (row.Is(Trait::kTransfer)) CountWire(op.inputs[i]);
        }
        for (size_t i = 0; i < op.outputs.size(); ++i) {
            cost_.written_bytes += Touched(op.outputs[i], *operands.outputs[i]);
            if (row.Is(Trait::kTransfer)) CountWire(op.outputs[i]);
        }
        if (row.flops > 0) cost_.flops = row.flops * In(0);
        op.attributes.Visit([this](const auto& attributes) { Count(attributes); });
        if (expects_) LeaveOutOthersRows(operands);
        return cost_;
    }

  private:
    int64_t Elements(ValueId id) const {
        return program_.value(id).shape.Elements(tokens_, outputs_);
    }
    int64_t Rows(size_t i) const { return Elements(op_->inputs[i]); }
    // Element counts as double, for FLOPs.
    double In(size_t i) const { return static_cast<double>(Elements(op_->inputs[i])); }
    double Out() const { return static_cast<double>(Elements(op_->outputs[0])); }
    double Outputs() const { return static_cast<double>(outputs_); }
    int64_t Bytes(ValueId id) const {
        const Value& value = program_.value(id);
        const bool counted = value.storage == Storage::kState || value.storage == Storage::kSlots;
        return counted ? 0 : RowBytes(value.dtype, Elements(id));
    }
    int64_t ColumnCount(ValueId id) const {
        const Shape& shape = program_.value(id).shape;
        return shape[shape.rank - 1];
    }
    double Columns(ValueId id) const { return static_cast<double>(ColumnCount(id)); }
    // Total number of keys that all rows see, each at most `window` of them (0: all earlier keys).
    double Pairs(int64_t context, int64_t window = 0) const {
        const bool whole = window == 0 || context + tokens_ <= window;
        const auto before = static_cast<double>(context), rows = static_cast<double>(tokens_);
        const double growing =
            whole ? rows : std::clamp(static_cast<double>(window) - before, 0.0, rows);
        const double seen = growing * before + growing * (growing + 1) / 2;
        return seen + (rows - growing) * static_cast<double>(window);
    }

    // The wire bytes of a transfer are the bytes of its largest operand.
    void CountWire(ValueId id) { cost_.wire_bytes = std::max(cost_.wire_bytes, Bytes(id)); }
    // Bytes of an operand that the op touches, each counted once.
    int64_t Touched(ValueId id, const Operand& operand) const {
        if (operand.part) return Bytes(op_->outputs[0]);
        if (!operand.chosen) return Bytes(id);
        // Only matrices that some token chose count: at most one per chosen id.
        const int64_t all = program_.value(id).shape[0];
        if (!expects_) return Bytes(id) - Bytes(id) / all * (all - std::min(all, Choices()));
        const double each = static_cast<double>(Bytes(id)) / static_cast<double>(all);
        return static_cast<int64_t>(std::llround(each * Distinct(all).most));
    }
    ValueId Ids() const {
        return *std::ranges::find(op_->inputs, DType::kI32,
                                  [&](ValueId id) { return program_.value(id).dtype; });
    }
    int64_t Choices() const { return Elements(Ids()); }

    // ---- Expected experts -------------------------------------------------------------------

    // Number of experts of the layer, on all ranks: the choices of the routing op.
    int64_t AllExperts() const {
        const ValueId ids = Ids();
        for (const Op& op : program_.ops) {
            if (op.Is(Trait::kRouter) && op.outputs[0] == ids) {
                return ColumnCount(op.inputs[0]);
            }
        }
        return 0;
    }
    ExpertLoad Distinct(int64_t held) const {
        const auto all = static_cast<double>(std::max(AllExperts(), held));
        return DistinctExperts(static_cast<double>(held), all, Columns(Ids()),
                               static_cast<double>(tokens_));
    }
    // Expert ops skip rows that chose another rank's expert.
    void LeaveOutOthersRows(const Operands& operands) {
        for (size_t i = 0; i < op_->inputs.size(); ++i) {
            if (!operands.inputs[i]->chosen) continue;
            const int64_t held = program_.value(op_->inputs[i]).shape[0], all = AllExperts();
            if (held < all) cost_.flops *= static_cast<double>(held) / static_cast<double>(all);
            return;
        }
    }

    // ---- Costs that the rows do not give ----------------------------------------------------

    template <typename T>
    void Count(const T&) {}

    // A table is read only in the named rows.
    void Count(const Embedding&) {
        const ValueId table = op_->inputs[1];
        cost_.read_bytes -= Bytes(table);
        cost_.read_bytes += Rows(0) * RowBytes(program_.value(table).dtype, ColumnCount(table));
    }
    // Only the rows that tokens name are read and written.
    void Count(const EmbeddingGrad&) {
        cost_.read_bytes += Bytes(op_->inputs[0]) - Bytes(op_->inputs[2]);
        cost_.written_bytes = Bytes(op_->inputs[0]);
    }
    // Five steps of two products of each matrix with its transpose, and one of squares.
    void Count(const MuonUpdate& a) {
        for (const UpdateMatrix& matrix : a.matrices) {
            const auto few = static_cast<double>(std::min(matrix.rows, matrix.cols));
            const auto many = static_cast<double>(std::max(matrix.rows, matrix.cols));
            cost_.flops += 5 * (4 * few * few * many + 2 * few * few * few);
        }
    }
    void Count(const SumSquares& a) {
        for (const auto& columns : a.columns) {
            cost_.flops += 2.0 * static_cast<double>(tokens_ * columns.count);
        }
    }
    void Count(const MatMul&) {
        cost_.flops = 2 * Out() * Columns(op_->inputs[0]) + (op_->inputs.size() == 3 ? Out() : 0);
    }
    void Count(const MatMulGradInput&) { cost_.flops = 2 * In(0) * Columns(op_->inputs[1]); }
    void Count(const MatMulGradWeight&) { cost_.flops = 2 * In(0) * Columns(op_->inputs[1]); }
    void Count(const HeadMatMul& a) {
        const Shape& weight = program_.value(op_->inputs[1]).shape;
        cost_.flops = 2 * Out() * static_cast<double>(weight[a.transposed ? 1 : 2]);
    }
    void Count(const HeadMatMulGradWeight&) { cost_.flops = 2 * In(0) * Columns(op_->outputs[0]); }
    // The cost of a step whose rows use no adapter.
    void Count(const Adapt&) { cost_ = {}; }
    void Count(const AdaptExperts&) { cost_ = {}; }
    void Count(const AdaptExpertSum&) { cost_ = {}; }
    void Count(const Rope& a) {
        cost_.flops =
            3 * Out() / static_cast<double>(a.head_dim) * static_cast<double>(a.rotary_dim);
    }
    void Count(const Attention& a) {
        const bool cached = a.cached(op_->inputs.size());
        const int64_t each = 2 * (a.head_dim + a.ValueDim()) + (a.soft_cap > 0 ? 16 : 4);
        const int64_t top = a.block == 0 ? 0 : ColumnCount(op_->inputs[3]) / a.kv_heads * a.block;
        const int64_t most = a.block == 0 ? a.window : top;  // keys per row
        double pairs = Pairs(cached ? context_ : 0, most);
        if (a.ahead) pairs = 2 * pairs - static_cast<double>(tokens_);  // both sides
        cost_.flops = static_cast<double>(each * a.heads) * pairs;
        // Together, the windows of the rows cover at most the rows and one window before the first
        // row. With chunks, all earlier positions count, as if no chunk began in this step.
        const int64_t before = a.window == 0 ? context_ : std::min(context_, a.window - 1);
        // Rows choose blocks separately: together they read at most all positions.
        int64_t read = tokens_ + before;
        if (top > 0) read = std::min(read, tokens_ * top);
        for (size_t i = a.FirstCache(); i < op_->inputs.size(); ++i) {
            const Value& cache = program_.value(op_->inputs[i]);
            const int64_t position = a.kv_heads * RowBytes(cache.dtype, cache.shape[1]);
            cost_.read_bytes += read * position;
            cost_.written_bytes += tokens_ * position;
        }
    }
    void Count(const AttentionGrad& a) {
        const int64_t each = 10 * a.forward.head_dim + (a.forward.soft_cap > 0 ? 23 : 8);
        cost_.flops = static_cast<double>(each * a.forward.heads) * Pairs(0, a.forward.window);
    }
    void Count(const LatentAttention& a) {
        const Value& cache = program_.value(op_->inputs.back());
        const int64_t rank = ColumnCount(op_->inputs[a.Latent()]), width = cache.shape[1];
        const bool chooses = a.Chooses(op_->inputs.size());
        const int64_t chosen = chooses ? ColumnCount(op_->inputs[a.Chosen()]) : 0;
        cost_.flops =
            static_cast<double>((2 * (width + rank) + 4) * a.heads) * Pairs(context_, chosen);
        // Rows choose positions separately: together they read at most all positions.
        int64_t read = tokens_ + context_;
        if (chosen > 0) read = std::min(read, tokens_ * chosen);
        cost_.read_bytes += read * RowBytes(cache.dtype, width);
        cost_.written_bytes += tokens_ * RowBytes(cache.dtype, width);
    }
    // A dot product, relu and weight per head, then the choice.
    void Count(const IndexTopK& a) {
        const Value& cache = program_.value(op_->inputs.back());
        const int64_t dim = cache.shape[1], heads = ColumnCount(op_->inputs[2]);
        const double pairs = Pairs(context_) / static_cast<double>(a.stride);
        cost_.flops = static_cast<double>(heads * (2 * dim + 3) + 4) * pairs;
        cost_.read_bytes += (tokens_ + context_) / a.stride * RowBytes(cache.dtype, dim);
        cost_.written_bytes += tokens_ / a.stride * RowBytes(cache.dtype, dim);
    }
    void Count(const WindowAttention& a) {
        const size_t at = op_->inputs.size() - (a.stride != 0 ? 2 : 1);
        const Value& cache = program_.value(op_->inputs[at]);
        const int64_t width = cache.shape[1], bytes = RowBytes(cache.dtype, width);
        double pairs = Pairs(context_, a.window);
        int64_t read = tokens_ + std::min(context_, a.window - 1), written = tokens_;
        if (a.stride != 0) {
            const int64_t most = a.chooses ? a.stride * ColumnCount(op_->inputs[4]) : 0;
            pairs += Pairs(context_, most) / static_cast<double>(a.stride);
            read += (tokens_ + context_) / a.stride;
            written += tokens_ / a.stride;
        }
        cost_.flops = static_cast<double>((4 * width + 4) * a.heads) * pairs;
        cost_.read_bytes += read * bytes;
        cost_.written_bytes += written * bytes;
    }
    // A dot product and maximum per head, then the choice.
    void Count(const IndexBlocks& a) {
        const Value& cache = program_.value(op_->inputs.back());
        const int64_t dim = cache.shape[1];
        cost_.flops = static_cast<double>(a.heads * (2 * dim + 1)) * Pairs(context_);
        cost_.read_bytes += (tokens_ + context_) * RowBytes(cache.dtype, dim);
        cost_.written_bytes += tokens_ * RowBytes(cache.dtype, dim);
    }
    // The state is read before the rows and written after them. Training has none.
    void CountState(bool stateless) {
        if (stateless) return;
        const int64_t bytes = SlotBytes(program_.value(op_->inputs.back()));
        cost_.read_bytes += bytes;
        cost_.written_bytes += bytes;
    }
    void Count(const CausalConv& a) {
        const double taps = Columns(op_->inputs[1]), bias = a.biased(op_->inputs.size()) ? 1 : 0;
        cost_.flops = (2 * taps - 1 + bias + (a.silu ? 4 : 0) + (a.gated ? 2 : 0)) * Out();
        CountState(a.stateless);
    }
    // Counts S times the decay, k^T S, k (v - k^T S)^T and q^T S.
    void Count(const DeltaRule& a) {
        const double state = Columns(op_->inputs[0]) / static_cast<double>(a.key_heads) * Out();
        // SSD has no k^T S and no sigmoid, but skip * v.
        const double each = a.ssd ? 5 : 7, gates = a.ssd ? 0 : 4 * In(4);
        cost_.flops = each * state + 3 * Out() + 8 * In(3) + gates;
        CountState(a.stateless);
    }
    // The states are computed again; their gradients take twice as much.
    void Count(const DeltaRuleGrad& a) {
        const double dim = Columns(op_->inputs[1]) / static_cast<double>(a.forward.key_heads);
        cost_.flops = (a.forward.ssd ? 15 : 21) * dim * In(0);
    }
    // Each row adds an exponential and some sums per column, for one window or two.
    void Count(const PoolWindows& a) {
        cost_.flops = (a.overlaps ? 2 : 1) * 9 * Out();
        CountState(false);
    }
    // An exponential and a division per number; each iteration adds and divides twice.
    void Count(const StreamWeights& a) {
        const bool mixes = ColumnCount(op_->outputs[0]) > 2 * a.streams;
        const int64_t each = mixes ? 4 * a.iterations * a.streams * a.streams : 0;
        cost_.flops = 6 * Out() + static_cast<double>(each * tokens_);
    }
    void Count(const MixStreams& a) {
        if (op_->inputs.size() > 1) cost_.flops = static_cast<double>(2 * a.streams + 1) * Out();
    }
    void Count(const Glu& a) {
        cost_.flops = (a.activation == Activation::kGeluTanh ? 9 : 5) * Out();
    }
    void Count(const Activate& a) {
        const bool few = a.kind == Ungated::kReluSquared || a.kind == Ungated::kRelu ||
                         a.kind == Ungated::kClamp;
        cost_.flops = (few ? 2 : 9) * Out();
    }
    void Count(const ActivateGrad& a) {
        cost_.flops = (a.kind == Ungated::kReluSquared ? 3 : 15) * Out();
    }
    void Count(const WeighRows&) { cost_.flops = Columns(op_->inputs[0]) * In(1); }
    void Count(const ExpertMatMul&) {
        cost_.flops = 2 * Out() * Columns(op_->inputs[0]) + (op_->inputs.size() == 4 ? Out() : 0);
    }
    void Count(const ExpertMatMulGradInput&) { cost_.flops = 2 * In(0) * Columns(op_->inputs[2]); }
    void Count(const ExpertMatMulGradWeight&) { cost_.flops = 2 * In(0) * Columns(op_->inputs[1]); }
    void Count(const ExpertSum&) {
        const double products =
            In(0) * static_cast<double>(program_.value(op_->inputs[3]).shape[1]);
        cost_.flops = 2 * products + 2 * In(1) * Columns(op_->outputs[0]);
    }
    void Count(const ExpertSumGradInput&) {
        cost_.flops = 2 * In(1) * Columns(op_->inputs[0]) + 3 * In(1);
    }
    void Count(const ExpertSumGradWeight&) {
        cost_.flops = 2 * In(1) * Columns(op_->inputs[0]) + In(1);
    }
    void Count(const RouteGrad&) { cost_.flops = 4 * In(1) + 3 * In(0); }
    void Count(const GateRows&) { cost_.flops += 4 * In(1); }
    void Count(const GateRowsGrad&) { cost_.flops += 6 * In(2); }
    void Count(const RouterLoadGrad&) { cost_.flops = 6 * In(1); }
    void Count(const LoadBalanceGrad&) { cost_.flops = 2 * In(1); }
    void Count(const CrossEntropyGrad&) { cost_.flops = 4 * Out(); }
    void Count(const LinearCrossEntropy& a) {
        const auto rows = static_cast<double>(program_.value(op_->inputs[1]).shape[0]);
        cost_.flops = 2 * In(0) * rows + 3 * rows * Outputs();
        CountStats(a, LossTerms{}.stats());
    }
    // Computes the logits again, and two products with their gradient.
    void Count(const LinearCrossEntropyGrad& a) {
        const auto rows = static_cast<double>(program_.value(op_->inputs[2]).shape[0]);
        const double products = a.trains_weight ? 3 : 2;
        cost_.flops = products * 2 * In(1) * rows + 6 * rows * Outputs();
        CountStats(a.forward, a.forward.terms.stats());
    }
    // The results of softmax_stats are gathered from all tensor ranks.
    void CountStats(const LinearCrossEntropy& a, int64_t stats) {
        cost_.wire_bytes = static_cast<int64_t>(a.parts.size()) * outputs_ * stats * 4;
    }

    const Program& program_;
    const int64_t tokens_, outputs_, context_;
    bool expects_ = false;  // counts expected experts, not distinct choices
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

std::vector<OpCost> Cost(const Program& program, const StepShape& step) {
    Coster all(program, step), one(program, {1, step.tokens, step.outputs, step.context});
    std::vector<OpCost> costs;
    for (const Op& op : program.ops) {
        if (!op.Is(Trait::kSeesEarlier)) {  // its cost depends only on the rows of the step
            costs.push_back(all.Of(op));
            continue;
        }
        OpCost cost = one.Of(op);
        cost.flops *= static_cast<double>(step.sequences);
        cost.read_bytes *= step.sequences;
        cost.written_bytes *= step.sequences;
        costs.push_back(cost);
    }
    return costs;
}

ExpertLoad DistinctExperts(double held, double all, double chosen, double rows) {
    if (held <= 0 || all <= 0) return {};
    const double untouched = std::pow(1 - std::min(chosen / all, 1.0), rows);
    ExpertLoad load;
    load.mean = load.most = held * (1 - untouched);
    const double groups = std::round(all / held);
    if (groups < 2) return load;
    // The variance of one row's choices follows the hypergeometric distribution. More rows choose
    // the same experts again, so the variance of the number of untouched experts bounds it.
    const double share = held / all;
    const double one = chosen * share * (1 - share) * (all - chosen) / std::max(all - 1, 1.0);
    const double variance = std::min(rows * one, held * untouched * (1 - untouched) + one);
    // The largest of n normal values lies this many deviations above the mean (Blom 1958).
    const double p = (groups - 0.375) / (groups + 0.25), t = std::sqrt(-2 * std::log(1 - p));
    const double above = t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                                 (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
    load.most = std::min({held, load.mean + above * std::sqrt(variance), chosen * rows});
    return load;
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
