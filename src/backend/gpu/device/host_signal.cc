#include "backend/gpu/device/host_signal.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "backend/gpu/device/kernel_cache.h"
#include "base/check.h"
#include "net/wait_policy.h"

namespace weft::backend::on_gpu {
namespace {

// Words of the gate (exchange.glsl).
constexpr uint32_t kArrivedWord = 0, kGaveUpWord = 16;
constexpr uint32_t kOpenWord = 0, kBaseWord = 16, kMostPollsWord = 17, kStateLowWord = 18,
                   kStateHighWord = 19, kWindowsLowWord = 20, kWindowsHighWord = 21;
constexpr uint64_t kGateBytes = 256, kInboxBytes = 256;
constexpr uint32_t kExchangeInvocations = 256;

constexpr uint32_t kTrialFloats = 512;
constexpr uint32_t kTrialsAtOnce = 20;
constexpr int kTimedSubmissions = 31;
constexpr int64_t kTrialMs = 30'000;
// A wait long enough to be timed beside the cost of a submission, and the range of polls to try.
constexpr double kTimedSeconds = 0.02;
constexpr uint32_t kLeastPolls = 1 << 12, kMostPolls = 240'000'000;

// A wait polls this many turns without a pause, and checks at this interval whether the device has
// finished.
constexpr int kTurns = 2000;
constexpr int64_t kAskNs = 1'000'000;

struct ExchangeArgs {
    HostSignal::Head head;
    uint64_t sum;
};
struct HandOverArgs {
    uint64_t x, y;
    uint32_t count;
};
struct PostArgs {
    uint64_t gate, inbox;
    uint32_t index;
};
static_assert(sizeof(HostSignal::Head) == 40 && sizeof(ExchangeArgs) == 48);

std::atomic_ref<uint32_t> Shared(uint32_t* word) {
    return std::atomic_ref<uint32_t>(*word);
}

// Writes a word before DrainWrites(). (A stronger order would lock the bus for a word of a card.)
void Put(uint32_t* word, uint32_t value) {
    Shared(word).store(value, std::memory_order_relaxed);
}

// Writes to a card's mapped memory pass through processor buffers that keep no order. After this
// call, earlier writes arrive before later ones.
void DrainWrites() {
#if defined(__x86_64__)
    _mm_sfence();
#elif defined(__aarch64__)
    asm volatile("dsb st" ::: "memory");
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

uint32_t* HostSignal::Word(uint32_t index) const {
    return reinterpret_cast<uint32_t*>(words_.host()) + index;
}
uint32_t* HostSignal::InboxWord(uint32_t index) const {
    return reinterpret_cast<uint32_t*>(inbox_.host()) + index;
}

Result<std::unique_ptr<HostSignal>> HostSignal::Make(gpu::Device& device, KernelCache& kernels,
                                                     double patience_seconds) {
    std::unique_ptr<HostSignal> signal;
    for (const gpu::Place inbox : {gpu::Place::kInbox, gpu::Place::kMeeting}) {
        signal.reset(new HostSignal(device, patience_seconds));
        WEFT_TRY(signal->Allocate(kernels, inbox));
        WEFT_TRY(signal->Try());
        if (signal->works() || device.description().unified) break;
    }
    return signal;
}

Status HostSignal::Allocate(KernelCache& kernels, gpu::Place inbox) {
    WEFT_ASSIGN(words_, device_.Allocate(kGateBytes, gpu::Place::kMeeting));
    WEFT_ASSIGN(inbox_, device_.Allocate(kInboxBytes + kMostBytes, inbox));
    WEFT_ASSIGN(trial_, device_.Allocate(kMostBytes, gpu::Place::kDevice));
    WEFT_ASSIGN(trial_host_, device_.Allocate(kMostBytes, gpu::Place::kMeeting));
    std::fill_n(words_.host(), kGateBytes, std::byte{0});
    std::fill_n(inbox_.host(), kInboxBytes, std::byte{0});
    const uint64_t state = device_.stop_word().address();
    *InboxWord(kStateLowWord) = static_cast<uint32_t>(state);
    *InboxWord(kStateHighWord) = static_cast<uint32_t>(state >> 32);
    WEFT_ASSIGN(kernel_, kernels.Get("exchange", {kExchangeInvocations}, sizeof(ExchangeArgs), 0,
                                     Guard::kStopWord));
    WEFT_ASSIGN(hand_over_, kernels.Get("hand_over", {kExchangeInvocations}, sizeof(HandOverArgs),
                                        0, Guard::kStopWord));
    WEFT_ASSIGN(post_,
                kernels.Get("post", {kExchangeInvocations}, sizeof(PostArgs), 0, Guard::kStopWord));
    return {};
}

// ---- Recording ----------------------------------------------------------------------------------

void HostSignal::RecordBegin(gpu::Commands& commands) const {
    commands.Fill(device_.stop_word(), 0, device_.stop_word().size_bytes(), 0);
    commands.Barrier();
}

void HostSignal::Record(gpu::Commands& commands, const Exchange& exchange) const {
    ExchangeArgs args{{}, exchange.y};
    Record(commands, exchange, *kernel_, std::as_writable_bytes(std::span(&args, 1)));
}

void HostSignal::Record(gpu::Commands& commands, const Exchange& exchange,
                        const gpu::Kernel& kernel, std::span<std::byte> args) const {
    WEFT_CHECK(exchange.count <= kMostBytes / sizeof(float));
    const Head head{words_.address(), exchange.x,
                    exchange.to_host, inbox_.address() + kInboxBytes,
                    exchange.count,   exchange.index};
    std::memcpy(args.data(), &head, sizeof head);
    commands.Barrier();
    commands.Run(kernel, args, 1);
    commands.Barrier();
}

void HostSignal::RecordHanded(gpu::Commands& commands, uint64_t from, uint64_t to,
                              uint32_t words) const {
    const HandOverArgs args{from, to, words};
    const uint32_t groups = (words + kExchangeInvocations - 1) / kExchangeInvocations;
    commands.Run(*hand_over_, std::as_bytes(std::span(&args, 1)), std::max(groups, 1u));
}

void HostSignal::RecordPost(gpu::Commands& commands, uint32_t index) const {
    const PostArgs args{words_.address(), inbox_.address(), index};
    commands.Barrier();
    commands.Run(*post_, std::as_bytes(std::span(&args, 1)), 1);
}

// ---- Running ------------------------------------------------------------------------------------

// Numbers of exchanges continue from one submission to the next and wrap at 32 bits, so an old
// number opens no exchange.
void HostSignal::Begin(uint32_t exchanges, uint64_t windows) {
    base_ += exchanges_;
    exchanges_ = exchanges;
    Put(Word(kGaveUpWord), 0);
    Put(InboxWord(kBaseWord), base_);
    Put(InboxWord(kWindowsLowWord), static_cast<uint32_t>(windows));
    Put(InboxWord(kWindowsHighWord), static_cast<uint32_t>(windows >> 32));
    DrainWrites();
}

Result<bool> HostSignal::Await(uint32_t index, uint64_t last, const Deadline& deadline) {
    const uint32_t number = base_ + index;
    const auto arrived = [&] {
        return static_cast<int32_t>(Shared(Word(kArrivedWord)).load(std::memory_order_acquire) -
                                    number) >= 0;
    };
    int64_t requested_ns = NowNs();
    for (int turn = 0; !arrived(); ++turn) {
        if (turn < kTurns) {
            net::SpinPause();
            continue;
        }
        std::this_thread::yield();
        if (NowNs() - requested_ns < kAskNs) continue;
        requested_ns = NowNs();
        const Status done = device_.Wait(last, Deadline::In(0));
        // The device's writes are visible now, if not before.
        if (done.ok()) return arrived();
        if (done.error().code != ErrorCode::kTimeout) return done.error();
        if (deadline.expired()) {
            return MakeError(ErrorCode::kTimeout,
                             "exchange {} of a submission did not begin within "
                             "{} ms",
                             index, deadline.length_ms());
        }
    }
    return true;
}

void HostSignal::Open(uint32_t index, std::span<const std::byte> sum) {
    WEFT_CHECK(sum.size() <= kMostBytes);
    ++opened_;
    std::ranges::copy(sum, inbox_.host() + kInboxBytes);
    DrainWrites();
    Shared(InboxWord(kOpenWord)).store(base_ + index, std::memory_order_release);
    DrainWrites();
}

uint32_t HostSignal::GaveUp() const {
    return Shared(Word(kGaveUpWord)).load(std::memory_order_acquire);
}

// ---- The trial ----------------------------------------------------------------------------------

HostSignal::Exchange HostSignal::TrialExchange(uint32_t index, uint32_t floats) const {
    return {trial_.address(), trial_host_.address(), trial_.address(), floats, index};
}

// An exchange whose values a kernel handed over before; the exchange's own go elsewhere.
void HostSignal::RecordTrialHandOver(gpu::Commands& commands, uint32_t index) const {
    RecordHanded(commands, trial_.address(), trial_host_.address(), kTrialFloats);
    RecordPost(commands, index);
    Exchange exchange = TrialExchange(index, kTrialFloats);
    exchange.to_host += kTrialFloats * sizeof(float);
    Record(commands, exchange);
}

Status HostSignal::Try() {
    WEFT_TRY(TimeSubmissions());
    WEFT_TRY(Calibrate());
    if (works()) WEFT_TRY(TryExchanges(kMostBytes / sizeof(float), kLargeTrials, false));
    if (works()) WEFT_TRY(TryExchanges(kTrialFloats, kTrialsAtOnce, true));
    // (This trial comes last, because exchange_us_ keeps the time of the last trial.)
    if (works()) WEFT_TRY(TryExchanges(kTrialFloats, kTrials, false));
    opened_ = 0;
    return {};
}

Status HostSignal::TimeSubmissions() {
    WEFT_ASSIGN(const auto commands, device_.Record());
    RecordBegin(*commands);
    WEFT_TRY(commands->End());
    std::vector<double> seconds;
    for (int i = 0; i < kTimedSubmissions; ++i) {
        const int64_t begin_ns = NowNs();
        WEFT_ASSIGN(const uint64_t number, device_.Submit(*commands));
        WEFT_TRY(device_.Wait(number, Deadline::In(kTrialMs)));
        seconds.push_back(SecondsSince(begin_ns));
    }
    std::ranges::sort(seconds);
    submission_us_ = 1e6 * seconds[seconds.size() / 2];
    return {};
}

// Runs waits that the host does not answer, to find the number of polls in patience_seconds_. The
// exchange after such a wait must not begin.
Status HostSignal::Calibrate() {
    uint32_t polls = kLeastPolls;
    for (;;) {
        WEFT_ASSIGN(const double seconds, RunUnanswered(polls));
        if (!works()) return {};
        if (seconds >= kTimedSeconds || polls >= kMostPolls / 4) {
            const double rate = polls / std::max(seconds, 1e-9);
            SetMostPolls(static_cast<uint32_t>(
                std::clamp<double>(rate * patience_seconds_, kLeastPolls, kMostPolls)));
            return {};
        }
        polls *= 4;
    }
}

// May only be called while no submission runs.
void HostSignal::SetMostPolls(uint32_t polls) {
    Put(InboxWord(kMostPollsWord), polls);
    DrainWrites();
}

Result<double> HostSignal::RunUnanswered(uint32_t polls) {
    SetMostPolls(polls);
    WEFT_ASSIGN(const auto commands, device_.Record());
    RecordBegin(*commands);
    Record(*commands, TrialExchange(1, kTrialFloats));
    Record(*commands, TrialExchange(2, kTrialFloats));
    WEFT_TRY(commands->End());
    Begin(2);
    const int64_t begin_ns = NowNs();
    WEFT_ASSIGN(const uint64_t number, device_.Submit(*commands));
    WEFT_TRY(device_.Wait(number, Deadline::In(kTrialMs)));
    const uint32_t arrived = Shared(Word(kArrivedWord)).load(std::memory_order_acquire);
    if (GaveUp() != 1 || arrived != base_ + 1) why_ = "a wait without an answer did not end";
    return SecondsSince(begin_ns);
}

// The host adds 1 to all floats at each exchange, so the final value shows missed and late
// exchanges.
Status HostSignal::TryExchanges(uint32_t floats, int trials, bool handed) {
    WEFT_ASSIGN(const auto commands, device_.Record());
    RecordBegin(*commands);
    for (uint32_t i = 1; i <= kTrialsAtOnce; ++i) {
        handed ? RecordTrialHandOver(*commands, i) : Record(*commands, TrialExchange(i, floats));
    }
    WEFT_TRY(commands->End());
    WEFT_ASSIGN(const auto clear, device_.Record());
    clear->Fill(trial_, 0, trial_.size_bytes(), 0);
    WEFT_TRY(clear->End());
    WEFT_ASSIGN(const uint64_t cleared, device_.Submit(*clear));
    WEFT_TRY(device_.Wait(cleared, Deadline::In(kTrialMs)));
    std::vector<double> seconds;
    for (int done = 0; done < trials; done += kTrialsAtOnce) {
        const int64_t begin_ns = NowNs();
        WEFT_ASSIGN(const float got, RunTrials(*commands, kTrialsAtOnce, floats));
        seconds.push_back(SecondsSince(begin_ns));
        if (got != static_cast<float>(done + static_cast<int>(kTrialsAtOnce))) {
            why_ =
                fmt::format("of {} trial exchanges of {} bytes, one before exchange {} was missed",
                            trials, floats * sizeof(float), done + static_cast<int>(kTrialsAtOnce));
            return {};
        }
    }
    std::ranges::sort(seconds);
    exchange_us_ = 1e6 * seconds[seconds.size() / 2] / kTrialsAtOnce;
    return {};
}

// The value of all floats at the last exchange; -1: they differed, or an exchange was missed.
Result<float> HostSignal::RunTrials(const gpu::Commands& commands, uint32_t count,
                                    uint32_t floats) {
    Begin(count);
    WEFT_ASSIGN(const uint64_t number, device_.Submit(commands));
    const Deadline deadline = Deadline::In(kTrialMs);
    std::vector<float> sum(floats);
    bool same = true;
    for (uint32_t i = 1; i <= count; ++i) {
        WEFT_ASSIGN(const bool arrived, Await(i, number, deadline));
        if (!arrived) break;
        const auto* const in = reinterpret_cast<const float*>(trial_host_.host());
        for (uint32_t j = 0; j < floats; ++j) {
            same = same && in[j] == in[0];
            sum[j] = in[j] + 1;
        }
        Open(i, std::as_bytes(std::span(sum)));
    }
    WEFT_TRY(device_.Wait(number, deadline));
    return same && GaveUp() == 0 ? sum[0] : -1;
}

}  // namespace weft::backend::on_gpu
