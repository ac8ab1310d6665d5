#include "backend/cpu/halves.h"

#include <algorithm>

namespace weft::backend {
namespace {

using kernels::Sequence;

// Values with several rows for each token (a head's, or one for each chosen expert) have their rows
// counted by `factor`. The rows of experts stand in the order of a plan that each half makes of its
// own rows, at the place of its first row.
struct RowShift {
    int64_t begin, count, factor;
    std::span<const Sequence> sequences;
    const kernels::Kernels& kernels;
    std::span<const kernels::AdaptedRow> adapted;

    // Moves on where there is something to move.
    template <typename T>
    void Move(T*& data, int64_t stride) const {
        if (data != nullptr) data += begin * stride;
    }

    template <typename Args>
    bool EachValue(Args& a) const {
        Move(a.x, a.cols);
        Move(a.y, a.cols);
        a.rows = count;
        return true;
    }

    bool operator()(kernels::PrepareArgs& a) const {
        Move(a.x, factor * a.x_stride);
        Move(a.out, factor * kernels.prepared_bytes(a.cols));
        a.rows = factor * count;
        return true;
    }
    bool operator()(kernels::MatMulArgs& a) const {
        Move(a.x, a.x_stride);
        Move(a.prepared, kernels.prepared_bytes(a.weight.cols));
        Move(a.y, a.y_stride);
        Move(a.wide, a.y_stride);
        a.rows = count;
        return true;
    }
    bool operator()(kernels::EmbeddingArgs& a) const {
        Move(a.tokens, 1);
        Move(a.y, a.y_stride);
        a.count = count;
        return true;
    }
    bool operator()(kernels::RmsNormArgs& a) const {
        Move(a.x, a.x_stride);
        Move(a.squares, a.squares_stride);
        Move(a.y, a.y_stride);
        a.rows = count;
        return true;
    }
    bool operator()(kernels::SumSquaresArgs& a) const {
        Move(a.x, a.x_stride);
        Move(a.y, a.y_stride);
        Move(a.wide, a.y_stride);
        a.rows = count;
        return true;
    }
    bool operator()(kernels::RopeTableArgs& a) const {
        Move(a.positions, 1);
        Move(a.out, a.rotary_dim);
        a.rows = count;
        return true;
    }
    bool operator()(kernels::RopeArgs& a) const {
        Move(a.x, a.x_stride);
        Move(a.cos_sin, a.rotary_dim);
        Move(a.y, a.y_stride);
        a.rows = count;
        return true;
    }
    // These find their rows by the sequences.
    bool operator()(kernels::KvWriteArgs& a) const {
        a.sequences = sequences;
        return true;
    }
    bool operator()(kernels::AttentionArgs& a) const {
        a.sequences = sequences;
        return true;
    }
    bool operator()(kernels::GluArgs& a) const {
        Move(a.gate, factor * a.gate_stride);
        Move(a.up, factor * a.up_stride);
        Move(a.out, factor * a.out_stride);
        a.rows = factor * count;
        return true;
    }
    bool operator()(kernels::RouteArgs& a) const {
        Move(a.logits, a.experts);
        Move(a.ids, a.used);
        Move(a.weights, a.used);
        a.rows = count;
        return true;
    }
    bool operator()(kernels::PlanExpertsArgs& a) const {
        Move(a.ids, a.used);
        a.rows = count;
        return true;
    }
    bool operator()(kernels::ExpertMatMulArgs& a) const {
        const int64_t inputs = a.by_token ? 1 : a.used;
        Move(a.x, inputs * a.x_stride);
        Move(a.prepared, inputs * kernels.prepared_bytes(a.weight.cols));
        Move(a.y, a.used * a.y_stride);
        return true;
    }
    bool operator()(kernels::ExpertSumArgs& a) const {
        Move(a.weights, a.used);
        Move(a.x, a.used * a.x_stride);
        Move(a.prepared, a.used * kernels.prepared_bytes(a.weight.cols));
        Move(a.base, a.weight.rows);
        Move(a.wide_base, a.weight.rows);
        Move(a.wide, a.weight.rows);
        Move(a.y, a.weight.rows);
        a.rows = count;
        return true;
    }
    // How many rows there are, the plan says.
    template <typename Args>
    bool operator()(OfExperts<Args>& a) const {
        return (*this)(a.args);
    }
    bool operator()(kernels::HeadMatMulArgs& a) const {
        const int64_t heads = a.weight.count;
        Move(a.x, heads * a.weight.cols);
        Move(a.prepared, heads * kernels.prepared_bytes(a.weight.cols));
        Move(a.y, heads * a.weight.rows);
        a.rows = count;
        return true;
    }
    bool operator()(kernels::GateRowsArgs& a) const {
        Move(a.gate, 1);
        return EachValue(a);
    }
    bool operator()(kernels::PickColumnsArgs& a) const {
        Move(a.x, a.heads * a.head_cols);
        Move(a.y, a.heads * a.size);
        a.rows = count;
        return true;
    }
    bool operator()(kernels::LatentWriteArgs& a) const {
        a.sequences = sequences;
        return true;
    }
    bool operator()(kernels::LatentAttentionArgs& a) const {
        a.sequences = sequences;
        return true;
    }
    // These, by the rows that use an adapter.
    bool operator()(kernels::AdaptDownArgs& a) const {
        a.rows = adapted;
        return true;
    }
    bool operator()(kernels::AdaptUpArgs& a) const {
        a.rows = adapted;
        return a.y == nullptr || a.wide == nullptr;
    }
    bool operator()(kernels::AddBiasArgs& a) const { return EachValue(a); }
    bool operator()(kernels::ScaleArgs& a) const { return EachValue(a); }
    bool operator()(kernels::SoftCapArgs& a) const { return EachValue(a); }
    bool operator()(AddCall& a) const {
        Move(a.add.a, a.cols);
        Move(a.add.b, a.cols);
        Move(a.add.out, a.cols);
        a.add.count = count * a.cols;
        return true;
    }
    bool operator()(AllReduceCall& a) const {
        Move(a.x, a.cols);
        Move(a.wide, a.cols);
        Move(a.y, a.cols);
        a.rows = count;
        return true;
    }
    // Any other kind.
    template <typename Args>
    bool operator()(Args&) const {
        return false;
    }
};

}  // namespace

HalvesRegion FindHalves(const std::vector<Call>& calls, const kernels::Kernels& kernels) {
    HalvesRegion best, run;
    const auto cut = [&](Call call) {
        return !call.per_output && ShiftRows(call, 0, 0, {}, kernels);
    };
    for (size_t i = 0; i <= calls.size(); ++i) {
        if (i < calls.size() && cut(calls[i])) {
            if (std::holds_alternative<AllReduceCall>(calls[i].args)) run.sums.push_back(i);
            continue;
        }
        run.end = i;
        if (run.sums.size() > best.sums.size()) best = run;
        run = {i + 1, i + 1, {}};
    }
    // A few sums of many (where layers have calls that can't be cut) are not worth the while.
    const auto sums = std::ranges::count_if(
        calls, [](const Call& call) { return std::holds_alternative<AllReduceCall>(call.args); });
    return 2 * best.sums.size() >= static_cast<size_t>(sums) ? best : HalvesRegion{};
}

bool ShiftRows(Call& call, int64_t begin, int64_t count, std::span<const Sequence> sequences,
               const kernels::Kernels& kernels, std::span<const kernels::AdaptedRow> adapted) {
    return std::visit(RowShift{begin, count, call.row_factor, sequences, kernels, adapted},
                      call.args);
}

void CutSequences(std::span<const Sequence> sequences, int64_t begin, int64_t count,
                  std::vector<Sequence>& out) {
    out.clear();
    for (Sequence sequence : sequences) {
        const int64_t first = std::max<int64_t>(sequence.row_begin, begin);
        const int64_t end =
            std::min<int64_t>(sequence.row_begin + sequence.row_count, begin + count);
        if (first >= end) continue;
        sequence.position += static_cast<int32_t>(first - sequence.row_begin);
        sequence.row_begin = static_cast<int32_t>(first);
        sequence.row_count = static_cast<int32_t>(end - first);
        out.push_back(sequence);
    }
}

}  // namespace weft::backend
