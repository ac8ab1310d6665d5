#include "net/mpi/link.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "net/mpi/inbox.h"
#include "net/pages.h"

namespace weft::net {
namespace {

// Bytes in one message: libraries send this much without a request to the receiver, and a copy
// costs less than a request.
constexpr size_t kMessageBytes = size_t{4} << 10;
constexpr size_t kMostHere = kMessageBytes - sizeof(MpiHeader);
constexpr size_t kReceives = 4;
constexpr size_t kSends = 8;
constexpr int kMessageTag = 0;
// Checks of this peer per check of all others, while spinning.
constexpr int kLooksOfOne = 8;
// Message checks between two checks of the connection, which take a system call.
constexpr uint32_t kLooksAConnection = 256;
// There is nothing to sleep on. A nap is a tenth of the time waited so far, within these bounds:
// this bounds both the added delay and the CPU use of long waits.
constexpr int64_t kShortestNapNs = 20'000;
constexpr int64_t kLongestNapNs = 5'000'000;
// Time for the last messages to leave, at the end.
constexpr int64_t kLeaveMs = 200;
// The end of the connection may overtake earlier messages.
constexpr int64_t kLastMessagesNs = 20'000'000;
constexpr char kGoodbye = 'G';

// All memory that MPI reads and writes.
struct Memory {
    explicit Memory(Pages for_window) : window(std::move(for_window)) {}
    Pages window;
    alignas(64) std::array<std::array<std::byte, kMessageBytes>, kReceives> receives;
    alignas(64) std::array<std::array<std::byte, kMessageBytes>, kSends> sends;
};

class MpiLink final : public BaseLink {
  public:
    MpiLink(Progress& progress, PeerName peer, MpiLibrary& library, const MpiPlace& place,
            Fd socket, Pages pages)
        : BaseLink(std::move(peer)),
          progress_(progress),
          library_(library),
          place_(place),
          socket_(std::move(socket)),
          memory_(std::make_shared<Memory>(std::move(pages))),
          inbox_(place.receive_token, memory_->window.span()) {
        SetBlocking(socket_.get(), false);
        for (size_t i = 0; i < kReceives && end() == LinkEnd::kOpen; i++) Post(i);
    }

    ~MpiLink() override {
        if (!Leave()) {
            library_.Abandon();
            library_.Keep(memory_);
        }
    }

    size_t window_bytes() const override { return memory_->window.span().size(); }
    std::span<std::byte> window() override { return memory_->window.span(); }
    uint64_t flag(int index) const override { return inbox_.flag(index); }
    int poll_fd() const override { return -1; }

    Status Put(size_t offset, std::span<const std::byte> head, std::span<const std::byte> data,
               int flag, uint64_t value, const OpTag& tag, const Deadline& deadline) override {
        WEFT_CHECK(offset <= window_bytes() && head.size() <= window_bytes() - offset &&
                   data.size() <= window_bytes() - offset - head.size() &&
                   head.size() <= kMostHere);
        MpiHeader header{.frame = {.flag = static_cast<uint32_t>(flag),
                                   .epoch = place_.send_token,
                                   .offset = offset,
                                   .length = head.size() + data.size(),
                                   .value = value}};
        const bool whole = header.frame.length <= kMostHere;
        if (!whole) header.bulk_tag = library_.NextBulkTag();
        int slot = FreeSlot();
        if (slot < 0) {
            WEFT_TRY(WaitUntil([&] { return (slot = FreeSlot()) >= 0; }, tag, deadline));
        }
        SendMessage(slot, header, head, whole ? data : std::span<const std::byte>());
        if (whole) return {};
        WeftMpiRequest bulk{};
        if (const int error =
                library_.Send(data, place_.rank, static_cast<int>(header.bulk_tag), bulk)) {
            Broken(error);
        }
        const Status sent = WaitUntil([&] { return IsOver(bulk); }, tag, deadline);
        // MPI may still read the caller's memory, so the link can't continue.
        if (!sent.ok()) SetEnd(LinkEnd::kDied, "was given up while sending");
        return sent;
    }

    Status Wait(int flag, uint64_t value, const OpTag& tag, const Deadline& deadline) override {
        if (inbox_.flag(flag) >= value) return {};
        const auto arrived = [&] {
            ReceiveOne();
            return inbox_.flag(flag) >= value;
        };
        for (int look = 0; look < kLooksOfOne; look++) {
            if (arrived()) return {};
        }
        return WaitUntil(arrived, tag, deadline);
    }

    void Receive() override {
        if (++looks_ % kLooksAConnection == 0) LookAtConnection();
        while (ReceiveOne()) {
        }
    }

  private:
    void Broken(int error) {
        if (end() == LinkEnd::kOpen) SetEnd(LinkEnd::kDied, "failed: " + library_.ErrorText(error));
    }

    // Receives the next message, or the bulk of the last one; false: it has not arrived.
    bool ReceiveOne() {
        if (end() != LinkEnd::kOpen) return false;
        if (bulk_.has_value()) {
            if (!IsOver(*bulk_)) return false;
            bulk_.reset();
            inbox_.BulkArrived();
            return true;
        }
        bool done = false;
        size_t bytes = 0;
        const int error = library_.Test(receives_[next_], done, bytes);
        if (error != 0) Broken(error);
        if (error != 0 || !done) return false;
        const std::span<const std::byte> message = memory_->receives[next_];
        Take(message.first(std::min(bytes, message.size())));
        Post(next_);
        next_ = (next_ + 1) % kReceives;
        return true;
    }

    void Post(size_t index) {
        const int error =
            library_.Receive(memory_->receives[index], place_.rank, kMessageTag, receives_[index]);
        if (error != 0) Broken(error);
    }

    bool IsOver(WeftMpiRequest& request) {
        bool done = false;
        size_t bytes = 0;
        if (const int error = library_.Test(request, done, bytes)) Broken(error);
        return done;
    }

    void Take(std::span<const std::byte> message) {
        const auto taken = inbox_.Take(message);
        if (!taken.ok()) {
            SetEnd(LinkEnd::kBroke, "broke the protocol: " + taken.error().message);
        } else if (taken->has_value()) {
            WeftMpiRequest request{};
            const int error = library_.Receive((*taken)->into, place_.rank,
                                               static_cast<int>((*taken)->tag), request);
            if (error != 0) return Broken(error);
            bulk_ = request;
        }
    }

    // A slot whose message was sent; -1: none. Usually the first one, still in the cache.
    int FreeSlot() {
        for (size_t at = 0; at < kSends; at++) {
            if (sending_[at] && IsOver(sends_[at])) sending_[at] = false;
            if (!sending_[at]) return static_cast<int>(at);
        }
        return -1;
    }

    void SendMessage(int slot, MpiHeader header, std::span<const std::byte> head,
                     std::span<const std::byte> data) {
        const auto at = static_cast<size_t>(slot);
        header.bytes_here = static_cast<uint32_t>(head.size() + data.size());
        std::byte* bytes = memory_->sends[at].data();
        std::memcpy(bytes, &header, sizeof header);
        if (!head.empty()) std::memcpy(bytes + sizeof header, head.data(), head.size());
        if (!data.empty()) {
            std::memcpy(bytes + sizeof header + head.size(), data.data(), data.size());
        }
        const int error = library_.Send({bytes, sizeof header + header.bytes_here}, place_.rank,
                                        kMessageTag, sends_[at]);
        if (error != 0) return Broken(error);
        sending_[at] = true;
    }

    // Receives from all peers until `over`.
    template <typename Over>
    Status WaitUntil(const Over& over, const OpTag& tag, const Deadline& deadline) {
        const int64_t begin_ns = NowNs();
        Waiter waiter(progress_, *this, tag, deadline);
        for (;;) {
            progress_.ReceiveAll();
            for (int look = 0; look < kLooksOfOne; look++) {
                if (over()) return {};
                if (waiter.Next() != Stage::kSpin) break;
            }
            if (waiter.Next() != Stage::kSpin) LookAtConnection();
            WEFT_TRY(waiter.Check());
            switch (waiter.Next()) {
                case Stage::kSpin: break;
                case Stage::kYield: waiter.Yield(); break;
                case Stage::kSleep: {
                    const int64_t nap_ns =
                        std::clamp((NowNs() - begin_ns) / 10, kShortestNapNs, kLongestNapNs);
                    const timespec nap{0, nap_ns};
                    ::nanosleep(&nap, nullptr);
                    break;
                }
            }
        }
    }

    // Detects a lost peer. The lost peer's last messages have a moment to arrive.
    void LookAtConnection() {
        if (end() != LinkEnd::kOpen) return;
        if (closed_ns_ == 0) {
            char byte = 0;
            const ssize_t got = ::recv(socket_.get(), &byte, 1, 0);
            if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
            left_ = got == 1 && byte == kGoodbye;
            closed_ns_ = NowNs();
        }
        if (NowNs() - closed_ns_ < kLastMessagesNs) return;
        SetEnd(left_ ? LinkEnd::kLeft : LinkEnd::kDied, left_ ? "left" : "closed the connection");
    }

    // Cancels posted receives after all sends are done. Returns false if MPI still holds a buffer
    // of this link.
    bool Leave() {
        // A job that was stopped, or has ended, is not a fault.
        const PeerMonitor* monitor = progress_.monitor();
        const bool fault = monitor != nullptr && monitor->Failed() &&
                           monitor->Failure().code != ErrorCode::kCancelled;
        const bool dead = end() == LinkEnd::kDied || end() == LinkEnd::kBroke;
        if (fault || !library_.started() || dead || bulk_.has_value()) return false;
        const Deadline deadline = Deadline::In(kLeaveMs);
        for (WeftMpiRequest& request : receives_) library_.Cancel(request);
        bool over = false;
        while (!over && !deadline.expired()) {
            over = std::all_of(receives_.begin(), receives_.end(),
                               [&](WeftMpiRequest& request) { return IsOver(request); });
            for (size_t i = 0; i < kSends; i++) {
                if (sending_[i] && IsOver(sends_[i])) sending_[i] = false;
                over = over && !sending_[i];
            }
        }
        [[maybe_unused]] const ssize_t sent =
            ::send(socket_.get(), &kGoodbye, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        return over;
    }

    Progress& progress_;
    MpiLibrary& library_;
    MpiPlace place_;
    Fd socket_;
    int64_t closed_ns_ = 0;  // time of the connection's end; 0: open
    bool left_ = false;      // with a goodbye
    std::shared_ptr<Memory> memory_;
    MpiInbox inbox_;
    std::array<WeftMpiRequest, kReceives> receives_{};
    uint32_t looks_ = 0;
    size_t next_ = 0;  // the receive that completes next
    std::optional<WeftMpiRequest> bulk_;
    std::array<WeftMpiRequest, kSends> sends_{};
    std::array<bool, kSends> sending_{};
};

}  // namespace

Result<std::unique_ptr<BaseLink>> MakeMpiLink(Progress& progress, PeerName peer,
                                              MpiLibrary& library, const MpiPlace& place, Fd socket,
                                              size_t window_bytes) {
    WEFT_ASSIGN(Pages pages, Pages::Make(window_bytes));
    auto link = std::make_unique<MpiLink>(progress, std::move(peer), library, place,
                                          std::move(socket), std::move(pages));
    if (link->end() == LinkEnd::kOpen) return std::unique_ptr<BaseLink>(std::move(link));
    return MakeError(ErrorCode::kIo, "{}: {}", link->peer().Text(), link->reason());
}

}  // namespace weft::net
