#include "kernels/reference/elements.h"
#include "tensor/half.h"

namespace weft::kernels::reference {
namespace {

float At(const PackedMatrix& m, int64_t row, int64_t col) {
    const int64_t i = (row / kStripRows * m.cols + col) * kStripRows + row % kStripRows;
    if (m.dtype == DType::kF32) return reinterpret_cast<const float*>(m.data)[i];
    return BF16ToF32(reinterpret_cast<const uint16_t*>(m.data)[i]);
}

void Down(const AdaptDownArgs& args, int part, int parts) {
    const Range share = Share(static_cast<int64_t>(args.rows.size()), 1, part, parts);
    auto rows = args.rows.subspan(static_cast<size_t>(share.begin),
                                  static_cast<size_t>(share.end - share.begin));
    while (!rows.empty()) {
        const auto [pair, block] = NextBlock(args.pairs, 1, rows);
        if (pair == nullptr) continue;
        const int64_t row = block[0].row, cols = pair->a.cols;
        const float* x = args.x + row * args.x_stride;
        const int64_t segment = args.segment_cols == 0 ? cols : args.segment_cols;
        for (int64_t r = 0; r < pair->a.rows; ++r) {
            double sum = 0;
            for (int64_t begin = 0; begin < cols; begin += segment) {
                float part_sum = 0;
                const int64_t end = begin + segment < cols ? begin + segment : cols;
                for (int64_t col = begin; col < end; ++col) {
                    part_sum += x[col] * At(pair->a, r, col);
                }
                sum += static_cast<double>(part_sum);
            }
            if (args.wide_u != nullptr) {
                args.wide_u[row * args.u_stride + r] = sum;
            } else {
                args.u[row * args.u_stride + r] = static_cast<float>(sum);
            }
        }
    }
}

void Up(const AdaptUpArgs& args, int part, int parts) {
    const Range share = Share(args.cols, kStripRows, part, parts);
    auto rows = args.rows;
    while (!rows.empty()) {
        const auto [pair, block] = NextBlock(args.pairs, 1, rows);
        if (pair == nullptr) continue;
        const int64_t row = block[0].row;
        for (int64_t col = share.begin; col < share.end; ++col) {
            double wide = 0;
            float sum = 0;
            for (int64_t r = 0; r < pair->b.cols; ++r) {
                const float b = At(pair->b, col, r);
                const int64_t u = row * args.u_stride + r;
                if (args.wide != nullptr) {
                    wide += args.wide_u[u] * static_cast<double>(b);
                } else {
                    sum += args.u[u] * b;
                }
            }
            if (args.wide != nullptr) {
                args.wide[row * args.y_stride + col] += wide;
            } else {
                args.y[row * args.y_stride + col] += sum;
            }
        }
    }
    if (args.wide == nullptr || args.y == nullptr) return;
    for (int64_t row = 0; row < args.all_rows; ++row) {
        for (int64_t col = share.begin; col < share.end; ++col) {
            const int64_t i = row * args.y_stride + col;
            args.y[i] = static_cast<float>(args.wide[i]);
        }
    }
}

}  // namespace

const AdaptKernels kAdapt{Down, Up};

}  // namespace weft::kernels::reference
