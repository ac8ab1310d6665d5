// The tile registers of AMX as functions (Intel 64 and IA-32 Architectures Software Developer's
// Manual, volume 1, chapter 18). A tile has up to 16 rows of up to 64 bytes; a TileConfig sets the
// shapes of the eight tiles. The functions are inline assembly, and the compiler does not move
// memory accesses across them.
//
// The process needs permission to use tiles (hw/cpu.h, DetectCpu).
#pragma once

#include <cstdint>

namespace weft::kernels::amx {

struct alignas(64) TileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};

    void Set(int tile, int64_t row_count, int64_t bytes) {
        rows[tile] = static_cast<uint8_t>(row_count);
        row_bytes[tile] = static_cast<uint16_t>(bytes);
    }
};
static_assert(sizeof(TileConfig) == 64);

// Keeps the tiles of this thread in use; the destructor releases them.
class TilesInUse {
  public:
    TilesInUse() = default;
    ~TilesInUse() { __asm__ volatile("tilerelease" : : : "memory"); }
    TilesInUse(const TilesInUse&) = delete;
    TilesInUse& operator=(const TilesInUse&) = delete;
    // Discards the contents of the tiles.
    void Shape(const TileConfig& config) { __asm__ volatile("ldtilecfg %0" : : "m"(config)); }
};

#define WEFT_TILE [[gnu::always_inline]] static inline

template <int kTile>
WEFT_TILE void Zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
// Loads the rows of the tile from memory, where they are `stride` bytes apart.
template <int kTile>
WEFT_TILE void Load(const void* from, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(from), "r"(stride), "i"(kTile)
                     : "memory");
}
template <int kTile>
WEFT_TILE void Store(void* to, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                     :
                     : "r"(to), "r"(stride), "i"(kTile)
                     : "memory");
}
// int32 c[m][n] += the sum over k of int8 a[m][k] * b[k / 4][n][k % 4].
template <int kC, int kA, int kB>
WEFT_TILE void TimesInt8() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}
// float c[m][n] += the sum over k of BF16 a[m][k] * b[k / 2][n][k % 2]. The terms of even k and the
// terms of odd k are summed separately, by fused multiply-adds. The two sums are added, and the
// result is added to c. Denormals are treated as zeros.
template <int kC, int kA, int kB>
WEFT_TILE void TimesBF16() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

}  // namespace weft::kernels::amx
