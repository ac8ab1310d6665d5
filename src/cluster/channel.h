// A control connection after the handshake: sends and receives sealed frames (handshake.h) over a
// non-blocking socket. Thread: one at a time (Control holds its lock).
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "cluster/join/handshake.h"
#include "cluster/socket.h"

namespace weft::cluster {

class Channel {
  public:
    // unread: first bytes of the next frame, which were already received.
    Channel(Fd fd, const Session& session, Bytes unread = {})
        : fd_(std::move(fd)), session_(session), in_(std::move(unread)) {}

    int fd() const { return fd_.get(); }
    bool open() const { return fd_.valid(); }
    bool wants_write() const { return !out_.empty(); }
    // Seals and queues a frame, and writes as much as the socket accepts. The next Receive reports
    // errors. Ends the connection if more than kMostQueued bytes wait for the peer.
    void Send(FrameType type, View payload);
    void Flush();
    // Calls `on_frame` with every complete frame. Errors: kPeerLost (the connection ended),
    // kCorrupt (an invalid frame). The text is a reason, to follow "rank 2 was lost: ".
    Status Receive(const std::function<void(FrameType, View)>& on_frame);
    // Whether, since the last call, at least kHeadway bytes of incomplete messages were received or
    // sent. If so, the connection is slow, but alive. (Fewer bytes do not count: even a whole
    // heartbeat is smaller than kHeadway.)
    static constexpr size_t kHeadway = 4096;
    struct Moved {
        bool in = false, out = false;
    };
    Moved TakeMoved() { return std::exchange(moved_, {}); }
    // The state of a connection, from which another Channel can be made. `fd` is invalid if the
    // connection has ended, or if data is still queued for the peer.
    struct Taken {
        Fd fd;
        Session session;
        Bytes unread;
    };
    Taken Take();
    // reset: drop sent data that the peer has not acknowledged.
    void Close(bool reset);

  private:
    static constexpr size_t kMostQueued = 4 * kMostAfterAuth;
    Status TakeFrames(const std::function<void(FrameType, View)>& on_frame);

    Fd fd_;
    Session session_;
    Bytes in_;
    Bytes out_;
    bool overrun_ = false;
    bool waits_ = false;          // the last Flush could not send all of out_
    size_t came_ = 0, left_ = 0;  // received and sent bytes that moved_ does not count yet
    Moved moved_;
};

}  // namespace weft::cluster
