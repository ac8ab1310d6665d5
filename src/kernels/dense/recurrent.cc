#include "kernels/dense/recurrent.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/dense/row_copy.h"

namespace weft::kernels::dense {
namespace {

float Sigmoid(float x) {
    return 1.0f / (1.0f + std::exp(-x));
}

// ---- Convolution --------------------------------------------------------------------------------

// A column of a sequence.
class ConvColumn {
  public:
    ConvColumn(const ConvGradArgs& args, const Sequence& sequence, int64_t column)
        : args_(args), conv_(args.conv), sequence_(sequence), column_(column) {}

    int64_t rows() const { return sequence_.row_count; }
    int64_t Cell(int64_t row) const { return (sequence_.row_begin + row) * conv_.cols + column_; }
    float Tap(int64_t j) const { return conv_.weight[column_ * conv_.taps + j]; }
    // The convolved input; zeros before the sequence.
    float Input(int64_t row) const {
        if (row < 0) return 0;
        const float x = conv_.x[Cell(row)];
        return conv_.inner == nullptr ? x : x * conv_.inner[Cell(row)];
    }
    float Sum(int64_t row) const {
        float sum = conv_.bias == nullptr ? 0.0f : conv_.bias[column_];
        for (int64_t j = 0; j < conv_.taps; ++j) sum += Tap(j) * Input(row - conv_.taps + 1 + j);
        return sum;
    }
    // The gradient of Sum(row).
    float SumGrad(int64_t row) const {
        float grad = args_.dy[Cell(row)];
        if (conv_.outer != nullptr) grad *= conv_.outer[Cell(row)];
        if (!conv_.silu) return grad;
        const float sum = Sum(row), open = Sigmoid(sum);
        return grad * open * (1 + sum * (1 - open));
    }
    float Activated(int64_t row) const {
        const float sum = Sum(row);
        return conv_.silu ? sum * Sigmoid(sum) : sum;
    }

  private:
    const ConvGradArgs& args_;
    const CausalConvArgs& conv_;
    const Sequence& sequence_;
    const int64_t column_;
};

template <typename OnColumn>
void ForColumns(const ConvGradArgs& args, int part, int parts, const OnColumn& on_column) {
    const Range share = Share(args.conv.cols, 16, part, parts);
    for (const Sequence& sequence : args.sequences) {
        for (int64_t c = share.begin; c < share.end; ++c) {
            on_column(ConvColumn(args, sequence, c), c);
        }
    }
}

// The sequence as one without states before and after it.
StateSequence Stateless(const Sequence& sequence) {
    return {sequence.row_begin, sequence.row_count, -1, -1, {}};
}

// ---- Delta rule ---------------------------------------------------------------------------------

void AddScaled(const float* x, float scale, int64_t count, float* y) {
    for (int64_t i = 0; i < count; ++i) y[i] += scale * x[i];
}

// The gradients of a slice's key head. `stride` separates rows of the step.
struct KeyGrads {
    float *dq = nullptr, *dk = nullptr;
    int64_t stride = 0;
};

KeyGrads GradsOf(const DeltaGradArgs& args, int64_t key, int64_t slice) {
    const int64_t cols = args.rule.key_heads * args.rule.key_dim, at = key * args.rule.key_dim;
    const int64_t slices = DeltaSlices(args.rule);
    if (slices == 1) return {args.dq + at, args.dk + at, cols};
    float* const dq = args.addends + slice * 2 * cols + at;
    return {dq, dq + cols, slices * 2 * cols};
}

// One head of one sequence. A state is [key_dim, value_dim].
class DeltaHead {
  public:
    DeltaHead(const DeltaGradArgs& args, const KeyGrads& keys, const Sequence& sequence,
              int64_t head, float* scratch)
        : args_(args),
          keys_(keys),
          rule_(args.rule),
          sequence_(sequence),
          head_(head),
          key_(rule_.KeyHeadOf(head)),
          d_(rule_.key_dim),
          e_(rule_.value_dim),
          gradient_(scratch),
          change_(gradient_ + d_ * e_),
          rest_(change_ + e_),
          dchange_(rest_ + e_),
          states_(dchange_ + e_),
          kept_(states_ + kDeltaRows * d_ * e_) {}

    static int64_t Floats(const DeltaRuleArgs& rule, int64_t rows) {
        const int64_t kept = (rows + kDeltaRows - 1) / kDeltaRows;
        const int64_t state = rule.key_dim * rule.value_dim;
        return (1 + kDeltaRows + kept) * state + 3 * rule.value_dim;
    }

    void Run() {
        const int64_t state = d_ * e_, rows = sequence_.row_count;
        std::fill_n(states_, state, 0.0f);
        for (int64_t row = 0; row < rows; ++row) {
            if (row % kDeltaRows == 0)
                std::copy_n(states_, state, kept_ + row / kDeltaRows * state);
            Advance(row, states_, states_);
        }
        std::fill_n(gradient_, state, 0.0f);
        for (int64_t begin = (rows - 1) / kDeltaRows * kDeltaRows; begin >= 0;
             begin -= kDeltaRows) {
            const int64_t end = std::min(begin + kDeltaRows, rows);
            std::copy_n(kept_ + begin / kDeltaRows * state, state, states_);
            for (int64_t row = begin; row + 1 < end; ++row) {
                Advance(row, states_ + (row - begin) * state, states_ + (row + 1 - begin) * state);
            }
            for (int64_t row = end; row-- > begin;) Back(row, states_ + (row - begin) * state);
        }
    }

  private:
    int64_t Cell(int64_t row) const { return (sequence_.row_begin + row) * rule_.heads + head_; }
    int64_t KeyAt(int64_t row) const {
        return ((sequence_.row_begin + row) * rule_.key_heads + key_) * d_;
    }
    float Fade(int64_t row, int64_t i) const {
        return rule_.fade[Cell(row) * rule_.each + (rule_.each == 1 ? 0 : i)];
    }
    bool ssd() const { return rule_.skip != nullptr; }

    // rest = v - (fade * S)^T k, or v with SSD; change = strength * rest.
    void MakeChange(int64_t row, const float* before) {
        std::copy_n(rule_.v + Cell(row) * e_, e_, rest_);
        const float* k = rule_.k + KeyAt(row);
        for (int64_t i = 0; i < d_ && !ssd(); ++i) {
            AddScaled(before + i * e_, -rule_.key_scale * k[i] * Fade(row, i), e_, rest_);
        }
        for (int64_t j = 0; j < e_; ++j) change_[j] = rule_.strength[Cell(row)] * rest_[j];
    }

    // The state after a row.
    void Advance(int64_t row, const float* before, float* after) {
        MakeChange(row, before);
        const float* k = rule_.k + KeyAt(row);
        for (int64_t i = 0; i < d_; ++i) {
            const float fade = Fade(row, i), key = rule_.key_scale * k[i];
            for (int64_t j = 0; j < e_; ++j) {
                after[i * e_ + j] = fade * before[i * e_ + j] + key * change_[j];
            }
        }
    }

    // From the state's gradient after a row, computes the row's and the previous state's.
    void Back(int64_t row, const float* before) {
        MakeChange(row, before);
        const int64_t cell = Cell(row), at = KeyAt(row);
        const float *q = rule_.q + at, *k = rule_.k + at, *dy = args_.dy + cell * e_;
        const int64_t of_keys = (sequence_.row_begin + row) * keys_.stride;
        float *dq = keys_.dq + of_keys, *dk = keys_.dk + of_keys, *dv = args_.dv + cell * e_;
        std::fill_n(dchange_, e_, 0.0f);
        for (int64_t i = 0; i < d_; ++i) {
            const float *old = before + i * e_, key = rule_.key_scale * k[i];
            float* const grad = gradient_ + i * e_;
            // (The state after the row is fade * old + key * change.)
            dq[i] += rule_.query_scale *
                     (Fade(row, i) * DotInLanes(old, dy, e_) + key * DotInLanes(change_, dy, e_));
            AddScaled(dy, rule_.query_scale * q[i], e_, grad);
            dk[i] += rule_.key_scale * DotInLanes(grad, change_, e_);
            AddScaled(grad, key, e_, dchange_);
        }
        args_.dstrength[cell] = DotInLanes(dchange_, rest_, e_);
        const float strength = rule_.strength[cell];
        for (int64_t j = 0; j < e_; ++j) dv[j] = dchange_[j] *= strength;
        if (ssd()) {
            AddScaled(dy, rule_.skip[head_], e_, dv);
            args_.dskip[cell] = DotInLanes(dy, rule_.v + cell * e_, e_);
        }
        float* const dfade = args_.dfade + cell * rule_.each;
        std::fill_n(dfade, rule_.each, 0.0f);
        for (int64_t i = 0; i < d_; ++i) {
            const float* old = before + i * e_;
            float* const grad = gradient_ + i * e_;
            const float fade = Fade(row, i);
            if (!ssd()) {
                dk[i] -= rule_.key_scale * fade * DotInLanes(old, dchange_, e_);
                AddScaled(dchange_, -rule_.key_scale * k[i], e_, grad);
            }
            dfade[rule_.each == 1 ? 0 : i] += DotInLanes(grad, old, e_);
            for (int64_t j = 0; j < e_; ++j) grad[j] *= fade;
        }
    }

    const DeltaGradArgs& args_;
    const KeyGrads keys_;
    const DeltaRuleArgs& rule_;
    const Sequence& sequence_;
    const int64_t head_, key_, d_, e_;
    float *const gradient_, *const change_, *const rest_, *const dchange_;
    float *const states_, *const kept_;
};

}  // namespace

void TrainedConv(const Kernels& kernels, const TrainedConvArgs& args, int part, int parts) {
    CausalConvArgs conv = args.conv;
    for (const Sequence& sequence : args.sequences) {
        const StateSequence one = Stateless(sequence);
        conv.sequences = {&one, 1};
        kernels.causal_conv(conv, part, parts);
    }
}

void ConvGradInput(const ConvGradArgs& args, int part, int parts) {
    const int64_t taps = args.conv.taps;
    ForColumns(args, part, parts, [&](const ConvColumn& column, int64_t) {
        float grads[kMostTaps] = {};  // of the sums of this row and the rows after it, as a ring
        for (int64_t row = column.rows(); row-- > 0;) {
            grads[row % taps] = column.SumGrad(row);
            float sum = 0;
            for (int64_t j = 0; j < taps; ++j) {
                const int64_t later = row + taps - 1 - j;
                if (later < column.rows()) sum += column.Tap(j) * grads[later % taps];
            }
            const int64_t cell = column.Cell(row);
            if (args.conv.inner == nullptr) {
                args.dx[cell] = sum;
                continue;
            }
            args.dx[cell] = sum * args.conv.inner[cell];
            args.dinner[cell] = sum * args.conv.x[cell];
            args.douter[cell] = args.dy[cell] * column.Activated(row);
        }
    });
}

void ConvGradWeight(const ConvGradArgs& args, int part, int parts) {
    const int64_t taps = args.conv.taps;
    ForColumns(args, part, parts, [&](const ConvColumn& column, int64_t c) {
        float sums[kMostTaps] = {}, total = 0;
        for (int64_t row = 0; row < column.rows(); ++row) {
            const float grad = column.SumGrad(row);
            total += grad;
            for (int64_t j = 0; j < taps; ++j) sums[j] += grad * column.Input(row - taps + 1 + j);
        }
        for (int64_t j = 0; j < taps; ++j) args.dw[c * taps + j] += sums[j];
        if (args.db != nullptr) args.db[c] += total;
    });
}

void TrainedDelta(const Kernels& kernels, const TrainedDeltaArgs& args, int part, int parts) {
    DeltaRuleArgs rule = args.rule;
    for (const Sequence& sequence : args.sequences) {
        const StateSequence one = Stateless(sequence);
        rule.sequences = {&one, 1};
        kernels.delta_rule(rule, part, parts);
    }
}

int64_t DeltaGradScratchBytes(const DeltaGradArgs& args, int64_t rows) {
    return FloatScratchBytes(DeltaHead::Floats(args.rule, rows));
}

int64_t DeltaSlices(const DeltaRuleArgs& rule) {
    constexpr int64_t kUnits = 16;                                             // of a sequence
    const int64_t heads = (rule.heads + rule.key_heads - 1) / rule.key_heads;  // of a key head
    return std::min((kUnits + rule.key_heads - 1) / rule.key_heads, heads);
}

void DeltaGrad(const DeltaGradArgs& args, int part, int parts) {
    const DeltaRuleArgs& rule = args.rule;
    float* const scratch = ScratchFloats(args, part);
    const int64_t slices = DeltaSlices(rule), units = rule.key_heads * slices;  // of a sequence
    const auto sequences = static_cast<int64_t>(args.sequences.size());
    const Range share = Share(sequences * units, 1, part, parts);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        const Sequence& sequence = args.sequences[static_cast<size_t>(unit / units)];
        WEFT_CHECK(DeltaGradScratchBytes(args, sequence.row_count) <= args.scratch_bytes);
        const int64_t key = unit % units / slices, slice = unit % slices;
        const KeyGrads grads = GradsOf(args, key, slice);
        for (int64_t row = 0; row < sequence.row_count; ++row) {
            const int64_t at = (sequence.row_begin + row) * grads.stride;
            std::fill_n(grads.dq + at, rule.key_dim, 0.0f);
            std::fill_n(grads.dk + at, rule.key_dim, 0.0f);
        }
        int64_t next = 0;  // slice of the key head's next head
        for (int64_t head = 0; head < rule.heads; ++head) {
            if (rule.KeyHeadOf(head) != key) continue;
            if (next == slice) DeltaHead(args, grads, sequence, head, scratch).Run();
            next = (next + 1) % slices;
        }
    }
}

void DeltaKeysGrad(const DeltaKeysGradArgs& args, int part, int parts) {
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        float *const dq = args.dq + row * args.cols, *const dk = args.dk + row * args.cols;
        std::fill_n(dq, args.cols, 0.0f);
        std::fill_n(dk, args.cols, 0.0f);
        for (int64_t slice = 0; slice < args.slices; ++slice) {
            const float* const from = args.addends + (row * args.slices + slice) * 2 * args.cols;
            AddScaled(from, 1, args.cols, dq);
            AddScaled(from + args.cols, 1, args.cols, dk);
        }
    }
}

void DeltaGatesGrad(const DeltaGatesGradArgs& args, int part, int parts) {
    const DeltaGatesArgs& gates = args.gates;
    const Range share = Share(gates.rows * gates.heads, 1, part, parts);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        const int64_t head = unit % gates.heads;
        const float a = gates.a[head], dstrength = args.dstrength[unit];
        if (gates.beta != nullptr) {
            const float open = Sigmoid(gates.beta[unit]);
            args.dbeta[unit] = dstrength * open * (1 - open);
        }
        float da = 0;
        for (int64_t i = 0; i < gates.each; ++i) {
            const int64_t at = unit * gates.each + i;
            const float x = gates.decay[at] + gates.dt[head * gates.each + i];
            const float grad = args.dfade[at] * args.fade[at];  // of the exponent
            if (gates.floor != 0) {
                const float rate = std::abs(a), open = Sigmoid(rate * x);
                const float slope = gates.floor * open * (1 - open);
                args.ddecay[at] = grad * slope * rate;
                da += grad * slope * std::copysign(x, a * x);
                continue;
            }
            const float softplus = x > 20.0f ? x : std::log1p(std::exp(x));
            args.ddecay[at] = (grad * a + (gates.beta == nullptr ? dstrength : 0)) * Sigmoid(x);
            da += grad * softplus;
        }
        args.da[unit] = da;
    }
}

}  // namespace weft::kernels::dense
