#include "net/copy.h"

#include <algorithm>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#include <x86intrin.h>
#endif

namespace weft::net {
namespace {

// Smaller copies are always plain.
constexpr size_t kStreamBytes = 2048;
constexpr size_t kLine = 64;
// A line from another cache of the same chip takes up to about 15 ns, and several overlap; a line
// from a distant cache 30 ns or more. The limit is in ticks of a counter of 2 to 4 GHz.
constexpr uint64_t kFarTicksALine = 30;
// Successive copies that must agree before the method changes.
constexpr uint32_t kAgree = 3;
constexpr size_t kProbeBytes = 4096;  // of a copy that is a probe

#if defined(__SSE2__)
void StreamCopy(std::byte* to, const std::byte* from, size_t bytes) {
    // Only whole lines stream efficiently.
    const size_t before =
        std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
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
}
#endif

}  // namespace

void PeerCopy::Copy(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__SSE2__)
    if (bytes >= kStreamBytes) {
        const auto relaxed = std::memory_order_relaxed;
        const bool was_far = far();
        if (was_far) {
            const uint64_t streamed = streamed_.load(relaxed);
            if (streamed < kProbeAfterBytes) {
                streamed_.store(streamed + bytes, relaxed);
                return StreamCopy(to, from, bytes);
            }
            const uint32_t probes = (probes_.load(relaxed) + 1) % kAgree;
            probes_.store(probes, relaxed);
            if (probes == 0) streamed_.store(0, relaxed);
        }
        const size_t plain = was_far ? std::min(bytes, kProbeBytes) : bytes;
        const uint64_t begin = __rdtsc();
        std::memcpy(to, from, plain);
        const bool slow = __rdtsc() - begin > plain / kLine * kFarTicksALine;
        const uint32_t streak = slow == was_far ? 0 : streak_.load(relaxed) + 1;
        streak_.store(streak < kAgree ? streak : 0, relaxed);
        if (streak >= kAgree) far_.store(slow, relaxed);
        if (was_far) StreamCopy(to + plain, from + plain, bytes - plain);
        return;
    }
#endif
    std::memcpy(to, from, bytes);
}

}  // namespace weft::net
