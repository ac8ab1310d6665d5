// A link over one RC queue pair: a put is one RDMA WRITE of the bytes, with the flag as immediate
// data.
//
// A second WRITE for the flag on the same queue pair would need no receives, but
// - it adds a packet to each put: on Soft-RoCE (in bench/rdma.sh's machine, medians of one run) 64
//   bytes took 2.4 times as long, 8 KB 1.25 times, all-reduces of these sizes 1.6 and 1.15 times;
// - cards take a single small request in the same store that rings their doorbell, but fetch two
//   over PCIe (mlx5 in rdma-core, providers/mlx5/qp.c, post_send_db: `nreq == 1`);
// - that the flag becomes visible after the data is only the practice of cards, for memory that is
//   not registered for relaxed ordering (ibv_reg_mr's manual). The specification orders only a
//   completion after the data (InfiniBand, volume 1, "Transaction ordering"), and immediate data
//   brings a completion.
// The receives for immediate data are empty and posted in bulk. A sender counts the peer's
// remaining receives, so none is ever missing (no RNR). If none remains, or a flag rises by more
// than immediate data can express, the flag is a second WRITE.
//
// Small bytes go inline; others are copied to a registered ring, so the caller's memory is free at
// once. Only some requests are signaled; their completions free the ring and the queue.
//
// The waiting side checks its completion queue and its flags, both in memory. Before it sleeps, it
// notifies its peer by a WRITE; the peer's next put then wakes it by a byte over the socket beside
// the queue pair. The socket also shows at once that a process ended, and a last byte distinguishes
// leaving from dying.
#ifdef WEFT_VERBS

#include <arpa/inet.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "net/verbs_objects.h"

namespace weft::net {
namespace {

// Words of the region, each on its own cache line: the flags, and the link's own values.
constexpr size_t kWordBytes = 64;
constexpr int kAsleepWord = kFlags;     // grows each time the peer goes to sleep
constexpr int kGrantWord = kFlags + 1;  // receives that the peer has posted beyond the first ones
constexpr int kLastWord = kFlags + 2;   // written at the end, only to confirm that all arrived
static_assert((kLastWord + 1) * kWordBytes <= kVerbsWindowAt);
static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);

constexpr char kWakeByte = 'W';
constexpr char kLeaveByte = 'L';
constexpr int kLooksABurst = 100;
// A wake byte may overtake its data.
constexpr int64_t kAwakeNs = 500'000;
constexpr int64_t kDrainMs = 1000;
// Going to sleep costs a WRITE. Waking up costs a byte over the socket and a context switch. So a
// wait sleeps only after kUsualWaits times the usual wait. The usual wait is a moving average, in
// which each wait has the weight 1 / kUsualParts and counts as at most kLongestUsualNs.
constexpr int64_t kUsualWaits = 4;
constexpr int64_t kUsualParts = 8;
constexpr int64_t kLongestUsualNs = 1'000'000;
// Time between two checks of the device on a link that is never idle.
constexpr int64_t kDeviceLookNs = 200'000'000;
// Bytes per copy: the next piece is copied while the card sends this one.
constexpr size_t kPieceBytes = size_t{64} << 10;
constexpr size_t kRingUnit = 64;
// Most unsignaled requests: this part of the queue, and of the ring.
constexpr uint32_t kSignalParts = 4;
constexpr size_t kMostSignals = 16;
// Immediate data: the flag's number in the high bits, the lowest bits of its value below.
constexpr int kValueBits = 28;
constexpr uint64_t kValueMask = (uint64_t{1} << kValueBits) - 1;
static_assert(kFlags <= 1 << (32 - kValueBits));

// The ring from which larger data are sent. Positions only grow.
class Ring {
  public:
    explicit Ring(const RegisteredPages& pages) : pages_(pages) {}
    size_t bytes() const { return pages_.bytes(); }
    uint64_t head() const { return head_; }
    bool HasSpace(size_t bytes) const {
        return head_ + Skip(bytes) + Whole(bytes) <= tail_ + pages_.bytes();
    }
    // Contiguous space, in whole cache lines. Only after HasSpace.
    std::byte* Take(size_t bytes) {
        head_ += Skip(bytes);
        std::byte* at = pages_.data() + head_ % pages_.bytes();
        head_ += Whole(bytes);
        return at;
    }
    void FreeUpTo(uint64_t head) { tail_ = head; }

  private:
    static size_t Whole(size_t bytes) { return (bytes + kRingUnit - 1) / kRingUnit * kRingUnit; }
    // Unused bytes at the end.
    size_t Skip(size_t bytes) const {
        const size_t to_end = pages_.bytes() - head_ % pages_.bytes();
        return Whole(bytes) > to_end ? to_end : 0;
    }
    const RegisteredPages& pages_;
    uint64_t head_ = 0;
    uint64_t tail_ = 0;
};

// Flags that arrived as immediate data.
class Arrivals {
  public:
    explicit Arrivals(ibv_cq* queue) : queue_(queue) {}
    uint64_t flag(int index) const { return flags_[static_cast<size_t>(index)]; }
    // Number of arrivals; each consumed a receive.
    uint64_t count() const { return count_; }
    // The status of a failed receive; 0 (success) if none failed.
    ibv_wc_status failure() const { return failure_; }
    void Take() {
        std::array<ibv_wc, 8> done;
        int got;
        do {
            got = ibv_poll_cq(queue_, static_cast<int>(done.size()), done.data());
            for (int i = 0; i < got; i++) Take(done[static_cast<size_t>(i)]);
        } while (got == static_cast<int>(done.size()));
    }

  private:
    void Take(const ibv_wc& done) {
        if (done.status != IBV_WC_SUCCESS) {
            if (failure_ == IBV_WC_SUCCESS) failure_ = done.status;
            return;
        }
        count_++;
        const uint32_t word = ntohl(done.imm_data);
        uint64_t& flag = flags_[word >> kValueBits];
        // Flags only rise, and by less than the mask, so the low bits determine the value.
        flag += (word - flag) & kValueMask;
    }

    ibv_cq* queue_;
    std::array<uint64_t, size_t{1} << (32 - kValueBits)> flags_{};
    uint64_t count_ = 0;
    ibv_wc_status failure_ = IBV_WC_SUCCESS;
};

class VerbsLink final : public BaseLink {
  public:
    VerbsLink(Progress& progress, PeerName peer, std::unique_ptr<VerbsEndImpl> end, Fd socket)
        : BaseLink(std::move(peer)),
          progress_(progress),
          socket_(std::move(socket)),
          verbs_(std::move(end)),
          ring_(verbs_->staging()),
          arrivals_(verbs_->receive_cq()) {
        SetBlocking(socket_.get(), false);
    }
    ~VerbsLink() override;

    size_t window_bytes() const override { return verbs_->window_bytes(); }
    std::span<std::byte> window() override {
        return {verbs_->region().data() + kVerbsWindowAt, window_bytes()};
    }
    uint64_t flag(int index) const override {
        const auto own = Own();
        arrivals_.Take();
        return std::max(arrivals_.flag(index), Word(index));
    }
    int poll_fd() const override { return end() == LinkEnd::kOpen ? socket_.get() : -1; }

    Status Put(size_t offset, std::span<const std::byte> head, std::span<const std::byte> data,
               int flag, uint64_t value, const OpTag& tag, const Deadline& deadline) override;
    Status Wait(int flag, uint64_t value, const OpTag& tag, const Deadline& deadline) override;
    void Receive() override;

  private:
    // Locks the link for this thread, if threads share it (net/share.h). A wait locks it for each
    // check only; a put for its whole duration, which does not depend on the peer.
    std::unique_lock<std::recursive_mutex> Own() const {
        std::unique_lock<std::recursive_mutex> lock(mutex_, std::defer_lock);
        if (progress_.shared()) lock.lock();
        return lock;
    }

    struct Signal {
        uint64_t posted;  // requests up to and including this one
        uint64_t ring;    // the ring's head at that time
    };

    uint64_t Word(int index) const {
        auto* word = reinterpret_cast<uint64_t*>(verbs_->region().data() +
                                                 static_cast<size_t>(index) * kWordBytes);
        return std::atomic_ref<uint64_t>(*word).load(std::memory_order_acquire);
    }
    // The flag that a put raises at its end.
    struct Raise {
        int flag;
        uint64_t value;
    };
    // Whether the flag fits in immediate data.
    bool FitsImmediate(const Raise& raise) const {
        return immediates_ < verbs_->receive_depth() + Word(kGrantWord) &&
               raise.value - raised_[static_cast<size_t>(raise.flag)] <= kValueMask;
    }
    // Writes `pieces` to `offset` of the peer's region; the last write of a put raises the flag.
    bool PostWrite(size_t offset, std::span<ibv_sge> pieces, bool in_line, const Raise* raise);
    bool PostInline(size_t offset, std::span<const std::byte> head, std::span<const std::byte> data,
                    const Raise& raise);
    bool PostWord(int word, uint64_t value, bool signal);
    void SetWord(ibv_send_wr& request, ibv_sge& piece, int word, const uint64_t& value);
    bool Post(ibv_send_wr* first, ibv_send_wr* last, uint32_t count, bool signal);
    bool HasSpace(uint32_t requests, size_t ring_bytes) const {
        return posted_ - completed_ + requests <= verbs_->send_depth() &&
               (ring_bytes == 0 || ring_.HasSpace(ring_bytes));
    }
    Status AwaitSpace(uint32_t requests, size_t ring_bytes, const OpTag& tag,
                      const Deadline& deadline);
    Status PutStaged(size_t offset, std::span<const std::byte> head,
                     std::span<const std::byte> data, const Raise& raise, const OpTag& tag,
                     const Deadline& deadline);
    bool Arrived(int flag, uint64_t value) {
        const auto own = Own();
        arrivals_.Take();
        if (arrivals_.flag(flag) < value && Word(flag) < value) return false;
        if (arrivals_.count() - granted_ >= verbs_->receive_depth() / 4) Grant();
        return true;
    }
    void Grant();
    Status Gone(const OpTag& tag, const Deadline& deadline);
    Status WaitOn(int flag, uint64_t value, const OpTag& tag, const Deadline& deadline);
    Status WaitWith(Waiter& waiter, int flag, uint64_t value);
    // Returns false if a request has failed.
    bool TakeCompletions();
    void LookAtDevice();
    void TakeSocket();
    void Broke(std::string reason);
    void Wake();
    void ReportAsleep();
    bool LookAwake(int flag, uint64_t value);
    void Drain();

    Progress& progress_;
    mutable std::recursive_mutex mutex_;
    Fd socket_;
    std::unique_ptr<VerbsEndImpl> verbs_;
    Ring ring_;
    mutable Arrivals arrivals_;
    uint64_t granted_ = 0;                   // arrivals whose receives were posted again
    uint64_t immediates_ = 0;                // sent by this rank
    std::array<uint64_t, kFlags> raised_{};  // the peer's flags, by immediate data
    uint64_t posted_ = 0;
    uint64_t completed_ = 0;
    std::array<Signal, kMostSignals> signals_{};  // in flight: [first_signal_, last_signal_)
    uint64_t first_signal_ = 0;
    uint64_t last_signal_ = 0;
    Signal last_{};              // the latest signaled request
    uint64_t asleep_count_ = 0;  // number of sleeps
    bool reported_asleep_ =
        false;  // this rank reported that it sleeps, and no wake byte arrived since
    bool woken_ = false;
    uint64_t woke_ = 0;  // the peer's count at the last wake byte
    int64_t device_look_ns_ = 0;
    int64_t usual_wait_ns_ = 0;  // of waits that did not end at once
};

// ---- Putting ------------------------------------------------------------------------------------

Status VerbsLink::Put(size_t offset, std::span<const std::byte> head,
                      std::span<const std::byte> data, int flag, uint64_t value, const OpTag& tag,
                      const Deadline& deadline) {
    WEFT_CHECK(offset <= window_bytes() && head.size() <= window_bytes() - offset &&
               data.size() <= window_bytes() - offset - head.size());
    if (end() != LinkEnd::kOpen) return Gone(tag, deadline);
    const auto own = Own();
    const size_t at = kVerbsWindowAt + offset;
    const Raise raise{flag, value};
    if (head.size() + data.size() > verbs_->max_inline()) {
        WEFT_TRY(PutStaged(at, head, data, raise, tag, deadline));
    } else {
        if (!HasSpace(2, kRingUnit)) WEFT_TRY(AwaitSpace(2, kRingUnit, tag, deadline));
        if (!PostInline(at, head, data, raise)) return Gone(tag, deadline);
    }
    if (last_signal_ - first_signal_ > 1 && !TakeCompletions()) return Gone(tag, deadline);
    if (Word(kAsleepWord) != woke_) Wake();
    return {};
}

bool VerbsLink::PostInline(size_t offset, std::span<const std::byte> head,
                           std::span<const std::byte> data, const Raise& raise) {
    std::array<ibv_sge, 2> pieces;
    size_t count = 0;
    for (const std::span<const std::byte> piece : {head, data}) {
        if (piece.empty()) continue;
        pieces[count++] = {reinterpret_cast<uint64_t>(piece.data()),
                           static_cast<uint32_t>(piece.size()), 0};
    }
    return PostWrite(offset, std::span(pieces).first(count), true, &raise);
}

// Puts the data in pieces: copies each piece to the ring, and sends it at once.
Status VerbsLink::PutStaged(size_t offset, std::span<const std::byte> head,
                            std::span<const std::byte> data, const Raise& raise, const OpTag& tag,
                            const Deadline& deadline) {
    const size_t most = std::min(kPieceBytes, ring_.bytes() / kSignalParts);
    while (!head.empty() || !data.empty()) {
        const size_t from_head = std::min(head.size(), most);
        const size_t from_data = std::min(data.size(), most - from_head);
        const size_t bytes = from_head + from_data;
        if (!HasSpace(2, bytes + kRingUnit)) {
            WEFT_TRY(AwaitSpace(2, bytes + kRingUnit, tag, deadline));
        }
        std::byte* staged = ring_.Take(bytes);
        if (from_head > 0) std::memcpy(staged, head.data(), from_head);
        if (from_data > 0) std::memcpy(staged + from_head, data.data(), from_data);
        head = head.subspan(from_head);
        data = data.subspan(from_data);
        const bool last = head.empty() && data.empty();
        ibv_sge piece{reinterpret_cast<uint64_t>(staged), static_cast<uint32_t>(bytes),
                      verbs_->staging().lkey()};
        if (!PostWrite(offset, {&piece, 1}, false, last ? &raise : nullptr)) {
            return Gone(tag, deadline);
        }
        offset += bytes;
    }
    return {};
}

bool VerbsLink::PostWrite(size_t offset, std::span<ibv_sge> pieces, bool in_line,
                          const Raise* raise) {
    ibv_send_wr bytes{};
    bytes.sg_list = pieces.data();
    bytes.num_sge = static_cast<int>(pieces.size());
    bytes.opcode = IBV_WR_RDMA_WRITE;
    bytes.send_flags = in_line ? IBV_SEND_INLINE : 0;
    bytes.wr.rdma.remote_addr = verbs_->peer().region + offset;
    bytes.wr.rdma.rkey = verbs_->peer().rkey;
    if (raise == nullptr) return Post(&bytes, &bytes, 1, false);
    if (FitsImmediate(*raise)) {
        immediates_++;
        raised_[static_cast<size_t>(raise->flag)] = raise->value;
        bytes.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        bytes.imm_data = htonl(static_cast<uint32_t>(raise->flag) << kValueBits |
                               static_cast<uint32_t>(raise->value & kValueMask));
        return Post(&bytes, &bytes, 1, false);
    }
    ibv_send_wr flag{};
    ibv_sge piece;
    SetWord(flag, piece, raise->flag, raise->value);
    if (pieces.empty()) return Post(&flag, &flag, 1, false);
    bytes.next = &flag;
    return Post(&bytes, &flag, 2, false);
}

bool VerbsLink::PostWord(int word, uint64_t value, bool signal) {
    ibv_send_wr request{};
    ibv_sge piece;
    SetWord(request, piece, word, value);
    return Post(&request, &request, 1, signal);
}

// value: valid until the request is posted.
void VerbsLink::SetWord(ibv_send_wr& request, ibv_sge& piece, int word, const uint64_t& value) {
    piece = {reinterpret_cast<uint64_t>(&value), sizeof value, 0};
    request.send_flags = IBV_SEND_INLINE;
    if (verbs_->max_inline() < sizeof value) {
        std::byte* staged = ring_.Take(sizeof value);
        std::memcpy(staged, &value, sizeof value);
        piece = {reinterpret_cast<uint64_t>(staged), sizeof value, verbs_->staging().lkey()};
        request.send_flags = 0;
    }
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma.remote_addr = verbs_->peer().region + static_cast<uint64_t>(word) * kWordBytes;
    request.wr.rdma.rkey = verbs_->peer().rkey;
}

bool VerbsLink::Post(ibv_send_wr* first, ibv_send_wr* last, uint32_t count, bool signal) {
    posted_ += count;
    signal = signal || posted_ - last_.posted >= verbs_->send_depth() / kSignalParts ||
             ring_.head() - last_.ring >= ring_.bytes() / kSignalParts;
    if (signal) {
        WEFT_CHECK(last_signal_ - first_signal_ < kMostSignals);
        last_ = {posted_, ring_.head()};
        signals_[last_signal_++ % kMostSignals] = last_;
        last->send_flags |= IBV_SEND_SIGNALED;
    }
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(verbs_->qp(), first, &bad);
    if (error == 0) return true;
    Broke(fmt::format("{} accepts no request: {}", verbs_->name(), std::strerror(error)));
    return false;
}

bool VerbsLink::TakeCompletions() {
    ibv_wc done{};
    while (end() == LinkEnd::kOpen) {
        const int count = ibv_poll_cq(verbs_->send_cq(), 1, &done);
        if (count == 0) return true;
        if (count < 0) {
            Broke(fmt::format("{}'s completion queue can't be read", verbs_->name()));
        } else if (done.status != IBV_WC_SUCCESS) {
            Broke(fmt::format("a write over {} failed: {} (vendor code {:#x})", verbs_->name(),
                              ibv_wc_status_str(done.status), done.vendor_err));
        } else {
            WEFT_CHECK(first_signal_ < last_signal_);
            const Signal& signal = signals_[first_signal_++ % kMostSignals];
            completed_ = signal.posted;
            ring_.FreeUpTo(signal.ring);
            if (NowNs() - device_look_ns_ >= kDeviceLookNs) LookAtDevice();
        }
    }
    return false;
}

void VerbsLink::LookAtDevice() {
    device_look_ns_ = NowNs();
    std::string trouble = verbs_->Trouble();
    if (!trouble.empty()) SetEnd(LinkEnd::kBroke, std::move(trouble));
}

// A failed write is often the first sign of a peer's end; its socket shows the cause.
void VerbsLink::Broke(std::string reason) {
    TakeSocket();
    const std::string trouble = verbs_->Trouble();
    SetEnd(LinkEnd::kBroke, trouble.empty() ? std::move(reason) : trouble);
}

Status VerbsLink::AwaitSpace(uint32_t requests, size_t ring_bytes, const OpTag& tag,
                             const Deadline& deadline) {
    Waiter waiter(progress_, *this, tag, deadline);
    for (;;) {
        const uint64_t seen = progress_.received();
        TakeCompletions();
        if (end() == LinkEnd::kOpen && HasSpace(requests, ring_bytes)) return {};
        if (progress_.has_sockets()) progress_.ReceiveAll();
        const Status go_on = waiter.Check();
        if (!go_on.ok()) {
            // Bytes may be missing: no flag may follow on this queue pair.
            SetEnd(LinkEnd::kDied, "was given up while sending");
            return go_on;
        }
        switch (waiter.Next()) {
            case Stage::kSpin: SpinPause(); break;
            case Stage::kYield: waiter.Yield(); break;
            case Stage::kSleep:
                progress_.SleepOnSockets(-1, 1, seen);
                Receive();
                break;
        }
    }
}

// Waits for the error of a link that has ended.
Status VerbsLink::Gone(const OpTag& tag, const Deadline& deadline) {
    Waiter waiter(progress_, *this, tag, deadline);
    for (;;) {
        WEFT_TRY(waiter.Check());
    }
}

// ---- Waiting ------------------------------------------------------------------------------------

Status VerbsLink::Wait(int flag, uint64_t value, const OpTag& tag, const Deadline& deadline) {
    for (int look = 0; look < kLooksABurst; look++) {
        if (Arrived(flag, value)) return {};
        SpinPause();
    }
    return WaitOn(flag, value, tag, deadline);
}

Status VerbsLink::WaitOn(int flag, uint64_t value, const OpTag& tag, const Deadline& deadline) {
    int64_t usual_ns;
    {
        const auto own = Own();
        usual_ns = usual_wait_ns_;
    }
    Waiter waiter(progress_, *this, tag, deadline, kUsualWaits * usual_ns);
    WEFT_TRY(WaitWith(waiter, flag, value));
    const int64_t waited_ns = std::min(waiter.waited_ns(), kLongestUsualNs);
    const auto own = Own();
    usual_wait_ns_ += (waited_ns - usual_wait_ns_) / kUsualParts;
    return {};
}

Status VerbsLink::WaitWith(Waiter& waiter, int flag, uint64_t value) {
    for (;;) {
        for (int look = 0; look < kLooksABurst; look++) {
            if (Arrived(flag, value)) return {};
            if (waiter.Next() != Stage::kSpin) break;
            SpinPause();
        }
        if (progress_.has_sockets()) progress_.ReceiveAll();
        WEFT_TRY(waiter.Check());
        switch (waiter.Next()) {
            case Stage::kSpin: break;
            case Stage::kYield: waiter.Yield(); break;
            case Stage::kSleep: {
                const uint64_t seen = progress_.received();
                ReportAsleep();
                if (Arrived(flag, value)) return {};
                // The first sleep is short: the peer may have sent data before it was notified of
                // the sleep.
                progress_.SleepOnSockets(-1, waiter.sleep_ms(), seen);
                Receive();
                if (LookAwake(flag, value)) return {};
                break;
            }
        }
    }
}

// Posts as many receives as were consumed, then lets the peer use them.
void VerbsLink::Grant() {
    if (end() != LinkEnd::kOpen || !HasSpace(1, kRingUnit)) return;
    const Status posted = verbs_->PostReceives(static_cast<uint32_t>(arrivals_.count() - granted_));
    if (!posted.ok()) return Broke(posted.error().message);
    granted_ = arrivals_.count();
    PostWord(kGrantWord, granted_, false);
}

void VerbsLink::ReportAsleep() {
    const auto own = Own();
    if (reported_asleep_ || end() != LinkEnd::kOpen || !TakeCompletions()) return;
    if (!HasSpace(1, kRingUnit)) return;
    reported_asleep_ = PostWord(kAsleepWord, ++asleep_count_, false);
}

// After a wake byte, checks for its data for a while.
bool VerbsLink::LookAwake(int flag, uint64_t value) {
    {
        const auto own = Own();
        if (!std::exchange(woken_, false)) return false;
    }
    const int64_t until = NowNs() + kAwakeNs;
    while (NowNs() < until) {
        for (int look = 0; look < kLooksABurst; look++) {
            if (Arrived(flag, value)) return true;
            SpinPause();
        }
        sched_yield();
    }
    return false;
}

void VerbsLink::Wake() {
    woke_ = Word(kAsleepWord);
    [[maybe_unused]] const ssize_t sent =
        ::send(socket_.get(), &kWakeByte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void VerbsLink::Receive() {
    if (end() != LinkEnd::kOpen) return;
    std::unique_lock<std::recursive_mutex> own(mutex_, std::defer_lock);
    // (A putting thread may check all links; it must not wait for another thread in this function.)
    if (progress_.shared() && !own.try_lock()) return;
    TakeSocket();
    TakeCompletions();
    arrivals_.Take();
    if (arrivals_.failure() != IBV_WC_SUCCESS) {
        Broke(fmt::format("receiving over {} failed: {}", verbs_->name(),
                          ibv_wc_status_str(arrivals_.failure())));
    }
    if (end() == LinkEnd::kOpen) LookAtDevice();
}

void VerbsLink::TakeSocket() {
    std::array<char, 64> bytes;
    while (end() == LinkEnd::kOpen) {
        const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
        progress_.OnReceived();
        if (got == 0) SetEnd(LinkEnd::kDied, "closed the connection");
        if (got < 0) {
            SetEnd(LinkEnd::kDied, std::string("lost the connection: ") + std::strerror(errno));
        }
        for (ssize_t i = 0; i < got; i++) {
            if (bytes[static_cast<size_t>(i)] == kLeaveByte) {
                SetEnd(LinkEnd::kLeft, "left");
            } else if (bytes[static_cast<size_t>(i)] == kWakeByte) {
                woken_ = true;
                reported_asleep_ = false;
            } else {
                SetEnd(LinkEnd::kBroke, "broke the protocol: it sent an invalid message");
            }
        }
    }
}

// ---- The end ------------------------------------------------------------------------------------

VerbsLink::~VerbsLink() {
    Drain();
    if (end() == LinkEnd::kLeft || end() == LinkEnd::kOpen) {
        [[maybe_unused]] const ssize_t sent =
            ::send(socket_.get(), &kLeaveByte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    // Unread bytes would turn the close into a reset.
    ::shutdown(socket_.get(), SHUT_WR);
    std::array<char, 64> bin;
    while (::recv(socket_.get(), bin.data(), bin.size(), MSG_DONTWAIT) > 0) continue;
}

// A destroyed queue pair drops unsent data: waits until the peer has everything.
void VerbsLink::Drain() {
    PeerMonitor* monitor = progress_.monitor();
    const auto open = [&] {
        return end() == LinkEnd::kOpen && (monitor == nullptr || !monitor->Failed());
    };
    const Deadline deadline = Deadline::In(kDrainMs);
    bool asked = last_.posted == posted_;
    while (open() && completed_ != posted_ && !deadline.expired()) {
        if (!asked && HasSpace(1, kRingUnit) && last_signal_ - first_signal_ < kMostSignals) {
            asked = PostWord(kLastWord, 1, true);
        }
        TakeCompletions();
        TakeSocket();
        sched_yield();
    }
}

}  // namespace

std::unique_ptr<BaseLink> MakeVerbsLink(Progress& progress, PeerName peer,
                                        std::unique_ptr<VerbsEnd> end, Fd socket) {
    std::unique_ptr<VerbsEndImpl> impl(static_cast<VerbsEndImpl*>(end.release()));
    return std::make_unique<VerbsLink>(progress, std::move(peer), std::move(impl),
                                       std::move(socket));
}

}  // namespace weft::net

#endif
