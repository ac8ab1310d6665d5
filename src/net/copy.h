// Copies data into memory that another core will read next.
//
// A plain store first fetches the cache line from the reader's cache, and the reader then fetches
// the line back: two transfers per line. Streaming stores bypass the caches. Between distant cores
// (such as cores of a virtual machine over two sockets), streaming is faster from 2 KiB on. An
// all-reduce of two ranks with 2.3 / 8 / 64 / 256 KiB takes 1.2 / 4.3 / 33 / 123 us with plain
// stores, and 0.75 / 1.3 / 5.6 / 20 us with streaming stores. Between cores that share a cache,
// plain copies are faster. The kernel may move threads to other cores, so a PeerCopy measures its
// plain copies and chooses by their speed. Thread: any, several at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::net {

class PeerCopy {
  public:
    // far: whether the cores are assumed to be distant until copies are measured.
    explicit PeerCopy(bool far = false) : far_(far) {}
    // memcpy whose data other cores see before they see any later store.
    void Copy(std::byte* to, const std::byte* from, size_t bytes);
    bool far() const { return far_.load(std::memory_order_relaxed); }

  private:
    // Between distant cores, after so many bytes, the first bytes of a few copies are copied
    // plainly, to test whether the cores still are distant. With copies of 8 KiB, probes are rare
    // enough to stay out of the slowest hundredth of the copies. With copies of 1 MiB, they are
    // frequent enough to notice within 8 copies that the cores are near.
    static constexpr uint64_t kProbeAfterBytes = 8 << 20;

    // (Relaxed order is enough: two threads that count at the same time only lose a count.)
    std::atomic<bool> far_;             // recent plain copies were slow, so the cores are distant
    std::atomic<uint32_t> streak_ = 0;  // successive measurements against far_
    std::atomic<uint64_t> streamed_ = kProbeAfterBytes;  // bytes since the last probe
    std::atomic<uint32_t> probes_ = 0;                   // successive probes
};

}  // namespace weft::net
