#include "kernels/sparse.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace weft::kernels {

// Space for scores of a row, its query, a tile of keys, and the dot products of each head with the
// tile (vector/sparse.cc). Rows are padded to whole vectors.
int64_t IndexScratch(int64_t heads, int64_t dim, int64_t positions) {
    const int64_t cols = (dim + 15) / 16 * 16, padded = (heads + 3) / 4 * 4;
    return (positions + 15) / 16 * 16 + padded * cols + kLatentTile * cols + padded * kLatentTile;
}

namespace {

// Maps floats to integers of the same order; -0 maps to 0.
uint32_t Ordered(float value) {
    const auto bits = std::bit_cast<uint32_t>(value + 0.0f);
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

}  // namespace

// Finds the lowest of the chosen scores digit by digit, from the top: counts the numbers that begin
// with the digits so far by their next digit.
void ChooseHighest(std::span<const float> scores, std::span<int32_t> top) {
    constexpr struct { int shift, bits; } kDigits[] = {{21, 11}, {10, 11}, {0, 10}};
    uint32_t least = 0, known = 0;
    uint32_t left = static_cast<uint32_t>(top.size());  // how many to choose among those
    for (const auto [shift, bits] : kDigits) {
        const uint32_t mask = (1u << bits) - 1;
        uint32_t counts[1 << 11] = {};
        for (const float score : scores) {
            const uint32_t key = Ordered(score);
            if ((key & known) == least) ++counts[key >> shift & mask];
        }
        uint32_t digit = mask;
        for (; counts[digit] < left; --digit) left -= counts[digit];
        least |= digit << shift;
        known |= mask << shift;
    }
    size_t count = 0;
    for (size_t i = 0; i < scores.size() && count < top.size(); ++i) {
        const uint32_t key = Ordered(scores[i]);
        if (key < least || (key == least && left == 0)) continue;
        if (key == least) --left;
        top[count++] = static_cast<int32_t>(i);
    }
}

void ChooseAll(int64_t positions, std::span<int32_t> top) {
    const auto seen = top.first(static_cast<size_t>(positions));
    std::iota(seen.begin(), seen.end(), 0);
    std::fill(top.begin() + positions, top.end(), -1);
}

void ListPositions(const IndexRows& rows, int64_t positions, std::span<int32_t> chosen) {
    const int64_t stride = rows.windows.stride;
    for (int64_t i = rows.top - 1; i >= 0; --i) {  // window i is not before its positions
        const auto first = static_cast<int32_t>(chosen[static_cast<size_t>(i)] * stride);
        const auto to = chosen.begin() + i * stride;
        std::iota(to, to + stride, first);
    }
    const auto rest = chosen.begin() + rows.top * stride;
    const int64_t left = positions % stride;
    std::iota(rest, rest + left, static_cast<int32_t>(positions - left));
    std::fill(rest + left, chosen.end(), -1);
}

void ScaleHeads(const ScaleHeadsArgs& args, int part, int parts) {
    const int64_t dim = args.cols / args.heads;
    const Range share = Share(args.rows * args.heads, 1, part, parts);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        const int64_t row = unit / args.heads, head = unit % args.heads;
        const float grown = std::log(static_cast<float>(args.positions[row]) + 1.0f);
        const float factor = args.slope[head] * grown + args.offset[head];
        for (int64_t d = unit * dim; d < (unit + 1) * dim; ++d) args.y[d] = args.x[d] * factor;
    }
}

}  // namespace weft::kernels
