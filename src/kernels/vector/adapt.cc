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

    using Places = std::span<const AdaptPlace>;

  public:
    static void Down(const AdaptDownArgs& args, int part, int parts) {
        const auto count = static_cast<int64_t>(args.rows.size());
        if (args.rows.size() > kFewAdaptedRows) {
            return DownRows(args, Share(count, 1, part, parts), {0, kAdaptChunks});
        }
        // The parts divide pairs of a chunk and a row.
        const Range share = Share(kAdaptChunks * count, 1, part, parts);
        for (int64_t at = share.begin; at < share.end;) {
            const int64_t chunk = at / count, first = chunk * count;
            const int64_t end = std::min(first + count, share.end);
            DownRows(args, {at - first, end - first}, {chunk, chunk + 1});
            at = end;
        }
    }

    static void Up(const AdaptUpArgs& all, int part, int parts) {
        const Range share = Share(all.cols, kStripRows, part, parts);
        AdaptUpArgs args = all;
        args.scratch += part * args.scratch_bytes;
        const auto change = [&](const AdapterPair& pair, Places places) {
            UpPlaces(args, pair, places, share);
        };
        const auto count = static_cast<int64_t>(args.rows.size());
        EachAdaptBlock<kUpRows>(args.pairs, args.slots, args.rows, {0, count}, change);
        if (args.wide == nullptr || args.y == nullptr) return;
        for (int64_t row = 0; row < args.all_rows; ++row) {
            for (int64_t col = share.begin; col < share.end; ++col) {
                const int64_t i = row * args.y_stride + col;
                args.y[i] = static_cast<float>(args.wide[i]);
            }
        }
    }

  private:
    // Calls work<kMost> while enough rows remain, then with half as many rows, and so on.
    template <int kMost, typename Work>
    static void InBlocks(Places rows, const Work& work) {
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

    // Computes chunks of some of args.rows.
    static void DownRows(const AdaptDownArgs& args, const Range& some, const Range& chunks) {
        const auto down = [&](const AdapterPair& pair, Places places) {
            if (pair.b.data == nullptr) return;
            InBlocks<kDownRows>(places, [&]<int kRows>(Places block) {
                args.wide_u != nullptr ? DownBlock<kRows>(args, pair.a, block, chunks, args.wide_u)
                                       : DownBlock<kRows>(args, pair.a, block, chunks, args.u);
            });
        };
        EachAdaptBlock<kDownRows>(args.pairs, args.slots, args.rows, some, down);
    }

    // Stores the sum of the chunks in the first of them.
    template <int kRows, typename T>
    static void DownBlock(const AdaptDownArgs& args, const PackedMatrix& a, Places rows,
                          const Range& chunks, T* u) {
        const float* x[kRows];
        for (int i = 0; i < kRows; ++i) {
            x[i] = args.x + rows[static_cast<size_t>(i)].x * args.x_stride;
        }
        for (int64_t s = 0; s * kStripRows < a.rows; ++s) {
            T sums[kRows][kStripRows] = {};
            for (int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
                const Range cols = AdaptChunk(a.cols, args.segment_cols, chunk);
                AddChunk<kRows>(a.dtype, Strip(a, s), x, cols, args.segment_cols, sums);
            }
            for (int i = 0; i < kRows; ++i) {
                T* const to = u + At(args, rows, i) + chunks.begin * args.u_stride;
                std::memcpy(to + s * kStripRows, sums[i], sizeof sums[i]);
            }
        }
    }

    template <int kRows, typename T>
    static void AddChunk(DType dtype, const std::byte* strip, const float* const (&x)[kRows],
                         const Range& cols, int64_t segment_cols, T (&sums)[kRows][kStripRows]) {
        T chunk[kRows][kStripRows] = {};
        const int64_t segment = segment_cols == 0 ? cols.end - cols.begin : segment_cols;
        for (int64_t begin = cols.begin; begin < cols.end; begin += segment) {
            alignas(64) float part[kRows][kStripRows];
            SumOf<kRows>(dtype, strip, x, begin, std::min(begin + segment, cols.end), part);
            for (int i = 0; i < kRows; ++i) {
                for (int64_t k = 0; k < kStripRows; ++k) chunk[i][k] += T{part[i][k]};
            }
        }
        for (int i = 0; i < kRows; ++i) {
            for (int64_t k = 0; k < kStripRows; ++k) sums[i][k] += chunk[i][k];
        }
    }

    template <typename Args>
    static int64_t At(const Args& args, Places rows, int i) {
        return rows[static_cast<size_t>(i)].u * AdaptChunksOf(args.rows.size()) * args.u_stride;
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

    // Multiplies columns [begin, end) of x by the strip's columns: chain c adds columns begin + c +
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

    // y *= gain and y += shift.
    template <typename Change>
    static void ChangeEach(const AdaptUpArgs& args, Places rows, const Range& share,
                           const Change& change) {
        for (const AdaptPlace& place : rows) {
            const int64_t at = place.y * args.y_stride;
            for (int64_t col = share.begin; col < share.end; ++col) {
                args.wide != nullptr ? change(args.wide[at + col], col)
                                     : change(args.y[at + col], col);
            }
        }
    }
    static void Scale(const AdaptUpArgs& args, const float* gain, Places rows, const Range& share) {
        ChangeEach(args, rows, share,
                   [&]<typename T>(T& y, int64_t col) { y *= static_cast<T>(gain[col]); });
    }
    static void Shift(const AdaptUpArgs& args, const float* shift, Places rows,
                      const Range& share) {
        ChangeEach(args, rows, share,
                   [&]<typename T>(T& y, int64_t col) { y += static_cast<T>(shift[col]); });
    }

    // y = x . a^T + shift
    static void Replace(const AdaptUpArgs& args, const AdapterPair& pair, const AdaptPlace& place,
                        const Range& share) {
        const PackedMatrix& a = pair.a;
        const float* const x[1] = {args.x + place.x * args.x_stride};
        const int64_t segment = args.segment_cols == 0 ? a.cols : args.segment_cols;
        for (int64_t col = share.begin; col < share.end; col += kStripRows) {
            const std::byte* strip = Strip(a, col / kStripRows);
            double sums[kStripRows] = {};
            for (int64_t begin = 0; begin < a.cols; begin += segment) {
                alignas(64) float part[1][kStripRows];
                SumOf<1>(a.dtype, strip, x, begin, std::min(begin + segment, a.cols), part);
                for (int64_t k = 0; k < kStripRows; ++k) {
                    sums[k] += static_cast<double>(part[0][k]);
                }
            }
            const int64_t at = place.y * args.y_stride + col;
            for (int64_t k = 0; k < std::min(kStripRows, args.cols - col); ++k) {
                if (pair.shift != nullptr) sums[k] += static_cast<double>(pair.shift[col + k]);
                if (args.wide != nullptr) {
                    args.wide[at + k] = sums[k];
                } else {
                    args.y[at + k] = static_cast<float>(sums[k]);
                }
            }
        }
    }

    static void UpPlaces(const AdaptUpArgs& args, const AdapterPair& pair, Places places,
                         const Range& share) {
        if (pair.a.data != nullptr && pair.b.data == nullptr) {
            for (const AdaptPlace& place : places) Replace(args, pair, place, share);
            return;
        }
        if (pair.gain != nullptr) Scale(args, pair.gain, places, share);
        if (pair.b.data != nullptr) {
            InBlocks<kUpRows>(
                places, [&]<int kRows>(Places some) { UpBlock<kRows>(args, pair.b, some, share); });
        }
        if (pair.shift != nullptr) Shift(args, pair.shift, places, share);
    }

    // The sums of all chunks of some rows: [rank] for each row.
    template <int kRows, typename T>
    static void TakeSums(const AdaptUpArgs& args, int64_t rank, Places rows, const T* all,
                         const T* (&u)[kRows]) {
        static_assert(kRows <= kMostAdaptRows);
        for (int i = 0; i < kRows; ++i) {
            const T* const chunks = all + At(args, rows, i);
            u[i] = chunks;
            if (args.rows.size() > kFewAdaptedRows) continue;
            T* const sums = reinterpret_cast<T*>(args.scratch) + i * args.u_stride;
            std::fill_n(sums, rank, T{0});
            for (int64_t chunk = 0; chunk < kAdaptChunks; ++chunk) {
                for (int64_t r = 0; r < rank; ++r) sums[r] += chunks[chunk * args.u_stride + r];
            }
            u[i] = sums;
        }
    }

    template <int kRows>
    static void UpBlock(const AdaptUpArgs& args, const PackedMatrix& b, Places rows,
                        const Range& share) {
        const float* u[kRows] = {};
        const double* wide_u[kRows] = {};
        args.wide != nullptr ? TakeSums(args, b.cols, rows, args.wide_u, wide_u)
                             : TakeSums(args, b.cols, rows, args.u, u);
        for (int64_t col = share.begin; col < share.end; col += kStripRows) {
            const std::byte* strip = Strip(b, col / kStripRows);
            const bool bf16 = b.dtype == DType::kBF16;
            const int64_t count = std::min(kStripRows, args.cols - col);
            if (args.wide != nullptr) {
                bf16 ? UpWide<kRows, true>(args, strip, b.cols, rows, wide_u, col, count)
                     : UpWide<kRows, false>(args, strip, b.cols, rows, wide_u, col, count);
            } else {
                bf16 ? UpStrip<kRows, true>(args, strip, b.cols, rows, u, col, count)
                     : UpStrip<kRows, false>(args, strip, b.cols, rows, u, col, count);
            }
        }
    }

    template <int kRows, bool kBF16>
    static void UpStrip(const AdaptUpArgs& args, const std::byte* strip, int64_t rank, Places rows,
                        const float* const (&u)[kRows], int64_t col, int64_t count) {
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
                    args.y + rows[static_cast<size_t>(i)].y * args.y_stride + col + v * kLanes;
                if (left >= kLanes) {
                    Simd::Store(y, Simd::Add(Simd::Load(y), sum[i]));
                } else if (left > 0) {
                    Simd::StoreFirst(y, Simd::Add(Simd::LoadFirst(y, left), sum[i]), left);
                }
            }
        }
    }

    template <int kRows, bool kBF16>
    static void UpWide(const AdaptUpArgs& args, const std::byte* strip, int64_t rank, Places rows,
                       const double* const (&u)[kRows], int64_t col, int64_t count) {
        Wide sum[kRows][kVectors];
        for (int i = 0; i < kRows; ++i) {
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
            const AdaptPlace& place = rows[static_cast<size_t>(i)];
            double* y = args.wide + place.y * args.y_stride + col;
            const auto weight = static_cast<double>(place.weight);
            alignas(64) double all[kStripRows];
            for (int v = 0; v < kVectors; ++v) Simd::StoreWide(all + v * kLanes, sum[i][v]);
            for (int64_t k = 0; k < count; ++k) y[k] += all[k] * weight;
        }
    }
};

}  // namespace

void SetAdapt(Kernels& table) {
    static_cast<AdaptKernels&>(table) = {AdaptTiles::Down, AdaptTiles::Up};
}

}  // namespace weft::kernels::WEFT_SET
