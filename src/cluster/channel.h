// A control connection after the handshake: sealed frames in and out of a non-blocking socket.
// Thread: one at a time (Control holds its lock).
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "cluster/handshake.h"
#include "cluster/socket.h"

namespace weft::cluster {

class Channel {
  public:
    // unread: what has come of the next frame already.
    Channel(Fd fd, const Session& session, Bytes unread = {})
        : fd_(std::move(fd)), session_(session), in_(std::move(unread)) {}

    int fd() const { return fd_.get(); }
    bool open() const { return fd_.valid(); }
    bool wants_write() const { return !out_.empty(); }
    // Seals and queues a frame, and writes what the socket takes. What goes wrong shows up in the
    // next Receive. A peer that leaves more than kMostQueued bytes unread is cut off.
    void Send(FrameType type, View payload);
    void Flush();
    // Hands every frame that has arrived to `on_frame`. Errors, with why the connection is over in
    // words that follow "rank 2 was lost: ": kPeerLost (ended), kCorrupt (broken frame).
    Status Receive(const std::function<void(FrameType, View)>& on_frame);
    // Whether, since it was last asked, kHeadway bytes came or left of messages whose rest is still
    // on its way: then the connection is slow, but it moves. (A byte now and then is no sign of
    // life: a whole heartbeat is less than kHeadway.)
    static constexpr size_t kHeadway = 4096;
    struct Moved {
        bool in = false, out = false;
    };
    Moved TakeMoved() { return std::exchange(moved_, {}); }
    // The connection as it stands, for another Channel. Without a descriptor where it is over, or
    // the peer has not taken what was sent.
    struct Taken {
        Fd fd;
        Session session;
        Bytes unread;
    };
    Taken Take();
    // reset: do not wait for the peer to take what was sent.
    void Close(bool reset);

  private:
    static constexpr size_t kMostQueued = 4 * kMostAfterAuth;
    Status TakeFrames(const std::function<void(FrameType, View)>& on_frame);

    Fd fd_;
    Session session_;
    Bytes in_;
    Bytes out_;
    bool overrun_ = false;
    bool waits_ = false;  // some of out_ was left when it was last flushed
    size_t came_ = 0, left_ = 0;  // bytes that moved_ does not tell of yet
    Moved moved_;
};

}  // namespace weft::cluster
