// A link over memory that two processes of one host share. A put is a copy and a release store.
//
// The region is one memfd. For each direction, it has a page of flags (each on its own pair of
// cache lines) and the window. The memfd has no name, so nothing remains after a crash.
//
// Sleeping: a reader marks the direction and waits on a futex in the region; the writer wakes only
// marked readers, all at once. So that the writer needs no memory fence, the reader instead runs
// membarrier(2) on all cores before its last check of the flag.
#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "net/socket.h"
#include "net/wait_policy.h"

namespace weft::net {

// A mapped region. Unmaps it when destroyed.
class ShmRegion {
  public:
    // Returns a new sealed memfd for two windows of `window_bytes` bytes.
    static Result<Fd> Create(size_t window_bytes);
    // Maps a region that Create made, perhaps in another process. Checks the memfd's size and
    // seals. The caller still owns the descriptor `fd`.
    static Result<ShmRegion> Map(int fd, size_t window_bytes);
    ShmRegion(ShmRegion&& other) noexcept;
    ShmRegion& operator=(ShmRegion&&) = delete;
    ~ShmRegion();

    std::byte* data() const { return data_; }
    size_t window_bytes() const { return window_bytes_; }

  private:
    ShmRegion(std::byte* data, size_t window_bytes) : data_(data), window_bytes_(window_bytes) {}
    std::byte* data_;
    size_t window_bytes_;
};

// socket: the unix socket over which the memfd was passed; when the peer dies, the kernel closes
// it. lower: whether this rank is the lower of the two.
std::unique_ptr<BaseLink> MakeShmLink(Progress& progress, PeerName peer, ShmRegion region,
                                      Fd socket, bool lower);

}  // namespace weft::net
