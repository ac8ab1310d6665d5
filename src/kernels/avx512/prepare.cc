#include <immintrin.h>

#include <algorithm>

#include "kernels/avx512/matmul.h"
#include "kernels/strips.h"

namespace weft::kernels::avx512 {
namespace {

using strips::ActivationBlock;

// The largest of the 16 lanes.
float Largest(__m512 v) {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 quad = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pair = _mm_max_ps(quad, _mm_movehl_ps(quad, quad));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}

void PrepareBlock(const float* x, ActivationBlock* out) {
    const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    const float peak = Largest(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
    const float scale = peak / 127;
    const __m512 inverse = _mm512_set1_ps(scale > 0 ? 127 / peak : 0);
    const __m128i qa = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)));
    const __m128i qb = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(b, inverse)));
    _mm_store_si128(reinterpret_cast<__m128i*>(out->q), qa);
    _mm_store_si128(reinterpret_cast<__m128i*>(out->q + 16), qb);
    // Sums of 4, then of 8, then [sum of qa, sum of qb, ...].
    const __m128i ones = _mm_set1_epi8(1), zero = _mm_setzero_si128();
    const __m128i by_8 =
        _mm_hadd_epi32(_mm_dpbusd_epi32(zero, ones, qa), _mm_dpbusd_epi32(zero, ones, qb));
    const __m128i by_16 = _mm_hadd_epi32(by_8, by_8);
    const int low = _mm_cvtsi128_si32(by_16), high = _mm_extract_epi32(by_16, 1);
    out->scale = scale;
    out->scaled_sum = scale * static_cast<float>(low + high);
    out->from_8 = -8 * (low + high);
    out->from_128 = -128 * (low + high);
    out->from_32[0] = -32 * low;
    out->from_32[1] = -32 * high;
    out->scaled_half[0] = scale * static_cast<float>(low);
    out->scaled_half[1] = scale * static_cast<float>(high);
}

// `count` (1 to 32) columns.
void PrepareBF16(const float* x, int64_t count, strips::BF16Block* out) {
    const auto mask = static_cast<__mmask32>((uint64_t{1} << count) - 1);
    const __m512 a = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), x);
    const __m512 b = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), x + 16);
    _mm512_store_si512(out, (__m512i)_mm512_cvtne2ps_pbh(b, a));
}

}  // namespace

void Prepare(const PrepareArgs& args, int part, int parts) {
    const int64_t blocks = (args.cols + 31) / 32;
    const Range share = Share(args.rows * blocks, 1, part, parts);
    for (int64_t i = share.begin; i < share.end;) {
        const int64_t row = i / blocks;
        const int64_t end = std::min(share.end, (row + 1) * blocks);
        const float* x = args.x + row * args.x_stride;
        auto* out =
            reinterpret_cast<ActivationBlock*>(args.out) + row * strips::PreparedBlocks(args.cols);
        for (; i < end; ++i) {
            const int64_t block = i - row * blocks, k = block * 32;
            if (args.as == Prepared::kInt8) {
                PrepareBlock(x + k, out + block);
            } else {
                PrepareBF16(x + k, std::min<int64_t>(32, args.cols - k),
                            reinterpret_cast<strips::BF16Block*>(out + block));
            }
        }
    }
}

}  // namespace weft::kernels::avx512
