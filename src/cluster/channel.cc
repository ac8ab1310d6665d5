#include "cluster/channel.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace weft::cluster {

void Channel::Send(FrameType type, View payload) {
    if (!fd_.valid()) return;
    if (out_.size() > kMostQueued) {
        overrun_ = true;
        return;
    }
    SealFrame(session_, out_, type, payload);
    Flush();
}

void Channel::Flush() {
    size_t sent = 0;
    while (fd_.valid() && sent < out_.size()) {
        const ssize_t put =
            ::send(fd_.get(), out_.data() + sent, out_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno != EAGAIN) sent = out_.size();  // Receive reports the reason
        if (put < 0) break;
        sent += static_cast<size_t>(put);
    }
    left_ = waits_ || sent < out_.size() ? left_ + sent : 0;
    if (left_ >= kHeadway) {
        moved_.out = true;
        left_ = 0;
    }
    waits_ = sent < out_.size();
    out_.erase(out_.begin(), out_.begin() + static_cast<ptrdiff_t>(sent));
}

Status Channel::Receive(const std::function<void(FrameType, View)>& on_frame) {
    std::array<std::byte, 65536> buffer;
    // A bounded number of reads, so that one busy peer does not delay the others.
    for (int reads = 0; reads < 16 && fd_.valid(); ++reads) {
        const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) break;
        if (got < 0 && errno != ECONNRESET && errno != EPIPE) {
            return MakeError(ErrorCode::kPeerLost, "its host or the link to it is down ({})",
                             std::strerror(errno));
        }
        if (got <= 0) {
            return MakeError(ErrorCode::kPeerLost, "its process ended (connection closed)");
        }
        in_.insert(in_.end(), buffer.data(), buffer.data() + got);
        WEFT_TRY(TakeFrames(on_frame));
        came_ = in_.empty() ? 0 : came_ + static_cast<size_t>(got);
        if (came_ >= kHeadway) {
            moved_.in = true;
            came_ = 0;
        }
    }
    if (overrun_) return MakeError(ErrorCode::kPeerLost, "it stopped reading its control messages");
    return {};
}

Status Channel::TakeFrames(const std::function<void(FrameType, View)>& on_frame) {
    size_t taken = 0;
    while (fd_.valid()) {
        size_t consumed = 0;
        WEFT_ASSIGN(auto frame, ParseFrame(View(in_).subspan(taken), true, &consumed));
        if (!frame.has_value()) break;
        WEFT_ASSIGN(const Bytes payload, OpenFrame(session_, *frame));
        on_frame(frame->type, payload);
        taken += consumed;
    }
    in_.erase(in_.begin(), in_.begin() + static_cast<ptrdiff_t>(taken));
    return {};
}

Channel::Taken Channel::Take() {
    Flush();
    if (!out_.empty() || overrun_) fd_.Reset();
    return {std::move(fd_), session_, std::move(in_)};
}

void Channel::Close(bool reset) {
    if (reset && fd_.valid()) SetResetOnClose(fd_.get());
    fd_.Reset();
}

}  // namespace weft::cluster
