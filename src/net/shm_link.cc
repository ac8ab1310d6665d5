#include "net/shm_link.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/memory_file.h"
#include "net/copy.h"

namespace weft::net {
namespace {

constexpr size_t kLineBytes = 128;  // the prefetcher fetches cache lines in pairs
constexpr size_t kPageBytes = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
// Flag checks between two checks of clock and monitor.
constexpr int kLooksABurst = 100;
// Longest sleep if sockets need service beside the futex, or without membarrier.
constexpr int64_t kShortSleepMs = 2;

struct alignas(kLineBytes) Flag {
    std::atomic<uint64_t> value;
};

// One direction, before its window. The writer raises flags and sets `left`; the reader sleeps.
struct Direction {
    Flag flags[kFlags];
    alignas(kLineBytes) std::atomic<uint32_t> asleep;  // 1: a reader sleeps, or soon will
    std::atomic<uint32_t> wakes;                       // the futex: how often readers were woken
    alignas(kLineBytes) std::atomic<uint32_t> left;
};
static_assert(sizeof(Direction) <= kPageBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

size_t DirectionBytes(size_t window_bytes) {
    return kPageBytes + (window_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// Registers the process for membarrier(2) before main, while it has one thread. With more threads
// the call waits for an RCU grace period of the kernel, during which the process can't even be
// killed: milliseconds on an idle machine, many seconds if other programs use all cores.
const bool g_registered =
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;

void Futex(std::atomic<uint32_t>& word, int op, uint32_t value, const timespec* timeout) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), op, value, timeout, nullptr, 0);
}

class ShmLink final : public BaseLink {
  public:
    ShmLink(Progress& progress, PeerName peer, ShmRegion region, Fd socket, bool lower)
        : BaseLink(std::move(peer)),
          progress_(progress),
          region_(std::move(region)),
          socket_(std::move(socket)) {
        std::byte* first = region_.data();
        std::byte* second = first + DirectionBytes(region_.window_bytes());
        std::byte* in = lower ? first : second;
        std::byte* out = lower ? second : first;
        in_ = reinterpret_cast<Direction*>(in);
        out_ = reinterpret_cast<Direction*>(out);
        in_window_ = in + kPageBytes;
        out_window_ = out + kPageBytes;
    }

    ~ShmLink() override {
        out_->left.store(1, std::memory_order_release);
        WakePeer();
    }

    size_t window_bytes() const override { return region_.window_bytes(); }
    std::span<std::byte> window() override { return {in_window_, region_.window_bytes()}; }
    uint64_t flag(int index) const override {
        return in_->flags[index].value.load(std::memory_order_acquire);
    }
    int poll_fd() const override { return -1; }

    Status Put(size_t offset, std::span<const std::byte> head, std::span<const std::byte> data,
               int flag, uint64_t value, const OpTag&, const Deadline&) override {
        WEFT_CHECK(offset <= window_bytes() && head.size() <= window_bytes() - offset &&
                   data.size() <= window_bytes() - offset - head.size());
        std::byte* to = out_window_ + offset;
        if (!head.empty()) std::memcpy(to, head.data(), head.size());
        if (!data.empty()) copy_.Copy(to + head.size(), data.data(), data.size());
        out_->flags[flag].value.store(value, std::memory_order_release);
        // The reader's membarrier replaces the fence between this store and the load.
        std::atomic_signal_fence(std::memory_order_seq_cst);
        if (out_->asleep.load(std::memory_order_relaxed) != 0) WakePeer();
        return {};
    }

    Status Wait(int flag, uint64_t value, const OpTag& tag, const Deadline& deadline) override {
        const std::atomic<uint64_t>& word = in_->flags[flag].value;
        const int looks = progress_.crowded() ? 1 : kLooksABurst;
        for (int look = 0; look < looks; look++) {
            if (word.load(std::memory_order_acquire) >= value) return {};
            SpinPause();
        }
        return WaitOn(word, value, tag, deadline);
    }

    void Receive() override {
        if (in_->left.load(std::memory_order_acquire) != 0) {
            SetEnd(LinkEnd::kLeft, "left");
            return;
        }
        char byte;
        const ssize_t got = ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        const bool open = got < 0 && (errno == EAGAIN || errno == EINTR);
        if (open) return;
        // The mark is stored before the socket closes.
        const bool left = in_->left.load(std::memory_order_acquire) != 0;
        SetEnd(left ? LinkEnd::kLeft : LinkEnd::kDied, left ? "left" : "died");
    }

  private:
    Status WaitOn(const std::atomic<uint64_t>& word, uint64_t value, const OpTag& tag,
                  const Deadline& deadline) {
        Waiter waiter(progress_, *this, tag, deadline);
        for (;;) {
            for (int look = 0; look < kLooksABurst; look++) {
                if (word.load(std::memory_order_acquire) >= value) return {};
                if (waiter.Next() != Stage::kSpin) break;
                SpinPause();
            }
            if (progress_.has_sockets()) progress_.ReceiveAll();
            WEFT_TRY(waiter.Check());
            switch (waiter.Next()) {
                case Stage::kSpin: break;
                case Stage::kYield: waiter.Yield(); break;
                case Stage::kSleep:
                    Sleep(word, value, waiter.sleep_ms());
                    Receive();
                    break;
            }
        }
    }

    // Several threads may sleep at once, each for a flag of its own. Only the writer clears
    // `asleep`, and then all wake: one that sleeps again marks itself again.
    void Sleep(const std::atomic<uint64_t>& word, uint64_t value, int64_t ms) {
        const uint32_t wakes = in_->wakes.load(std::memory_order_seq_cst);
        in_->asleep.store(1, std::memory_order_seq_cst);
        const bool ordered =
            g_registered && syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
        if (!ordered || progress_.has_sockets()) ms = std::min(ms, kShortSleepMs);
        if (word.load(std::memory_order_acquire) < value &&
            in_->left.load(std::memory_order_acquire) == 0) {
            const timespec timeout{ms / 1000, (ms % 1000) * 1'000'000};
            Futex(in_->wakes, FUTEX_WAIT, wakes, &timeout);
        }
    }

    void WakePeer() {
        out_->asleep.store(0, std::memory_order_seq_cst);
        out_->wakes.fetch_add(1, std::memory_order_seq_cst);
        Futex(out_->wakes, FUTEX_WAKE, INT_MAX, nullptr);
    }

    Progress& progress_;
    ShmRegion region_;
    Fd socket_;
    PeerCopy copy_;
    Direction* in_;
    Direction* out_;
    std::byte* in_window_;
    std::byte* out_window_;
};

}  // namespace

Result<Fd> ShmRegion::Create(size_t window_bytes) {
    Fd fd = SealableFile("weft-link");
    if (!fd.valid()) {
        return MakeError(ErrorCode::kIo, "shared memory: memfd_create: {}", std::strerror(errno));
    }
    const size_t bytes = 2 * DirectionBytes(window_bytes);
    if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
        ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
        return MakeError(ErrorCode::kIo, "shared memory of {} bytes: {}", bytes,
                         std::strerror(errno));
    }
    return fd;
}

Result<ShmRegion> ShmRegion::Map(int fd, size_t window_bytes) {
    const size_t bytes = 2 * DirectionBytes(window_bytes);
    struct stat about;
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0 || ::fstat(fd, &about) != 0 || static_cast<uint64_t>(about.st_size) != bytes ||
        (seals & kSeals) != kSeals) {
        return MakeError(ErrorCode::kCorrupt,
                         "shared memory from the peer: not a sealed file of {} bytes", bytes);
    }
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        return MakeError(ErrorCode::kIo, "shared memory of {} bytes: mmap: {}", bytes,
                         std::strerror(errno));
    }
    return ShmRegion(static_cast<std::byte*>(data), window_bytes);
}

ShmRegion::ShmRegion(ShmRegion&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), window_bytes_(other.window_bytes_) {}

ShmRegion::~ShmRegion() {
    if (data_ != nullptr) ::munmap(data_, 2 * DirectionBytes(window_bytes_));
}

std::unique_ptr<BaseLink> MakeShmLink(Progress& progress, PeerName peer, ShmRegion region,
                                      Fd socket, bool lower) {
    return std::make_unique<ShmLink>(progress, std::move(peer), std::move(region),
                                     std::move(socket), lower);
}

}  // namespace weft::net
