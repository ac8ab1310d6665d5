#include "kernels/reference/elements.h"
#include "tensor/half.h"

namespace weft::kernels::reference {
namespace {

float At(const PackedMatrix& m, int64_t row, int64_t col) {
    const int64_t i = (row / kStripRows * m.cols + col) * kStripRows + row % kStripRows;
    if (m.dtype == DType::kF32) return reinterpret_cast<const float*>(m.data)[i];
    return BF16ToF32(reinterpret_cast<const uint16_t*>(m.data)[i]);
}

// Columns of row r of the matrix times those of the row of x.
double Dot(const PackedMatrix& m, int64_t r, const float* x, int64_t segment_cols,
           const Range& cols) {
    const int64_t segment = segment_cols == 0 ? m.cols : segment_cols;
    double sum = 0;
    for (int64_t begin = cols.begin; begin < cols.end; begin += segment) {
        float part = 0;
        const int64_t end = begin + segment < cols.end ? begin + segment : cols.end;
        for (int64_t col = begin; col < end; ++col) part += x[col] * At(m, r, col);
        sum += static_cast<double>(part);
    }
    return sum;
}

void Down(const AdaptDownArgs& args, int part, int parts) {
    const Range share = Share(static_cast<int64_t>(args.rows.size()), 1, part, parts);
    const int64_t chunks = AdaptChunksOf(args.rows.size());
    const auto down = [&](const AdapterPair& pair, auto places) {
        if (pair.b.data == nullptr) return;
        const float* x = args.x + places[0].x * args.x_stride;
        for (int64_t i = 0; i < kAdaptChunks * pair.a.rows; ++i) {
            const int64_t chunk = i / pair.a.rows, r = i % pair.a.rows;
            const Range cols = AdaptChunk(pair.a.cols, args.segment_cols, chunk);
            const double sum = Dot(pair.a, r, x, args.segment_cols, cols);
            const int64_t first = places[0].u * chunks * args.u_stride + r;
            const bool adds = chunks == 1 && chunk > 0;
            const int64_t at = adds ? first : first + chunk * args.u_stride;
            if (args.wide_u != nullptr) {
                args.wide_u[at] = sum + (adds ? args.wide_u[at] : 0);
            } else {
                args.u[at] = static_cast<float>(sum) + (adds ? args.u[at] : 0);
            }
        }
    };
    EachAdaptBlock<1>(args.pairs, args.slots, args.rows, share, down);
}

// The addend to element `col` of a row of y.
template <typename T>
T Addend(const AdaptUpArgs& args, const AdapterPair& pair, const AdaptPlace& place, int64_t col) {
    if (pair.a.data == nullptr) return 0;
    if (pair.b.data == nullptr) {
        const float* x = args.x + place.x * args.x_stride;
        return static_cast<T>(Dot(pair.a, col, x, args.segment_cols, {0, pair.a.cols}));
    }
    constexpr bool kWide = sizeof(T) == sizeof(double);
    const int64_t chunks = AdaptChunksOf(args.rows.size());
    T sum = 0;
    for (int64_t r = 0; r < pair.b.cols; ++r) {
        T factor = 0;
        for (int64_t chunk = 0; chunk < chunks; ++chunk) {
            const int64_t u = (place.u * chunks + chunk) * args.u_stride + r;
            factor += static_cast<T>(kWide ? args.wide_u[u] : static_cast<double>(args.u[u]));
        }
        sum += factor * static_cast<T>(At(pair.b, col, r));
    }
    return sum * static_cast<T>(place.weight);
}

template <typename T>
void Change(const AdaptUpArgs& args, const AdapterPair& pair, const AdaptPlace& place, int64_t col,
            T& y) {
    const bool whole = pair.a.data != nullptr && pair.b.data == nullptr;
    if (whole) y = 0;
    if (pair.gain != nullptr) y *= static_cast<T>(pair.gain[col]);
    y += Addend<T>(args, pair, place, col);
    if (pair.shift != nullptr) y += static_cast<T>(pair.shift[col]);
}

void Up(const AdaptUpArgs& args, int part, int parts) {
    const Range share = Share(args.cols, kStripRows, part, parts);
    const auto up = [&](const AdapterPair& pair, auto places) {
        for (int64_t col = share.begin; col < share.end; ++col) {
            const int64_t at = places[0].y * args.y_stride + col;
            if (args.wide != nullptr) {
                Change(args, pair, places[0], col, args.wide[at]);
            } else {
                Change(args, pair, places[0], col, args.y[at]);
            }
        }
    };
    const auto count = static_cast<int64_t>(args.rows.size());
    EachAdaptBlock<1>(args.pairs, args.slots, args.rows, {0, count}, up);
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
