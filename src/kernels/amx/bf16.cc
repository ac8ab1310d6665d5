#include "kernels/amx/bf16.h"

#include <algorithm>

#include "kernels/amx/tiles.h"
#include "kernels/vector/store.h"
#include "kernels/weight_tiles.h"

namespace weft::kernels::amx {
namespace {

constexpr int64_t kTile = 16;                 // tokens per tile
constexpr int64_t kTokenBytes = 1024 * 1024;  // activations that stay in L2
constexpr int64_t kBlockBytes = 1024;         // 32 columns of a strip: a tile
constexpr int kSegments = 4;                  // number of segments whose sums are widened together

// Tiles 0..3: sums of token tile i / 2 and strip i % 2. 4, 5: activations. 6, 7: weights.
class BF16Tiles {
  public:
    explicit BF16Tiles(const MatMulArgs& args)
        : args_(args),
          x_bytes_(weight_tiles::QuantizedActivationBytes(args.weight.cols)),
          strip_bytes_(weight_tiles::StripBytes(DType::kBF16, args.weight.cols)),
          blocks_(strip_bytes_ / kBlockBytes) {}

    void Run(Range rows) {
        const int64_t fit = std::max<int64_t>(1, kTokenBytes / x_bytes_ / (2 * kTile)) * 2 * kTile;
        for (int64_t begin = 0; begin < args_.rows; begin += fit) {
            const int64_t end = std::min(args_.rows, begin + fit);
            for (int64_t row = rows.begin; row < rows.end; row += 2 * kStripRows) {
                for (int64_t token = begin; token < end; token += 2 * kTile) {
                    const int64_t count = std::min(2 * kTile, end - token);
                    Shape(count);
                    const bool two = rows.end - row > kStripRows;
                    if (count > kTile) {
                        two ? Area<2, 2>(row, token, count) : Area<2, 1>(row, token, count);
                    } else {
                        two ? Area<1, 2>(row, token, count) : Area<1, 1>(row, token, count);
                    }
                }
            }
        }
    }

  private:
    // Configures tiles for areas of `tokens`, up to two tiles.
    void Shape(int64_t tokens) {
        if (tokens == shaped_) return;
        TileConfig config;
        const int64_t counts[] = {std::min(tokens, kTile), std::max<int64_t>(tokens - kTile, 1)};
        for (int i = 0; i < 2; ++i) {
            config.Set(2 * i, counts[i], 64), config.Set(2 * i + 1, counts[i], 64);
            config.Set(4 + i, counts[i], 64), config.Set(6 + i, 16, 64);
        }
        tiles_.Shape(config);
        shaped_ = tokens;
    }

    // Adds blocks [begin, end) of A token tiles times S strips.
    template <int A, int S>
    void AddBlocks(const std::byte* w, const std::byte* x, int64_t begin, int64_t end) const {
        for (int64_t i = begin; i < end; ++i) {
            Load<4>(x + i * 64, x_bytes_);
            Load<6>(w + i * kBlockBytes, 64);
            TimesBF16<0, 4, 6>();
            if constexpr (S == 2) {
                Load<7>(w + strip_bytes_ + i * kBlockBytes, 64);
                TimesBF16<1, 4, 7>();
            }
            if constexpr (A == 2) {
                Load<5>(x + kTile * x_bytes_ + i * 64, x_bytes_);
                TimesBF16<2, 5, 6>();
                if constexpr (S == 2) TimesBF16<3, 5, 7>();
            }
        }
    }

    template <int A, int S>
    void ZeroSums() const {
        Zero<0>();
        if constexpr (S == 2) Zero<1>();
        if constexpr (A == 2) Zero<2>();
        if constexpr (A == 2 && S == 2) Zero<3>();
    }

    template <int A, int S>
    void StoreTiles(float (*sums)[kTile][kStripRows]) const {
        Store<0>(sums[0], 64);
        if constexpr (S == 2) Store<1>(sums[1], 64);
        if constexpr (A == 2) Store<2>(sums[2], 64);
        if constexpr (A == 2 && S == 2) Store<3>(sums[3], 64);
    }

    // Tokens [token, token + count) times the S strips from `row` on.
    template <int A, int S>
    void Area(int64_t row, int64_t token, int64_t count) {
        const std::byte* w = args_.weight.data + row / kStripRows * strip_bytes_;
        const std::byte* x = args_.quantized + token * x_bytes_;
        if (args_.segment_cols != 0) return SegmentedArea<A, S>(w, x, row, token, count);
        ZeroSums<A, S>();
        AddBlocks<A, S>(w, x, 0, blocks_);
        StoreTiles<A, S>(sums_[0]);
        for (int s = 0; s < S; ++s) {
            for (int64_t t = 0; t < count; ++t) {
                const __m512 sums = _mm512_load_ps(sums_[0][t / kTile * 2 + s][t % kTile]);
                avx512::StoreSums(args_, row + s * kStripRows, token + t, sums);
            }
        }
    }

    // The same with float64 sums of float32 segments (MatMulArgs::segment_cols).
    template <int A, int S>
    void SegmentedArea(const std::byte* w, const std::byte* x, int64_t row, int64_t token,
                       int64_t count) {
        const int64_t segment = std::max<int64_t>(1, args_.segment_cols / 32);
        for (int64_t i = 0; i < blocks_;) {
            const bool first = i == 0;
            int waiting = 0;
            for (; waiting < kSegments && i < blocks_; ++waiting, i += segment) {
                ZeroSums<A, S>();
                AddBlocks<A, S>(w, x, i, std::min(i + segment, blocks_));
                StoreTiles<A, S>(sums_[waiting]);
            }
            for (int s = 0; s < S; ++s) {
                for (int64_t t = 0; t < count; ++t)
                    Widen(t / kTile * 2 + s, t % kTile, waiting, first);
            }
        }
        for (int s = 0; s < S; ++s) {
            for (int64_t t = 0; t < count; ++t) {
                const double* wide = wide_[t / kTile * 2 + s][t % kTile];
                avx512::StoreWide(args_, row + s * kStripRows, token + t,
                                  avx512::Simd::LoadWide(wide));
            }
        }
    }

    // Adds the waiting sums of one token and strip.
    void Widen(int64_t tile, int64_t t, int waiting, bool first) {
        double* wide = wide_[tile][t];
        __m512d low = first ? _mm512_setzero_pd() : _mm512_load_pd(wide);
        __m512d high = first ? _mm512_setzero_pd() : _mm512_load_pd(wide + 8);
        for (int i = 0; i < waiting; ++i) {
            const float* sums = sums_[i][tile][t];
            low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm256_load_ps(sums)));
            high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm256_load_ps(sums + 8)));
        }
        _mm512_store_pd(wide, low);
        _mm512_store_pd(wide + 8, high);
    }

    const MatMulArgs& args_;
    const int64_t x_bytes_, strip_bytes_, blocks_;
    TilesInUse tiles_;
    int64_t shaped_ = 0;
    alignas(64) float sums_[kSegments][4][kTile][kStripRows];
    alignas(64) double wide_[4][kTile][kStripRows];
};

}  // namespace

void MatMulBF16(const MatMulArgs& args, Range rows) {
    if (rows.begin < rows.end) BF16Tiles(args).Run(rows);
}

}  // namespace weft::kernels::amx
