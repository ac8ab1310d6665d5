#include "kernels/dense/norms.h"

#include <algorithm>
#include <cmath>

#include "kernels/dense/row_copy.h"

namespace weft::kernels::dense {
namespace {

// Replaces a group of x by x', and returns the group's scale s.
float NormGroup(float* x, int64_t count, float eps) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; ++i) sum += double{x[i]};
    const auto mean = static_cast<float>(sum / static_cast<double>(count));
    for (int64_t i = 0; i < count; ++i) {
        x[i] -= mean;
        squares += double{x[i]} * double{x[i]};
    }
    const double variance = squares / static_cast<double>(count);
    const auto scale = static_cast<float>(1 / std::sqrt(variance + double{eps}));
    for (int64_t i = 0; i < count; ++i) x[i] *= scale;
    return scale;
}

// Copies the group of x and dy that begins at (row, begin) as float32.
void CopyGroup(const Kernels& kernels, const RmsNormGradArgs& args, int64_t row, int64_t begin,
               float* x, float* dy) {
    CopyRow(kernels, args.x.From(row, begin), 0, {x, args.group}, 0, args.group);
    CopyRow(kernels, args.dy.From(row, begin), 0, {dy, args.group}, 0, args.group);
}

}  // namespace

int64_t LayerNormGradScratchBytes(const LayerNormGradArgs& args) {
    return 2 * FloatScratchBytes(args.norm.group);
}

void LayerNormGradInput(const Kernels& kernels, const LayerNormGradArgs& args, int part,
                        int parts) {
    const RmsNormGradArgs& norm = args.norm;
    float* const x = ScratchFloats(args, part);
    float* const g = x + FloatScratchBytes(norm.group) / 4;
    const int64_t groups = norm.cols / norm.group;
    const Range share = Share(norm.rows * groups, 1, part, parts);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        const int64_t row = unit / groups, begin = unit % groups * norm.group;
        CopyGroup(kernels, norm, row, begin, x, g);
        const float scale = NormGroup(x, norm.group, norm.eps);
        double sum = 0, along = 0;
        for (int64_t i = 0; i < norm.group; ++i) {
            if (norm.weight != nullptr) g[i] *= norm.weight[i];
            sum += double{g[i]};
            along += double{g[i]} * double{x[i]};
        }
        const auto mean = static_cast<float>(sum / static_cast<double>(norm.group));
        const auto pull = static_cast<float>(along / static_cast<double>(norm.group));
        for (int64_t i = 0; i < norm.group; ++i) g[i] = scale * (g[i] - mean - x[i] * pull);
        CopyRow(kernels, {g, norm.group}, 0, norm.dx.From(row, begin), 0, norm.group);
    }
}

// Each part norms all rows, and adds its own columns.
void LayerNormGradWeight(const Kernels& kernels, const LayerNormGradArgs& args, int part,
                         int parts) {
    const RmsNormGradArgs& norm = args.norm;
    const Range share = Share(norm.group, 16, part, parts);
    if (share.begin == share.end) return;
    float* const x = ScratchFloats(args, part);
    float* const dy = x + FloatScratchBytes(norm.group) / 4;
    for (int64_t row = 0; row < norm.rows; ++row) {
        for (int64_t begin = 0; begin < norm.cols; begin += norm.group) {
            CopyGroup(kernels, norm, row, begin, x, dy);
            NormGroup(x, norm.group, norm.eps);
            for (int64_t i = share.begin; i < share.end; ++i) norm.dw[i] += dy[i] * x[i];
        }
    }
}

int64_t WholeNormGradScratchBytes(const WholeNormGradArgs& args) {
    return 2 * FloatScratchBytes(args.cols);
}

namespace {

float WholeScale(const WholeNormGradArgs& args, int64_t row) {
    const float squares = args.squares[row * args.squares_cols + args.square];
    return 1.0f / std::sqrt(squares / static_cast<float>(args.whole) + args.eps);
}

}  // namespace

void WholeNormGradInput(const Kernels& kernels, const WholeNormGradArgs& args, int part,
                        int parts) {
    const int64_t cols = args.cols;
    float* const x = ScratchFloats(args, part);
    float* const dy = x + FloatScratchBytes(cols) / 4;
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        CopyRow(kernels, args.x, row, {x, cols}, 0, cols);
        CopyRow(kernels, args.dy, row, {dy, cols}, 0, cols);
        for (int64_t i = 0; i < cols; ++i) dy[i] *= args.weight[i];
        const float scale = WholeScale(args, row), along = DotInLanes(dy, x, cols);
        float* const dsquares = args.dsquares + row * args.squares_cols;
        std::fill_n(dsquares, args.squares_cols, 0.0f);
        dsquares[args.square] =
            -scale * scale * scale * along / (2 * static_cast<float>(args.whole));
        CopyRow(kernels, {dy, cols}, 0, args.dx, row, cols, scale);
    }
}

void WholeNormGradWeight(const Kernels& kernels, const WholeNormGradArgs& args, int part,
                         int parts) {
    const Range share = Share(args.cols, 16, part, parts);
    const int64_t count = share.end - share.begin;
    if (count == 0) return;
    float* const x = ScratchFloats(args, part);
    float* const dy = x + FloatScratchBytes(args.cols) / 4;
    for (int64_t row = 0; row < args.rows; ++row) {
        CopyRow(kernels, args.x.From(row, share.begin), 0, {x, count}, 0, count);
        CopyRow(kernels, args.dy.From(row, share.begin), 0, {dy, count}, 0, count);
        const float scale = WholeScale(args, row);
        for (int64_t i = 0; i < count; ++i) args.dw[share.begin + i] += dy[i] * x[i] * scale;
    }
}

void SumSquaresGrad(const SumSquaresGradArgs& args, int part, int parts) {
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        const float dy = 2 * args.dy[row * args.dy_cols + args.column];
        const float* const x = args.x + row * args.cols;
        float* const dx = args.dx + row * args.cols;
        std::fill_n(dx, args.cols, 0.0f);
        for (int64_t i = args.begin; i < args.begin + args.count; ++i) dx[i] = dy * x[i];
    }
}

}  // namespace weft::kernels::dense
