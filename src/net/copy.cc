#include "net/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace weft::net {
namespace {

constexpr size_t kLine = 64;

}  // namespace

void CopyForPeer(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__SSE2__)
    if (bytes >= kStreamBytes) {
        // Only whole lines stream well.
        const size_t before = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
        std::memcpy(to, from, before);
        to += before;
        from += before;
        bytes -= before;
        for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
            const auto* in = reinterpret_cast<const __m128i*>(from);
            auto* out = reinterpret_cast<__m128i*>(to);
            const __m128i a = _mm_loadu_si128(in);
            const __m128i b = _mm_loadu_si128(in + 1);
            const __m128i c = _mm_loadu_si128(in + 2);
            const __m128i d = _mm_loadu_si128(in + 3);
            _mm_stream_si128(out, a);
            _mm_stream_si128(out + 1, b);
            _mm_stream_si128(out + 2, c);
            _mm_stream_si128(out + 3, d);
        }
        std::memcpy(to, from, bytes);
        _mm_sfence();
        return;
    }
#endif
    std::memcpy(to, from, bytes);
}

}  // namespace weft::net
