#include "backend/cpu/halves.h"

#include <algorithm>

namespace weft::backend {
namespace {

using kernels::Sequence;

struct RowShift {
    int64_t begin, count;
    std::span<const Sequence> sequences;
    const kernels::Kernels& kernels;

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
        Move(a.x, a.x_stride);
        Move(a.out, kernels.prepared_bytes(a.cols));
        a.rows = count;
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
        Move(a.gate, a.gate_stride);
        Move(a.up, a.up_stride);
        Move(a.out, a.out_stride);
        a.rows = count;
        return true;
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
        return !call.per_output && call.row_factor == 1 && ShiftRows(call, 0, 0, {}, kernels);
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
               const kernels::Kernels& kernels) {
    return std::visit(RowShift{begin, count, sequences, kernels}, call.args);
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
