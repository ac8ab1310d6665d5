#include "kernels/pool_windows.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft::kernels {
namespace {

// Columns that are pooled together; parts divide such blocks.
constexpr int64_t kBlock = 64;

// Weighted means of a block's columns, updated row by row. Weights are relative to the highest gate
// so far (Milakov and Gimelshein 2018).
struct Mean {
    float peak[kBlock], weight[kBlock], sum[kBlock];

    void Clear() {
        std::fill_n(peak, kBlock, -std::numeric_limits<float>::infinity());
        std::fill_n(weight, kBlock, 0.0f);
        std::fill_n(sum, kBlock, 0.0f);
    }
    void Add(const float* values, const float* gates, const float* bias, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
            const float gate = gates[i] + bias[i];
            const float lower = std::exp(-std::fabs(gate - peak[i]));
            const float fade = gate > peak[i] ? lower : 1.0f, share = gate > peak[i] ? 1.0f : lower;
            weight[i] = weight[i] * fade + share;
            sum[i] = sum[i] * fade + share * values[i];
            peak[i] = std::max(peak[i], gate);
        }
    }
    // from, to: [3, width], at the block's first column.
    void Load(const float* from, int64_t width, int64_t count) {
        std::copy_n(from, count, peak);
        std::copy_n(from + width, count, weight);
        std::copy_n(from + 2 * width, count, sum);
    }
    void Store(float* to, int64_t width, int64_t count) const {
        std::copy_n(peak, count, to);
        std::copy_n(weight, count, to + width);
        std::copy_n(sum, count, to + 2 * width);
    }
};

// Columns [column, column + count) of a sequence.
class Columns {
  public:
    Columns(const PoolWindowsArgs& args, int64_t column, int64_t count)
        : args_(args), column_(column), count_(count) {}

    void Run(const StateSequence& sequence) {
        own_.Clear();
        next_.Clear();
        if (sequence.from >= 0) {
            const float* from = args_.state.At(sequence.from) + column_;
            own_.Load(from, args_.width, count_);
            if (args_.overlaps) next_.Load(from + 3 * args_.width, args_.width, count_);
        }
        const auto row = [&](int64_t at, int32_t slot) {
            Row(at);
            if (slot >= 0) Store(slot);
        };
        ForStateRows(sequence, row, [&](int32_t, int32_t to) { Store(to); });
    }

  private:
    void Row(int64_t row) {
        const int64_t position = args_.positions[row], place = position % args_.window;
        const int64_t width = args_.width, columns = args_.Columns();
        const int64_t own = column_ + (args_.overlaps ? width : 0);
        if (place == 0) {
            own_ = next_;
            if (position == 0 || !args_.overlaps) own_.Clear();
            next_.Clear();
        }
        const float *values = args_.values + row * columns, *gates = args_.gates + row * columns;
        const float* bias = args_.bias + place * columns;
        own_.Add(values + own, gates + own, bias + own, count_);
        if (args_.overlaps) {
            next_.Add(values + column_, gates + column_, bias + column_, count_);
        }
        float* y = args_.y + row * width + column_;
        const bool ends = place + 1 == args_.window;
        for (int64_t i = 0; i < count_; ++i) y[i] = ends ? own_.sum[i] / own_.weight[i] : 0.0f;
    }
    void Store(int32_t slot) const {
        float* to = args_.state.At(slot) + column_;
        own_.Store(to, args_.width, count_);
        if (args_.overlaps) next_.Store(to + 3 * args_.width, args_.width, count_);
    }

    const PoolWindowsArgs& args_;
    const int64_t column_, count_;
    Mean own_, next_;  // of this window, and of the next
};

}  // namespace

void PoolWindows(const PoolWindowsArgs& args, int part, int parts) {
    const int64_t blocks = (args.width + kBlock - 1) / kBlock;
    const Range share = Share(blocks, 1, part, parts);
    for (int64_t block = share.begin; block < share.end; ++block) {
        const int64_t column = block * kBlock;
        Columns columns(args, column, std::min(kBlock, args.width - column));
        for (const StateSequence& sequence : args.sequences) columns.Run(sequence);
    }
}

}  // namespace weft::kernels
