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
    // unread: bytes of the next frame that have already arrived.
    Channel(Fd fd, const Session& session, Bytes unread = {})
        : fd_(std::move(fd)), session_(session), in_(std::move(unread)) {}

    int fd() const { return fd_.get(); }
    bool open() const { return fd_.valid(); }
    bool wants_write() const { return !out_.empty(); }
    // Seals and queues a frame, and writes what the socket accepts. The next Receive reports
    // errors. Disconnects a peer that leaves more than kMostQueued bytes unread.
    void Send(FrameType type, View payload);
    void Flush();
    // Hands every complete frame to `on_frame`. Errors, with the reason in words after "rank 2 was
    // lost: ": kPeerLost (connection ended), kCorrupt (broken frame).
    Status Receive(const std::function<void(FrameType, View)>& on_frame);
    // Whether, since the last call, kHeadway bytes of messages that are still incomplete arrived or
    // left. The connection is then slow, but alive. (Single bytes are no sign of life: a whole
    // heartbeat is smaller than kHeadway.)
    static constexpr size_t kHeadway = 4096;
    struct Moved {
        bool in = false, out = false;
    };
    Moved TakeMoved() { return std::exchange(moved_, {}); }
    // The state of the connection, for another Channel. `fd` is invalid if the connection ended or
    // data is still queued for the peer.
    struct Taken {
        Fd fd;
        Session session;
        Bytes unread;
    };
    Taken Take();
    // reset: do not wait until the peer has read what was sent.
    void Close(bool reset);

  private:
    static constexpr size_t kMostQueued = 4 * kMostAfterAuth;
    Status TakeFrames(const std::function<void(FrameType, View)>& on_frame);

    Fd fd_;
    Session session_;
    Bytes in_;
    Bytes out_;
    bool overrun_ = false;
    bool waits_ = false;  // the last Flush left a part of out_
    size_t came_ = 0, left_ = 0;  // bytes not yet counted in moved_
    Moved moved_;
};

}  // namespace weft::cluster
