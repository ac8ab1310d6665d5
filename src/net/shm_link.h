// A link over memory that two processes of one host share: a put is a copy and a release store.
//
// The region is one memfd: per direction a page of flags (each on its own pair of cache lines) and
// the window. It has no name, so nothing remains after a crash.
//
// Sleeping: the reader marks itself asleep and waits on a futex in the region; the writer wakes
// only a marked reader. The writer's path has no fence. Instead the marked reader runs a membarrier
// on all cores before its last check of the flag.
#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "net/socket.h"
#include "net/wait_policy.h"

namespace weft::net {

// The mapping of a region, and its only owner.
class ShmRegion {
  public:
    // A new sealed memfd for two windows of `window_bytes`.
    static Result<Fd> Create(size_t window_bytes);
    // Maps a region of Create, perhaps in another process. Checks size and seals; the caller keeps
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

// socket: the unix socket that carried the region; its end shows the peer's death. lower: this rank
// is the lower of the two.
std::unique_ptr<BaseLink> MakeShmLink(Progress& progress, PeerName peer, ShmRegion region,
                                      Fd socket, bool lower);

}  // namespace weft::net
