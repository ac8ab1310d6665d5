// Copies into memory that another core is about to read.
//
// A plain store first fetches the line from the reader's cache, where it lies since the last
// message, and the reader then fetches it back: two trips a line. Streaming stores go past the
// caches to memory. Between far cores (of a virtual machine whose cores lie on two sockets, say)
// streaming wins from 2 KiB on: all-reduce of two ranks, 2.3 / 8 / 64 / 256 KiB, plain 1.2 / 4.3 /
// 33 / 123 us, streaming 0.75 / 1.3 / 5.6 / 20 us. Between cores that share a cache plain copies
// win. Which of them it is may change while it runs, so a PeerCopy watches what its plain copies
// cost. Thread: any, several at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::net {

class PeerCopy {
  public:
    // far: what it takes the cores for at first.
    explicit PeerCopy(bool far = false) : far_(far) {}
    // memcpy, complete before any later store is seen by others.
    void Copy(std::byte* to, const std::byte* from, size_t bytes);
    bool far() const { return far_.load(std::memory_order_relaxed); }

  private:
    // (No order among them is needed: what is lost when two threads count at once is a count.)
    std::atomic<bool> far_;             // plain copies took long lately
    std::atomic<uint32_t> streak_ = 0;  // how many in a row said otherwise
    std::atomic<uint32_t> streamed_ = 0;
};

}  // namespace weft::net
