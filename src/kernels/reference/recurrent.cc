#include <algorithm>
#include <cmath>

#include "kernels/reference/elements.h"

namespace weft::kernels::reference {
namespace {

void CausalConv(const CausalConvArgs& args, int part, int parts) {
    const Range share = Share(args.cols, kStateColumns, part, parts);
    const int64_t kept = args.taps - 1;
    for (const StateSequence& sequence : args.sequences) {
        for (int64_t c = share.begin; c < share.end; ++c) {
            float before[kMostTaps] = {};  // previous rows, the oldest first
            for (int64_t i = 0; i < kept && sequence.from >= 0; ++i) {
                before[i] = args.state.At(sequence.from)[i * args.cols + c];
            }
            const auto store = [&](int32_t slot) {
                for (int64_t i = 0; i < kept; ++i) {
                    args.state.At(slot)[i * args.cols + c] = before[i];
                }
            };
            const auto row = [&](int64_t at, int32_t slot) {
                const int64_t cell = at * args.cols + c;
                before[kept] = args.x[cell];
                if (args.inner != nullptr) before[kept] *= args.inner[cell];
                float sum = args.bias == nullptr ? 0.0f : args.bias[c];
                for (int64_t j = 0; j < args.taps; ++j) {
                    sum += args.weight[c * args.taps + j] * before[j];
                }
                if (args.silu) sum /= 1.0f + std::exp(-sum);
                args.y[cell] = args.outer == nullptr ? sum : sum * args.outer[cell];
                std::copy_n(before + 1, kept, before);
                if (slot >= 0) store(slot);
            };
            ForStateRows(sequence, row, [&](int32_t, int32_t to) { store(to); });
        }
    }
}

// One column of a head's state, with `stride` floats between its rows.
class StateColumn {
  public:
    StateColumn(const DeltaRuleArgs& args, int64_t head, int64_t column)
        : args_(args),
          head_(head),
          column_(column),
          stride_(std::min(kStateColumns, args.value_dim - column / kStateColumns * kStateColumns)),
          begin_(head * args.key_dim * args.value_dim +
                 column / kStateColumns * kStateColumns * args.key_dim + column % kStateColumns) {}

    float* At(int32_t slot) const { return args_.state.At(slot) + begin_; }
    int64_t stride() const { return stride_; }

    // Row `at` of the step, for a state with `step` floats between its rows.
    void Row(int64_t at, float* state, int64_t step) const {
        const int64_t d = args_.key_dim, key = args_.KeyHeadOf(head_);
        const float* q = args_.q + (at * args_.key_heads + key) * d;
        const float* k = args_.k + (at * args_.key_heads + key) * d;
        const int64_t cell = at * args_.heads + head_;
        const bool ssd = args_.skip != nullptr;
        float known = 0, out = 0;
        for (int64_t i = 0; i < d; ++i) {
            state[i * step] *= args_.fade[cell * args_.each + (args_.each == 1 ? 0 : i)];
            if (!ssd) known += args_.key_scale * k[i] * state[i * step];
        }
        const int64_t to = cell * args_.value_dim + column_;
        const float change = (args_.v[to] - known) * args_.strength[cell];
        for (int64_t i = 0; i < d; ++i) {
            state[i * step] += args_.key_scale * k[i] * change;
            out += args_.query_scale * q[i] * state[i * step];
        }
        args_.y[to] = ssd ? out + args_.skip[head_] * args_.v[to] : out;
    }

  private:
    const DeltaRuleArgs& args_;
    const int64_t head_, column_, stride_, begin_;
};

void DeltaRule(const DeltaRuleArgs& args, int part, int parts) {
    float* state = args.scratch + part * args.scratch_floats;
    const Range share = Share(args.heads * args.value_dim, 1, part, parts);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        const StateColumn column(args, unit / args.value_dim, unit % args.value_dim);
        for (const StateSequence& sequence : args.sequences) {
            std::fill_n(state, args.key_dim, 0.0f);
            for (int64_t i = 0; i < args.key_dim && sequence.from >= 0; ++i) {
                state[i] = column.At(sequence.from)[i * column.stride()];
            }
            const auto store = [&](int32_t slot) {
                for (int64_t i = 0; i < args.key_dim; ++i) {
                    column.At(slot)[i * column.stride()] = state[i];
                }
            };
            const auto row = [&](int64_t at, int32_t slot) {
                column.Row(at, state, 1);
                if (slot >= 0) store(slot);
            };
            ForStateRows(sequence, row, [&](int32_t, int32_t to) { store(to); });
        }
    }
}

}  // namespace

const RecurrentKernels kRecurrent = {CausalConv, DeltaRule};

}  // namespace weft::kernels::reference
