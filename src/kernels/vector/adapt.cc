// The kernels of adapt.h.
//
// A strip of 16 rows of A or B is stored column by column, so that each lane is a row and adds in
// order: four chains of columns for A (one chain would be bound by the latency of additions), one
// for B. The number of rows of the step that are computed together only affects how often a matrix
// is read.
#include <algorithm>
#include <cstring>

#include "kernels/vector/set.h"

namespace weft::kernels::WEFT_SET {
namespace {

class AdaptTiles {
    static constexpr int kLanes = Simd::kLanes;
    static constexpr int kVectors = static_cast<int>(kStripRows) / kLanes;  // of a strip
    static constexpr int kChains = 4;
    static constexpr int kDownRows = Simd::kRegisters >= 32 ? 4 : 1;
    static constexpr int kUpRows = Simd::kRegisters >= 32 ? 8 : 2;

  public:
    static void Down(const AdaptDownArgs& args, int part, int parts) {
        const Range share = Share(static_cast<int64_t>(args.rows.size()), 1, part, parts);
        auto rows = args.rows.subspan(static_cast<size_t>(share.begin),
                                      static_cast<size_t>(share.end - share.begin));
        while (!rows.empty()) {
            const auto next = NextBlock(args.pairs, kDownRows, rows);
            if (next.pair == nullptr) continue;
            InBlocks<kDownRows>(next.rows, [&]<int kRows>(std::span<const AdaptedRow> some) {
                DownBlock<kRows>(args, next.pair->a, some);
            });
        }
    }

    static void Up(const AdaptUpArgs& args, int part, int parts) {
        const Range share = Share(args.cols, kStripRows, part, parts);
        auto rows = args.rows;
        while (!rows.empty()) {
            const auto next = NextBlock(args.pairs, kUpRows, rows);
            if (next.pair == nullptr) continue;
            InBlocks<kUpRows>(next.rows, [&]<int kRows>(std::span<const AdaptedRow> some) {
                UpBlock<kRows>(args, next.pair->b, some, share);
            });
        }
        if (args.wide == nullptr || args.y == nullptr) return;
        for (int64_t row = 0; row < args.all_rows; ++row) {
            for (int64_t col = share.begin; col < share.end; ++col) {
                const int64_t i = row * args.y_stride + col;
                args.y[i] = static_cast<float>(args.wide[i]);
            }
        }
    }

  private:
    // Calls work<kMost> while enough rows are left, then with half as many rows, and so on.
    template <int kMost, typename Work>
    static void InBlocks(std::span<const AdaptedRow> rows, const Work& work) {
        while (rows.size() >= kMost) {
            work.template operator()<kMost>(rows.first(kMost));
            rows = rows.subspan(kMost);
        }
        if constexpr (kMost > 1) InBlocks<kMost / 2>(rows, work);
    }

    // Lanes [vector * kLanes, ...) of a column of a strip.
    template <bool kBF16>
    static Float Load(const std::byte* strip, int64_t col, int vector) {
        const int64_t i = col * kStripRows + vector * kLanes;
        if constexpr (kBF16) return Simd::LoadBF16(strip + i * 2);
        return Simd::Load(reinterpret_cast<const float*>(strip) + i);
    }
    static const std::byte* Strip(const PackedMatrix& m, int64_t strip) {
        return m.data + strip * kStripRows * RowBytes(m.dtype, m.cols);
    }

    template <int kRows>
    static void DownBlock(const AdaptDownArgs& args, const PackedMatrix& a,
                          std::span<const AdaptedRow> rows) {
        const float* x[kRows];
        for (int i = 0; i < kRows; ++i) {
            x[i] = args.x + rows[static_cast<size_t>(i)].row * args.x_stride;
        }
        for (int64_t s = 0; s * kStripRows < a.rows; ++s) {
            const std::byte* strip = Strip(a, s);
            if (args.wide_u != nullptr) {
                double sums[kRows][kStripRows] = {};
                for (int64_t begin = 0; begin < a.cols; begin += args.segment_cols) {
                    const int64_t end = std::min(begin + args.segment_cols, a.cols);
                    alignas(64) float part[kRows][kStripRows];
                    SumOf<kRows>(a.dtype, strip, x, begin, end, part);
                    for (int i = 0; i < kRows; ++i) {
                        for (int64_t k = 0; k < kStripRows; ++k) {
                            sums[i][k] += static_cast<double>(part[i][k]);
                        }
                    }
                }
                for (int i = 0; i < kRows; ++i) {
                    std::memcpy(args.wide_u + At(args, rows, i) + s * kStripRows, sums[i],
                                sizeof sums[i]);
                }
            } else {
                alignas(64) float sums[kRows][kStripRows];
                SumOf<kRows>(a.dtype, strip, x, 0, a.cols, sums);
                for (int i = 0; i < kRows; ++i) {
                    std::memcpy(args.u + At(args, rows, i) + s * kStripRows, sums[i],
                                sizeof sums[i]);
                }
            }
        }
    }

    template <typename Args>
    static int64_t At(const Args& args, std::span<const AdaptedRow> rows, int i) {
        return rows[static_cast<size_t>(i)].row * args.u_stride;
    }

    template <int kRows>
    static void SumOf(DType dtype, const std::byte* strip, const float* const (&x)[kRows],
                      int64_t begin, int64_t end, float (&out)[kRows][kStripRows]) {
        if (dtype == DType::kBF16) {
            Sum<kRows, true>(strip, x, begin, end, out);
        } else {
            Sum<kRows, false>(strip, x, begin, end, out);
        }
    }

    // Multiplies columns [begin, end) of x by those of the strip: chain c adds columns begin + c +
    // 4 i.
    template <int kRows, bool kBF16>
    static void Sum(const std::byte* strip, const float* const (&x)[kRows], int64_t begin,
                    int64_t end, float (&out)[kRows][kStripRows]) {
        for (int v = 0; v < kVectors; ++v) {
            Float chain[kRows][kChains];
            for (int i = 0; i < kRows; ++i) {
                for (int c = 0; c < kChains; ++c) chain[i][c] = Simd::Zero();
            }
            int64_t col = begin;
            for (; col + kChains <= end; col += kChains) {
                for (int c = 0; c < kChains; ++c) {
                    const Float w = Load<kBF16>(strip, col + c, v);
                    for (int i = 0; i < kRows; ++i) {
                        chain[i][c] = Simd::Fma(Simd::Set(x[i][col + c]), w, chain[i][c]);
                    }
                }
            }
            for (; col < end; ++col) {
                const Float w = Load<kBF16>(strip, col, v);
                for (int i = 0; i < kRows; ++i) {
                    chain[i][0] = Simd::Fma(Simd::Set(x[i][col]), w, chain[i][0]);
                }
            }
            for (int i = 0; i < kRows; ++i) {
                Simd::Store(out[i] + v * kLanes, Simd::Add(Simd::Add(chain[i][0], chain[i][1]),
                                                           Simd::Add(chain[i][2], chain[i][3])));
            }
        }
    }

    template <int kRows>
    static void UpBlock(const AdaptUpArgs& args, const PackedMatrix& b,
                        std::span<const AdaptedRow> rows, const Range& share) {
        for (int64_t col = share.begin; col < share.end; col += kStripRows) {
            const std::byte* strip = Strip(b, col / kStripRows);
            const bool bf16 = b.dtype == DType::kBF16;
            const int64_t count = std::min(kStripRows, args.cols - col);
            if (args.wide != nullptr) {
                bf16 ? UpWide<kRows, true>(args, strip, b.cols, rows, col, count)
                     : UpWide<kRows, false>(args, strip, b.cols, rows, col, count);
            } else {
                bf16 ? UpStrip<kRows, true>(args, strip, b.cols, rows, col, count)
                     : UpStrip<kRows, false>(args, strip, b.cols, rows, col, count);
            }
        }
    }

    template <int kRows, bool kBF16>
    static void UpStrip(const AdaptUpArgs& args, const std::byte* strip, int64_t rank,
                        std::span<const AdaptedRow> rows, int64_t col, int64_t count) {
        const float* u[kRows];
        for (int i = 0; i < kRows; ++i) u[i] = args.u + At(args, rows, i);
        for (int v = 0; v < kVectors; ++v) {
            Float sum[kRows];
            for (int i = 0; i < kRows; ++i) sum[i] = Simd::Zero();
            for (int64_t r = 0; r < rank; ++r) {
                const Float w = Load<kBF16>(strip, r, v);
                for (int i = 0; i < kRows; ++i) {
                    sum[i] = Simd::Fma(Simd::Set(u[i][r]), w, sum[i]);
                }
            }
            const int64_t left = count - v * kLanes;
            for (int i = 0; i < kRows; ++i) {
                float* y =
                    args.y + rows[static_cast<size_t>(i)].row * args.y_stride + col + v * kLanes;
                if (left >= kLanes) {
                    Simd::Store(y, Simd::Add(Simd::Load(y), sum[i]));
                } else if (left > 0) {
                    Simd::StoreFirst(y, Simd::Add(Simd::LoadFirst(y, left), sum[i]), left);
                }
            }
        }
    }

    template <int kRows, bool kBF16>
    static void UpWide(const AdaptUpArgs& args, const std::byte* strip, int64_t rank,
                       std::span<const AdaptedRow> rows, int64_t col, int64_t count) {
        const double* u[kRows];
        Wide sum[kRows][kVectors];
        for (int i = 0; i < kRows; ++i) {
            u[i] = args.wide_u + At(args, rows, i);
            for (int v = 0; v < kVectors; ++v) sum[i][v] = Simd::WideZero();
        }
        for (int64_t r = 0; r < rank; ++r) {
            for (int v = 0; v < kVectors; ++v) {
                const Wide w = Simd::Widen(Load<kBF16>(strip, r, v));
                for (int i = 0; i < kRows; ++i) {
                    sum[i][v] = Simd::FmaWide(Simd::WideSet(u[i][r]), w, sum[i][v]);
                }
            }
        }
        for (int i = 0; i < kRows; ++i) {
            double* y = args.wide + rows[static_cast<size_t>(i)].row * args.y_stride + col;
            alignas(64) double all[kStripRows];
            for (int v = 0; v < kVectors; ++v) Simd::StoreWide(all + v * kLanes, sum[i][v]);
            for (int64_t k = 0; k < count; ++k) y[k] += all[k];
        }
    }
};

}  // namespace

void SetAdapt(Kernels& table) {
    static_cast<AdaptKernels&>(table) = {AdaptTiles::Down, AdaptTiles::Up};
}

}  // namespace weft::kernels::WEFT_SET
