// A link over memory that two processes of one host share: put is a copy and a release store.
//
// The region is one memfd: for each direction a page of flags (each on its own pair of cache
// lines) and the window. Nothing has a name, so nothing can be left behind.
//
// Sleeping: the reader marks itself asleep and waits on a futex in the region; the writer wakes
// only a marked reader. The writer's path has no fence: instead the reader, once marked, runs a
// membarrier on all cores before it looks at the flag a last time.
#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "net/socket.h"
#include "net/wait_policy.h"

namespace weft::net {

// The mapping of a region. Owns it; nothing else keeps it alive.
class ShmRegion {
  public:
    // A new sealed memfd for two windows of `window_bytes`.
    static Result<Fd> Create(size_t window_bytes);
    // Maps what Create made, maybe in another process. Checks size and seals; the caller keeps
    // (and closes) the descriptor.
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

// socket: the unix socket that the region came over; its end tells of the peer's death.
// lower: this rank is the lower of the two.
std::unique_ptr<BaseLink> MakeShmLink(Progress& progress, PeerName peer, ShmRegion region,
                                      Fd socket, bool lower);

}  // namespace weft::net
