// Connection: sends answers, and handles clients that read slowly.
#include <fmt/format.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <cerrno>

#include "base/deadline.h"
#include "serve/http/connection.h"

namespace weft::serve {
namespace {

constexpr size_t kPieces = 64;             // buffers per writev
constexpr size_t kTlsRecordBytes = 16384;  // largest TLS record
constexpr size_t kLeastProgress = 4096;

}  // namespace

// An exchange keeps its connection until Done() or Gone() and calls Wake() only before that.
void Connection::Wake() {
    boost::asio::post(loop_.context, [self = shared_from_this()] { self->Flush(); });
}

void Connection::WaitWritable() {
    if (writing_ || phase_ == Phase::kClosed) return;
    writing_ = true;
    socket_.async_wait(Tcp::socket::wait_write,
                       [self = shared_from_this()](const boost::system::error_code& ec) {
                           self->writing_ = false;
                           if (ec || self->phase_ == Phase::kClosed) return;
                           self->Flush();
                           // A TLS read may have been waiting for the socket to be writable.
                           if (self->tls_ != nullptr && !self->paused_) self->ReadAgain();
                       });
}

void Connection::Flush() {
    if (phase_ == Phase::kClosed || phase_ == Phase::kHandshake) return;
    const bool complete = exchange_ != nullptr && exchange_->TakeOutput(out_);
    while (!all_sent()) {
        size_t sent = 0;
        const Io io = Transmit(sent);
        if (io == Io::kEnd || io == Io::kBroken) return Close();
        if (io == Io::kAgain) {
            return OnStalled();
        }
        NoteProgress(sent);
    }
    out_.clear();
    out_at_ = out_offset_ = 0;
    if (exchange_ != nullptr && stalled_ns_ != kNever) exchange_->CountBacklog();
    stalled_ns_ = kNever;
    progress_bytes_ = 0;
    if (complete) {
        FinishExchange();
    } else if (FillsSilence()) {
        Arm();
    } else if (phase_ == Phase::kRefusing) {
        StartLinger();
    }
}

void Connection::OnStalled() {
    if (stalled_ns_ == kNever) {
        stalled_ns_ = NowNs();
        queued_bytes_ = QueuedBytes();
    }
    if (exchange_ != nullptr) {
        exchange_->CountBacklog();
        const std::string client = exchange_->client();
        const bool of_client =
            !client.empty() && core_.shares.held(client) > limits_.all_bodies_bytes / 2;
        if (of_client || core_.over_budget()) EndIfSlow();
        if (phase_ == Phase::kClosed) return;
    }
    Arm();
    WaitWritable();
}

void Connection::EndIfSlow() {
    if (phase_ == Phase::kClosed || stalled_ns_ == kNever) return;
    if (NowNs() - stalled_ns_ < limits_.slow_ms * kNsPerMs) return;
    if (!PeerReads()) return CutOff();
    stalled_ns_ = NowNs();
}

void Connection::NoteProgress(size_t sent) {
    core_.counters.sent_bytes += sent;
    if (exchange_ != nullptr) {
        exchange_->Sent(sent);
        sent_ns_ = NowNs();
    }
    if (stalled_ns_ == kNever) return;
    progress_bytes_ += sent;
    if (progress_bytes_ < kLeastProgress) return;
    progress_bytes_ = 0;
    stalled_ns_ = NowNs();
    queued_bytes_ = QueuedBytes();
}

// Bytes in the socket's send buffer that the peer has not acknowledged.
int64_t Connection::QueuedBytes() {
    int bytes = 0;
    return ::ioctl(socket_.native_handle(), SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

// Whether the peer reads. A socket becomes writable only after much of its buffer, possibly
// megabytes, is sent. A slow but steady reader is visible only in QueuedBytes().
bool Connection::PeerReads() {
    const int64_t queued = QueuedBytes();
    const bool moved = queued + static_cast<int64_t>(kLeastProgress) <= queued_bytes_;
    queued_bytes_ = queued;
    return moved;
}

// Removes `bytes` from the front of out_.
void Connection::Drop(size_t bytes) {
    while (bytes > 0) {
        const size_t left = out_[out_at_].bytes().size() - out_offset_;
        if (bytes < left) {
            out_offset_ += bytes;
            break;
        }
        bytes -= left;
        out_[out_at_] = {};
        ++out_at_;
        out_offset_ = 0;
    }
    // (Rarely, because it moves all remaining pieces; a slow reader may leave a million.)
    if (out_at_ >= kPieces && out_at_ >= out_.size() / 2) {
        out_.erase(out_.begin(), out_.begin() + static_cast<ptrdiff_t>(out_at_));
        out_at_ = 0;
    }
}

Connection::Io Connection::Transmit(size_t& sent) {
    return tls_ != nullptr ? TransmitTls(sent) : TransmitPlain(sent);
}

Connection::Io Connection::TransmitPlain(size_t& sent) {
    std::array<iovec, kPieces> pieces;
    size_t count = 0;
    for (size_t at = out_at_; at < out_.size() && count < kPieces; ++at) {
        const size_t offset = at == out_at_ ? out_offset_ : 0;
        const std::string_view bytes = out_[at].bytes().substr(offset);
        pieces[count++] = {const_cast<char*>(bytes.data()), bytes.size()};
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t returned =
        ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (returned < 0) {
        const bool again = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        return again ? Io::kAgain : Io::kEnd;
    }
    sent = static_cast<size_t>(returned);
    Drop(sent);
    return Io::kDone;
}

Connection::Io Connection::TransmitTls(size_t& sent) {
    if (staged_.empty()) {
        staged_at_ = 0;
        while (out_at_ < out_.size() && staged_.size() < kTlsRecordBytes) {
            const std::string_view rest = out_[out_at_].bytes().substr(out_offset_);
            const size_t take = std::min(rest.size(), kTlsRecordBytes - staged_.size());
            staged_ += rest.substr(0, take);
            Drop(take);
        }
    }
    const TlsStep step = tls_->Write(std::string_view(staged_).substr(staged_at_), sent);
    switch (step) {
        case TlsStep::kDone: break;
        case TlsStep::kWantRead: WaitReadable(); return Io::kAgain;
        case TlsStep::kWantWrite: return Io::kAgain;
        case TlsStep::kClosed:
        case TlsStep::kPlainHttp:
        case TlsStep::kFailed: return Io::kEnd;
    }
    staged_at_ += sent;
    if (staged_at_ == staged_.size()) staged_.clear();
    return Io::kDone;
}

void Connection::CutOff() {
    ++core_.counters.cut_off;
    if (exchange_ != nullptr) {
        exchange_->Note([bytes = exchange_->backlog_bytes()](RequestNote& note) {
            note.error = fmt::format(
                "cut off: the client left {} bytes of the answer unread (--stall-timeout-ms, "
                "--max-bodies-size)",
                bytes);
        });
    }
    Reset();
}

// Drops the socket's buffer too, so that the client sees a reset.
void Connection::Reset() {
    const linger at_once{1, 0};
    ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    Close();
}

}  // namespace weft::serve
