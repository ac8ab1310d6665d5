#include <immintrin.h>

#include <algorithm>

#include "kernels/avx2/matmul.h"
#include "kernels/strips.h"

namespace weft::kernels::avx2 {
namespace {

using strips::ActivationBlock;

__m256 Magnitude(__m256 v) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}

// The largest of the 8 lanes.
float Largest(__m256 v) {
    const __m128 quad = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 pair = _mm_max_ps(quad, _mm_movehl_ps(quad, quad));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}

// 16 floats times `inverse` as int8 at q; returns their sum.
int Round16(const float* x, __m256 inverse, int8_t* q) {
    const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
    const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), inverse));
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_store_si128(reinterpret_cast<__m128i*>(q), bytes);
    const __m128i pairs = _mm_maddubs_epi16(_mm_set1_epi8(1), bytes);
    const __m128i quads = _mm_madd_epi16(pairs, _mm_set1_epi16(1));
    const __m128i halves = _mm_hadd_epi32(quads, quads);
    return _mm_cvtsi128_si32(_mm_hadd_epi32(halves, halves));
}

void PrepareBlock(const float* x, ActivationBlock* out) {
    __m256 peaks = Magnitude(_mm256_loadu_ps(x));
    for (int i = 8; i < 32; i += 8) peaks = _mm256_max_ps(peaks, Magnitude(_mm256_loadu_ps(x + i)));
    const float peak = Largest(peaks);
    const float scale = peak / 127;
    const __m256 inverse = _mm256_set1_ps(scale > 0 ? 127 / peak : 0);
    const int low = Round16(x, inverse, out->q), high = Round16(x + 16, inverse, out->q + 16);
    out->scale = scale;
    out->scaled_sum = scale * static_cast<float>(low + high);
    out->from_8 = -8 * (low + high);
    out->from_128 = -128 * (low + high);
    out->from_32[0] = -32 * low;
    out->from_32[1] = -32 * high;
    out->scaled_half[0] = scale * static_cast<float>(low);
    out->scaled_half[1] = scale * static_cast<float>(high);
}

}  // namespace

void Prepare(const PrepareArgs& args, int part, int parts) {
    const int64_t blocks = args.cols / 32;
    const Range share = Share(args.rows * blocks, 1, part, parts);
    for (int64_t i = share.begin; i < share.end;) {
        const int64_t row = i / blocks;
        const int64_t end = std::min(share.end, (row + 1) * blocks);
        const float* x = args.x + row * args.x_stride;
        auto* out =
            reinterpret_cast<ActivationBlock*>(args.out) + row * strips::PreparedBlocks(args.cols);
        for (; i < end; ++i) PrepareBlock(x + (i - row * blocks) * 32, out + (i - row * blocks));
    }
}

}  // namespace weft::kernels::avx2
