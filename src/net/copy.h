// Copies into memory that another core will read next.
//
// A plain store first fetches the line from the reader's cache, and the reader then fetches it
// back: two transfers per line. Streaming stores bypass the caches. Between distant cores (such as
// a virtual machine over two sockets) streaming wins from 2 KiB on: all-reduce of two ranks, 2.3 /
// 8 / 64 / 256 KiB, plain 1.2 / 4.3 / 33 / 123 us, streaming 0.75 / 1.3 / 5.6 / 20 us. Between
// cores that share a cache plain copies win. The cores may change at run time, so a PeerCopy
// measures its plain copies. Thread: any, several at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::net {

class PeerCopy {
  public:
    // far: initial assumption about the cores.
    explicit PeerCopy(bool far = false) : far_(far) {}
    // memcpy that completes before others see any later store.
    void Copy(std::byte* to, const std::byte* from, size_t bytes);
    bool far() const { return far_.load(std::memory_order_relaxed); }

  private:
    // (Relaxed order suffices: two threads that count at once only lose a count.)
    std::atomic<bool> far_;             // recent plain copies were slow
    std::atomic<uint32_t> streak_ = 0;  // successive measurements against far_
    std::atomic<uint32_t> streamed_ = 0;
};

}  // namespace weft::net
