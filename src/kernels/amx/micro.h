// AMX micro-kernel of dense bfloat16 products (vector/blocked.h), with 2 x 2 tiles of sums.
// Included only in files that are compiled for AMX.
#pragma once

#include "kernels/amx/tiles.h"
#include "kernels/vector/micro.h"

namespace weft::kernels::amx {

struct Micro {
    using Units = avx512::PairUnits;
    static constexpr int64_t kRows = 32, kCols = 32;
    static constexpr int64_t kUnitDepth = 2, kStep = 32;
    static constexpr int64_t kMostDepth = 640, kWholeDepth = kMostDepth;
    static constexpr int64_t kTileDepth = 320;  // 20 KB: two panels in L1
    static constexpr int64_t kSlackBytes = 0;
    static constexpr bool kHoldsB = false;

    // Configures all eight tiles with 16 rows of 64 bytes.
    struct Session {
        Session() {
            TileConfig config;
            for (int i = 0; i < 8; ++i) config.Set(i, 16, 64);
            tiles.Shape(config);
        }
        TilesInUse tiles;
    };

    // [depth / 32][row][16 pairs]
    template <typename T>
    static void PackA(const avx512::Operand<T>& from, int64_t lanes, int64_t depth, std::byte* to) {
        for (int64_t i = 0; i < lanes; i += kRows) {
            avx512::PackTiles<Units, kRows>(from.From(i, 0), std::min(kRows, lanes - i), depth, to);
            to += avx512::PanelBytes<Micro>(kRows, depth);
        }
    }
    // [depth / 2][column], padded to whole steps
    template <typename T>
    static void PackB(const avx512::Operand<T>& from, int64_t lanes, int64_t depth, std::byte* to) {
        avx512::PackPanels<Units, kCols, 16>(from, lanes, depth, to);
    }

    static void Finish() {}
    static void Tile(const std::byte* a, const std::byte* b, int64_t depth, float* c,
                     int64_t c_stride, avx512::Write write) {
        const int64_t bytes = c_stride * 4;
        float* below = c + 16 * c_stride;
        if (write == avx512::Write::kAdd) {
            Load<0>(c, bytes), Load<1>(c + 16, bytes);
            Load<2>(below, bytes), Load<3>(below + 16, bytes);
        } else {
            Zero<0>(), Zero<1>(), Zero<2>(), Zero<3>();
        }
        for (int64_t d = 0; d < depth; d += kStep, a += 2048, b += 2048) {
            Load<4>(a, 64);
            Load<6>(b, 128);
            TimesBF16<0, 4, 6>();
            Load<7>(b + 64, 128);
            TimesBF16<1, 4, 7>();
            Load<5>(a + 1024, 64);
            TimesBF16<2, 5, 6>();
            TimesBF16<3, 5, 7>();
        }
        Store<0>(c, bytes), Store<1>(c + 16, bytes);
        Store<2>(below, bytes), Store<3>(below + 16, bytes);
    }
    // Tiles hold floats, so results of narrow types are first stored as floats in L1.
    template <typename Narrow>
    static void Tile(const std::byte* a, const std::byte* b, int64_t depth, Narrow* c,
                     int64_t c_stride, avx512::Write write) {
        alignas(64) float sums[kRows * kCols];
        Tile(a, b, depth, sums, kCols, avx512::Write::kSet);
        avx512::PutRows(sums, kCols, kRows, kCols, c, c_stride, write == avx512::Write::kAdd);
    }
};

}  // namespace weft::kernels::amx
