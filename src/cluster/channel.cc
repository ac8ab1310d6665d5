#include "cluster/channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace weft::cluster {

namespace {

bool IsHeartbeat(FrameType type) {
    return type == FrameType::kHeartbeat || type == FrameType::kRelay;
}

}  // namespace

bool Channel::Overruns(size_t bytes) {
    WEFT_CHECK(bytes <= kMostMessage);
    overrun_ = overrun_ || out_.size() > kMostQueued || waiting_bytes_ > kMostWaiting;
    return overrun_;
}

void Channel::Send(FrameType type, View payload) {
    if (!fd_.valid() || Overruns(payload.size())) return;
    if (IsHeartbeat(type) || (waiting_.empty() && payload.size() <= kPieceBytes)) {
        SealFrame(session_, out_, type, payload);
        Flush();
    } else {
        SendShared(type, std::make_shared<const Bytes>(payload.begin(), payload.end()));
    }
}

void Channel::SendShared(FrameType type, const std::shared_ptr<const Bytes>& payload, View own) {
    if (!fd_.valid() || Overruns(own.size() + payload->size())) return;
    if (!own.empty()) Queue({type, std::make_shared<const Bytes>(own.begin(), own.end()), true});
    Queue({type, payload});
    Flush();
}

void Channel::Queue(Waiting waiting) {
    waiting_bytes_ += waiting.payload->size();
    waiting_.push_back(std::move(waiting));
}

void Channel::SealNextPiece() {
    Waiting& first = waiting_.front();
    const View rest = View(*first.payload).subspan(first.sent);
    const View piece = rest.first(std::min(rest.size(), kPieceBytes));
    const bool more = first.more || piece.size() < rest.size();
    SealFrame(session_, out_, first.type, piece, more);
    moved_.out = moved_.out || first.sent > 0;
    first.sent += piece.size();
    waiting_bytes_ -= piece.size();
    if (piece.size() == rest.size()) waiting_.pop_front();
}

void Channel::Flush() {
    Write();
    for (int pieces = 0; pieces < kMostPieces && out_.empty() && !waiting_.empty(); ++pieces) {
        SealNextPiece();
        Write();
    }
}

void Channel::Write() {
    size_t sent = 0;
    while (fd_.valid() && sent < out_.size()) {
        const ssize_t put =
            ::send(fd_.get(), out_.data() + sent, out_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno != EAGAIN) {  // Receive reports the reason
            sent = out_.size();
            waiting_.clear();
            waiting_bytes_ = 0;
        }
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
        WEFT_TRY(TakeFrame(*frame, on_frame));
        taken += consumed;
    }
    in_.erase(in_.begin(), in_.begin() + static_cast<ptrdiff_t>(taken));
    return {};
}

Status Channel::TakeFrame(const Frame& frame,
                          const std::function<void(FrameType, View)>& on_frame) {
    WEFT_ASSIGN(const Bytes payload, OpenFrame(session_, frame));
    if (!frame.more && (partial_.empty() || IsHeartbeat(frame.type))) {
        on_frame(frame.type, payload);
        return {};
    }
    if (payload.empty() || (!partial_.empty() && frame.type != partial_type_)) {
        return MakeError(ErrorCode::kCorrupt, "it sent a part of another control message");
    }
    if (payload.size() > kMostMessage - partial_.size()) {
        return MakeError(ErrorCode::kCorrupt, "it sent a control message of more than {} bytes",
                         kMostMessage);
    }
    partial_type_ = frame.type;
    partial_.insert(partial_.end(), payload.begin(), payload.end());
    moved_.in = true;
    if (frame.more) return {};
    const Bytes whole = std::exchange(partial_, {});
    on_frame(frame.type, whole);
    return {};
}

Channel::Taken Channel::Take() {
    Flush();
    if (wants_write() || !partial_.empty() || overrun_) fd_.Reset();
    return {std::move(fd_), session_, std::move(in_)};
}

void Channel::Close(bool reset) {
    if (reset && fd_.valid()) SetResetOnClose(fd_.get());
    fd_.Reset();
}

}  // namespace weft::cluster
