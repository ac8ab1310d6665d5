#include "net/tcp_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "net/frame.h"
#include "net/pages.h"
#include "net/record.h"

namespace weft::net {
namespace {

// Checks of the own socket per check of all others, while spinning.
constexpr int kOwnLooks = 8;
// Smaller messages are read with their header, and copied to their place.
constexpr size_t kLeastExpected = 4096;
// Frames up to this size are sent from one buffer: a second buffer costs 0.2 us.
constexpr size_t kSentWhole = size_t{8} << 10;
// Messages up to this size have their place in the window prefetched.
constexpr size_t kMostPrefetched = size_t{32} << 10;
constexpr size_t kCacheLineBytes = 64;
// Reads that discard data at the end, so that close does not reset the connection.
constexpr int kLastReads = 64;

// The unsent rest of a frame: header, head and data, as they are or as sealed records.
class Outgoing {
  public:
    using Pieces = std::array<std::span<const std::byte>, RecordSealer::kMostParts>;

    // sealer: null: the bytes are sent as they are.
    Outgoing(const FrameHeader& header, std::span<const std::byte> head,
             std::span<const std::byte> data, RecordSealer* sealer)
        : pieces_{std::as_bytes(std::span(&header, 1)), head, data}, sealer_(sealer) {}
    // A single buffer, of which `sent` bytes were sent.
    Outgoing(std::span<const std::byte> whole, size_t sent) : pieces_{whole.subspan(sent)} {}

    bool done() const {
        return sealed_.empty() && std::ranges::all_of(pieces_, [](auto p) { return p.empty(); });
    }

    // The buffers of the next socket call, at most kSocketCallBytes.
    size_t Next(std::array<iovec, 3>& out) {
        if (sealer_ != nullptr) {
            // The first record of a frame travels while the others are sealed.
            const bool first = !pieces_[0].empty();
            if (sealed_.empty())
                sealed_ = sealer_->Seal(pieces_, first ? 1 : RecordSealer::kMostRecords);
            out[0] = {const_cast<std::byte*>(sealed_.data()), sealed_.size()};
            return 1;
        }
        size_t count = 0, most = kSocketCallBytes;
        for (const std::span<const std::byte> piece : pieces_) {
            const size_t bytes = std::min(piece.size(), most);
            if (bytes == 0) continue;
            out[count++] = {const_cast<std::byte*>(piece.data()), bytes};
            most -= bytes;
        }
        return count;
    }

    void Sent(size_t bytes) {
        if (sealer_ != nullptr) {
            sealed_ = sealed_.subspan(bytes);
            return;
        }
        for (std::span<const std::byte>& piece : pieces_) {
            const size_t take = std::min(piece.size(), bytes);
            piece = piece.subspan(take);
            bytes -= take;
        }
    }

  private:
    Pieces pieces_;
    RecordSealer* sealer_ = nullptr;
    std::span<const std::byte> sealed_;  // the unsent rest of a record
};

class TcpLink final : public BaseLink {
  public:
    TcpLink(Progress& progress, PeerName peer, Fd socket, uint64_t epoch, Pages pages,
            const std::optional<LinkKeys>& keys)
        : BaseLink(std::move(peer)),
          progress_(progress),
          fd_(std::move(socket)),
          socket_(fd_.get()),
          epoch_(epoch),
          pages_(std::move(pages)),
          reader_(epoch, pages_.span()) {
        if (keys.has_value()) {
            sealer_.emplace(keys->send);
            records_.emplace(keys->receive, reader_);
        }
        const int on = 1;
        ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        SetBlocking(socket_, false);
    }

    ~TcpLink() override {
        if (end() == LinkEnd::kOpen) {
            const FrameHeader goodbye{.flag = kGoodbyeFlag, .epoch = epoch_};
            Outgoing outgoing(goodbye, {}, {}, sealer());
            Send(outgoing);
        }
        // Unread data would turn the close into a reset, which discards what the peer has not read
        // yet.
        std::array<char, 4096> bin;
        for (int i = 0; i < kLastReads; i++) {
            if (::recv(socket_, bin.data(), bin.size(), 0) <= 0) break;
        }
    }

    size_t window_bytes() const override { return pages_.span().size(); }
    std::span<std::byte> window() override { return pages_.span(); }
    uint64_t flag(int index) const override { return reader_.flag(index); }

    size_t least_expected_bytes() const override { return kLeastExpected; }
    void Expect(size_t offset, size_t bytes) override {
        // (Another thread may have received the bytes since the caller's check.)
        if (progress_.shared()) return;
        if (!records_.has_value()) reader_.Expect(offset, bytes);
        // Since the last message of a decode step, weights have displaced the window from the
        // caches.
        if (bytes > kMostPrefetched || offset > window_bytes()) return;
        std::byte* at = window().data() + offset;
        const size_t end = std::min(bytes, window_bytes() - offset);
        for (size_t line = 0; line < end; line += kCacheLineBytes) __builtin_prefetch(at + line, 1);
    }
    int poll_fd() const override { return end() == LinkEnd::kOpen ? socket_ : -1; }
    uint64_t moved_bytes() const override {
        return received_bytes_.load(std::memory_order_relaxed) +
               sent_bytes_.load(std::memory_order_relaxed);
    }

    Status Put(size_t offset, std::span<const std::byte> head, std::span<const std::byte> data,
               int flag, uint64_t value, const OpTag& tag, const Deadline& deadline) override {
        WEFT_CHECK(offset <= window_bytes() && head.size() <= window_bytes() - offset &&
                   data.size() <= window_bytes() - offset - head.size());
        const FrameHeader header{.flag = static_cast<uint32_t>(flag),
                                 .epoch = epoch_,
                                 .offset = offset,
                                 .length = head.size() + data.size(),
                                 .value = value};
        std::unique_lock<std::mutex> lock(sending_, std::defer_lock);
        if (progress_.shared()) lock.lock();
        if (sizeof header + header.length <= whole_.size() && !sealer_.has_value()) {
            return PutWhole(header, head, data, tag, deadline);
        }
        Outgoing outgoing(header, head, data, sealer());
        if (Send(outgoing)) return {};
        return SendRest(outgoing, tag, deadline);
    }

    Status Wait(int flag, uint64_t value, const OpTag& tag, const Deadline& deadline) override {
        if (reader_.flag(flag) >= value) return {};
        const int looks = progress_.crowded() ? 1 : kOwnLooks;
        for (int look = 0; look < looks; look++) {
            Receive();
            if (reader_.flag(flag) >= value) return {};
        }
        Waiter waiter(progress_, *this, tag, deadline);
        for (;;) {
            const uint64_t seen = progress_.received();
            progress_.ReceiveAll();
            for (int look = 0; look < kOwnLooks; look++) {
                Receive();
                if (reader_.flag(flag) >= value) return {};
                if (waiter.Next() != Stage::kSpin) break;
            }
            WEFT_TRY(waiter.Check());
            switch (waiter.Next()) {
                case Stage::kSpin: break;
                case Stage::kYield: waiter.Yield(); break;
                case Stage::kSleep: progress_.SleepOnSockets(-1, waiter.sleep_ms(), seen); break;
            }
        }
    }

    void Receive() override {
        if (end() != LinkEnd::kOpen) return;
        std::unique_lock<std::mutex> lock(receiving_, std::defer_lock);
        if (progress_.shared() && !lock.try_lock()) return;  // another thread receives
        if (end() != LinkEnd::kOpen) return;
        std::array<iovec, FrameReader::kTargets> targets;
        int count = 1;
        if (records_.has_value()) {
            targets[0] = records_->Target();
        } else {
            count = reader_.Targets(targets);
        }
        ssize_t got;
        if (count == 1) {
            got = ::recv(socket_, targets[0].iov_base, targets[0].iov_len, 0);
        } else {
            msghdr message{};
            message.msg_iov = targets.data();
            message.msg_iovlen = static_cast<size_t>(count);
            got = ::recvmsg(socket_, &message, 0);
        }
        if (got > 0) {
            Count(received_bytes_, got);
            const auto bytes = static_cast<size_t>(got);
            const Status taken =
                records_.has_value() ? records_->Consume(bytes) : reader_.Consume(bytes);
            if (!taken.ok())
                SetEnd(LinkEnd::kBroke, "broke the protocol: " + taken.error().message);
            progress_.OnReceived();
            return;
        }
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
        const int error = got == 0 ? 0 : errno;
        if (reader_.goodbye()) {
            SetEnd(LinkEnd::kLeft, "left");
        } else {
            SetEnd(LinkEnd::kDied,
                   error == 0 ? "closed the connection"
                              : std::string("lost the connection: ") + std::strerror(error));
        }
    }

  private:
    RecordSealer* sealer() { return sealer_.has_value() ? &*sealer_ : nullptr; }

    // One thread at a time updates each counter.
    static void Count(std::atomic<uint64_t>& bytes, ssize_t more) {
        bytes.store(bytes.load(std::memory_order_relaxed) + static_cast<uint64_t>(more),
                    std::memory_order_relaxed);
    }

    Status PutWhole(const FrameHeader& header, std::span<const std::byte> head,
                    std::span<const std::byte> data, const OpTag& tag, const Deadline& deadline) {
        std::byte* at = whole_.data();
        std::memcpy(at, &header, sizeof header);
        at += sizeof header;
        if (!head.empty()) std::memcpy(at, head.data(), head.size());
        at += head.size();
        if (!data.empty()) std::memcpy(at, data.data(), data.size());
        const auto frame = std::span<const std::byte>(whole_).first(sizeof header + header.length);
        const ssize_t sent = ::send(socket_, frame.data(), frame.size(), MSG_NOSIGNAL);
        if (sent == static_cast<ssize_t>(frame.size())) return {};
        Outgoing outgoing(frame, sent > 0 ? static_cast<size_t>(sent) : 0);
        return SendRest(outgoing, tag, deadline);
    }

    // Sends what the socket accepts now; true: all was sent. Receive reports errors.
    bool Send(Outgoing& outgoing) {
        std::array<iovec, 3> pieces;
        while (!outgoing.done()) {
            msghdr message{};
            message.msg_iov = pieces.data();
            message.msg_iovlen = outgoing.Next(pieces);
            const ssize_t sent = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
            if (sent <= 0) {
                send_error_ = errno;
                return false;
            }
            outgoing.Sent(static_cast<size_t>(sent));
            Count(sent_bytes_, sent);
        }
        return true;
    }

    // The socket is full: keeps receiving, so that the peer, which may also be sending, can
    // continue.
    Status SendRest(Outgoing& outgoing, const OpTag& tag, const Deadline& deadline) {
        Waiter waiter(progress_, *this, tag, deadline);
        for (;;) {
            const uint64_t seen = progress_.received();
            progress_.ReceiveAll();
            if (Send(outgoing)) return {};
            if (send_error_ == EPIPE || send_error_ == ECONNRESET) {
                // Data that the peer sent before it ended still counts: Receive reads it, then the
                // end.
                Receive();
                if (end() == LinkEnd::kOpen && ++failed_sends_ > kLastReads) {
                    SetEnd(LinkEnd::kDied, "lost the connection");
                }
            }
            const Status go_on = waiter.Check();
            if (!go_on.ok()) {
                // The frame is incomplete: this connection can't continue.
                SetEnd(LinkEnd::kDied, "was given up while sending");
                ::shutdown(socket_, SHUT_RDWR);
                return go_on;
            }
            switch (waiter.Next()) {
                case Stage::kSpin: break;
                case Stage::kYield: waiter.Yield(); break;
                case Stage::kSleep:
                    progress_.SleepOnSockets(socket_, waiter.sleep_ms(), seen);
                    break;
            }
        }
    }

    Progress& progress_;
    Fd fd_;
    int socket_;
    int send_error_ = 0;
    int failed_sends_ = 0;
    std::atomic<uint64_t> received_bytes_ = 0, sent_bytes_ = 0;
    std::mutex sending_, receiving_;  // used if threads share the Fabric
    std::array<std::byte, kSentWhole + 256> whole_;
    uint64_t epoch_;
    Pages pages_;
    FrameReader reader_;
    std::optional<RecordSealer> sealer_;  // of an encrypted link
    std::optional<RecordReader> records_;
};

}  // namespace

Result<std::unique_ptr<BaseLink>> MakeTcpLink(Progress& progress, PeerName peer, Fd socket,
                                              uint64_t epoch, size_t window_bytes,
                                              const std::optional<LinkKeys>& keys) {
    WEFT_ASSIGN(Pages pages, Pages::Make(window_bytes));
    return std::unique_ptr<BaseLink>(std::make_unique<TcpLink>(
        progress, std::move(peer), std::move(socket), epoch, std::move(pages), keys));
}

}  // namespace weft::net
