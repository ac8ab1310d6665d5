// A control connection after the handshake: sends and receives messages as sealed frames
// (handshake.h) over a non-blocking socket. A long message takes several frames; heartbeats pass
// between these, all other messages arrive in order. Thread: one at a time (Control holds its
// lock).
#pragma once

#include <deque>
#include <functional>
#include <memory>
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
    bool overrun() const { return overrun_; }  // the next Receive returns the error
    bool wants_write() const { return !out_.empty() || !waiting_.empty(); }
    // Queues a message of at most kMostMessage bytes, and writes as much as the socket accepts. The
    // next Receive reports errors. Ends the connection if the peer does not read.
    void Send(FrameType type, View payload);
    // The same for a message that several channels send: they share the bytes behind `own`.
    void SendShared(FrameType type, const std::shared_ptr<const Bytes>& payload, View own = {});
    void Flush();
    // Calls `on_frame` with every complete message. Errors: kPeerLost (the connection ended),
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
    static constexpr size_t kMostQueued = 4 * kMostAfterAuth;  // sealed
    static constexpr size_t kMostWaiting = 2 * kMostMessage;   // the rest of long messages
    static constexpr size_t kPieceBytes = size_t{64} << 10;    // of a long message, in a frame
    // Frames of long messages that one Flush seals, so that one peer does not delay the others.
    static constexpr int kMostPieces = 16;
    struct Waiting {
        FrameType type;
        std::shared_ptr<const Bytes> payload;
        bool more = false;  // the next entry continues the message
        size_t sent = 0;
    };
    bool Overruns(size_t bytes);
    void Queue(Waiting waiting);
    void SealNextPiece();
    void Write();
    Status TakeFrames(const std::function<void(FrameType, View)>& on_frame);
    Status TakeFrame(const Frame& frame, const std::function<void(FrameType, View)>& on_frame);

    Fd fd_;
    Session session_;
    Bytes in_;
    Bytes out_;
    std::deque<Waiting> waiting_;  // messages that are not sealed yet
    size_t waiting_bytes_ = 0;     // of all of them
    Bytes partial_;                // begin of a received message
    FrameType partial_type_{};     // if `partial_` is not empty
    bool overrun_ = false;
    bool waits_ = false;          // the last Flush could not send all of out_
    size_t came_ = 0, left_ = 0;  // received and sent bytes that moved_ does not count yet
    Moved moved_;
};

}  // namespace weft::cluster
