#include "coll/link_probe.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace weft::coll {
namespace {

// Without a name, so errors name the phase of the job.
const net::OpTag kProbeTag;

enum Flag : int { kRequestFlag, kAnswerFlag, kPingFlag, kFlowFlag, kCreditFlag };

// The end of a window holds the leader's requests.
constexpr size_t kRequestBytes = 64;
constexpr size_t kStrideBytes = 64;
// Puts in flight, and the number of credits that cover them.
constexpr uint64_t kDepth = 128;
constexpr uint64_t kCreditsInFlight = 4;

constexpr uint64_t kFirstRounds = 2;
constexpr uint64_t kCalibrationRounds = 20;
constexpr double kCalibrationS = 0.02;
constexpr uint64_t kCheckedRounds = 3;
// Rounds between two checks of the monitor.
constexpr uint64_t kRoundsALook = 256;
// Rounds, and batches of puts, between two checks of the clock. If another program uses the core, a
// round may take thousands of times longer than the first rounds.
constexpr uint64_t kRoundsAPart = 64;
constexpr uint64_t kGroupsAPart = 128;

// Runs `count` iterations by `run(part)`, at most `a_part` at once, and stops early when the time
// far exceeds `budget` (IsSpent). Returns the number of iterations.
template <typename Run>
Result<uint64_t> InParts(uint64_t count, uint64_t a_part, const Budget& budget, const Run& run) {
    const int64_t begin_ns = NowNs();
    uint64_t done = 0;
    while (done < count && (done == 0 || !IsSpent(budget, begin_ns))) {
        const uint64_t part = std::min(a_part, count - done);
        WEFT_TRY(run(part));
        done += part;
    }
    return done;
}

std::byte ByteOf(size_t at, uint64_t message) {
    return static_cast<std::byte>(at * 31 + (at >> 8) * 7 + message * 17 + 1);
}

}  // namespace

size_t LinkProbe::MostBytes(size_t window_bytes) {
    return window_bytes < 2 * kRequestBytes ? 0 : window_bytes - kRequestBytes;
}

LinkProbe::LinkProbe(net::Link& link, const net::PeerMonitor* monitor, int64_t timeout_ms)
    : link_(link), monitor_(monitor), timeout_ms_(timeout_ms) {}

int64_t LinkProbe::TakeErrors() {
    return std::exchange(errors_, 0);
}

Status LinkProbe::CheckMonitor() const {
    if (monitor_ != nullptr && monitor_->Failed()) return monitor_->FailureDuring(kProbeTag);
    return {};
}

Status LinkProbe::Reserve(size_t bytes) {
    const size_t most = MostBytes(link_.window_bytes());
    if (bytes > most) {
        return MakeError(ErrorCode::kUsage, "{}: a put of {} bytes; its window takes at most {}",
                         link_.peer().Text(), bytes, most);
    }
    source_.resize(std::max(source_.size(), bytes));
    return {};
}

Status LinkProbe::Put(size_t offset, size_t bytes, int flag, uint64_t value) {
    return link_.Put(offset, {}, std::span(source_).first(bytes), flag, value, kProbeTag,
                     Deadline::In(timeout_ms_));
}

Status LinkProbe::Wait(int flag, uint64_t value) {
    return link_.Wait(flag, value, kProbeTag, Deadline::In(timeout_ms_));
}

// The leader sends the next request, and waits until the other rank has read it.
Status LinkProbe::Ask(const Request& request) {
    std::array<std::byte, sizeof request> bytes;
    std::memcpy(bytes.data(), &request, sizeof request);
    ++asked_;
    WEFT_TRY(link_.Put(link_.window_bytes() - kRequestBytes, bytes, {}, kRequestFlag, asked_,
                       kProbeTag, Deadline::In(timeout_ms_)));
    WEFT_TRY(Wait(kAnswerFlag, asked_));
    return CheckMonitor();
}

Result<LinkProbe::Request> LinkProbe::Take() {
    ++asked_;
    WEFT_TRY(Wait(kRequestFlag, asked_));
    Request request;
    std::memcpy(&request, link_.window().last(kRequestBytes).data(), sizeof request);
    if (request.order > Order::kRun || request.count > static_cast<uint64_t>(kMostIterations)) {
        return MakeError(ErrorCode::kCorrupt, "{}: an invalid probe request", link_.peer().Text());
    }
    WEFT_TRY(Put(0, 0, kAnswerFlag, asked_));
    return request;
}

void LinkProbe::Fill(size_t bytes, uint64_t message) {
    for (size_t i = 0; i < bytes; ++i) source_[i] = ByteOf(i, message);
}

void LinkProbe::Check(size_t offset, size_t bytes, uint64_t message) {
    const auto got = link_.window().subspan(offset, bytes);
    for (size_t i = 0; i < bytes; ++i) errors_ += got[i] != ByteOf(i, message) ? 1 : 0;
}

// ---- Latency ------------------------------------------------------------------------------------

Status LinkProbe::PingPong(size_t bytes, uint64_t count, bool lead, bool check,
                           std::vector<float>* us) {
    int64_t last_ns = NowNs();
    for (uint64_t i = 0; i < count; ++i) {
        const uint64_t message = ++pings_;
        if (check) Fill(bytes, message);
        if (lead) WEFT_TRY(Put(0, bytes, kPingFlag, message));
        WEFT_TRY(Wait(kPingFlag, message));
        if (check) Check(0, bytes, message);
        if (!lead) WEFT_TRY(Put(0, bytes, kPingFlag, message));
        if (us != nullptr) {
            const int64_t now_ns = NowNs();
            us->push_back(static_cast<float>(now_ns - last_ns) / 2e3f);
            last_ns = now_ns;
        }
        if (i % kRoundsALook == 0) WEFT_TRY(CheckMonitor());
    }
    return {};
}

Result<Timings> LinkProbe::Latency(size_t bytes, const Budget& budget, bool lead) {
    WEFT_TRY(Reserve(bytes));
    if (!lead) {
        for (;;) {
            WEFT_ASSIGN(const Request request, Take());
            if (request.order == Order::kEnd) return Timings();
            WEFT_TRY(
                PingPong(bytes, request.count, false, request.order == Order::kCheck, nullptr));
        }
    }
    const auto run = [&](Order order, uint64_t count, std::vector<float>* us) -> Status {
        WEFT_TRY(Ask({order, count}));
        return PingPong(bytes, count, true, order == Order::kCheck, us);
    };
    WEFT_TRY(run(Order::kCheck, kCheckedRounds, nullptr));
    uint64_t rounds = kFirstRounds;
    int64_t begin_ns = NowNs();
    WEFT_TRY(run(Order::kRun, rounds, nullptr));
    double each_s = SecondsSince(begin_ns) / static_cast<double>(rounds);
    if (each_s * kCalibrationRounds < kCalibrationS) {
        rounds = kCalibrationRounds;
        begin_ns = NowNs();
        WEFT_TRY(run(Order::kRun, rounds, nullptr));
        each_s = SecondsSince(begin_ns) / static_cast<double>(rounds);
    }
    const auto count = static_cast<uint64_t>(IterationsFor(budget, each_s));
    std::vector<float> us;
    us.reserve(count);
    const auto rounds_of = [&](std::vector<float>* into) {
        return [&, into](uint64_t part) { return run(Order::kRun, part, into); };
    };
    if (each_s < 1e-3) {
        WEFT_TRY(InParts(count / 10 + 1, kRoundsAPart, budget, rounds_of(nullptr)));
    }
    WEFT_TRY(InParts(count, kRoundsAPart, budget, rounds_of(&us)));
    WEFT_TRY(Ask({Order::kEnd, 0}));
    return Summarize(us);
}

// ---- Bandwidth ----------------------------------------------------------------------------------

uint64_t LinkProbe::SlotsFor(size_t bytes) const {
    const size_t stride = (bytes + kStrideBytes - 1) / kStrideBytes * kStrideBytes;
    const uint64_t fit = MostBytes(link_.window_bytes()) / std::max<size_t>(1, stride);
    const uint64_t slots = std::clamp<uint64_t>(fit, 1, kDepth);
    return slots < kCreditsInFlight ? slots : slots / kCreditsInFlight * kCreditsInFlight;
}

// The leader puts `count` times into slots of the other rank's window, in batches; a credit answers
// each batch.
Status LinkProbe::Flow(size_t bytes, uint64_t count, bool lead, bool check, Marks* marks) {
    const size_t stride = (bytes + kStrideBytes - 1) / kStrideBytes * kStrideBytes;
    const uint64_t slots = SlotsFor(bytes);
    const uint64_t a_credit = std::max<uint64_t>(1, slots / kCreditsInFlight);
    const uint64_t first = flowed_;
    const auto offset_of = [&](uint64_t i) { return static_cast<size_t>(i % slots) * stride; };
    uint64_t given_back = 0;  // puts of this flow whose credit arrived
    const auto take_credit = [&]() -> Status {
        WEFT_TRY(Wait(kCreditFlag, ++credited_));
        given_back = std::min(count, given_back + a_credit);
        if (marks != nullptr) marks->credited_ns.push_back(NowNs());
        return CheckMonitor();
    };
    for (uint64_t i = 0; i < count; ++i) {
        const uint64_t message = first + i + 1;
        if (lead) {
            while (i - given_back >= slots) WEFT_TRY(take_credit());
            if (check) Fill(bytes, message);
            if (marks != nullptr && i % a_credit == 0) marks->posted_ns.push_back(NowNs());
            WEFT_TRY(Put(offset_of(i), bytes, kFlowFlag, message));
        } else if ((i + 1) % a_credit == 0 || i + 1 == count) {
            WEFT_TRY(Wait(kFlowFlag, message));
            for (uint64_t k = i / a_credit * a_credit; check && k <= i; ++k) {
                Check(offset_of(k), bytes, first + k + 1);
            }
            WEFT_TRY(Put(0, 0, kCreditFlag, ++credited_));
        }
    }
    while (lead && given_back < count) WEFT_TRY(take_credit());
    flowed_ += count;
    return {};
}

Result<Bandwidth> LinkProbe::Stream(size_t bytes, const Budget& budget, bool lead) {
    WEFT_TRY(Reserve(bytes));
    if (!lead) {
        for (;;) {
            WEFT_ASSIGN(const Request request, Take());
            if (request.order == Order::kEnd) return Bandwidth();
            WEFT_TRY(Flow(bytes, request.count, false, request.order == Order::kCheck, nullptr));
        }
    }
    const auto run = [&](Order order, uint64_t count, Marks* marks) -> Status {
        WEFT_TRY(Ask({order, count}));
        return Flow(bytes, count, true, order == Order::kCheck, marks);
    };
    const uint64_t slots = SlotsFor(bytes);
    const uint64_t a_credit = std::max<uint64_t>(1, slots / kCreditsInFlight);
    WEFT_TRY(run(Order::kCheck, slots, nullptr));
    const int64_t begin_ns = NowNs();
    WEFT_TRY(run(Order::kRun, slots, nullptr));
    const double each_s = SecondsSince(begin_ns) / static_cast<double>(slots);
    const auto count = static_cast<uint64_t>(IterationsFor(budget, each_s));
    Marks marks;
    marks.posted_ns.reserve(count / a_credit + 1);
    marks.credited_ns.reserve(count / a_credit + 1);
    const auto puts_of = [&](Marks* into) {
        return [&, into](uint64_t part) { return run(Order::kRun, part, into); };
    };
    const uint64_t a_part = kGroupsAPart * a_credit;
    if (each_s < 1e-3) {
        WEFT_TRY(InParts(std::min(count, count / 10 + slots), a_part, budget, puts_of(nullptr)));
    }
    WEFT_ASSIGN(const uint64_t done, InParts(count, a_part, budget, puts_of(&marks)));
    WEFT_TRY(Ask({Order::kEnd, 0}));

    Bandwidth result;
    result.iterations = static_cast<int64_t>(done);
    const int64_t took_ns = marks.credited_ns.back() - marks.posted_ns.front();
    result.messages_s = static_cast<double>(done) / static_cast<double>(took_ns) * 1e9;
    result.average_bytes_s = result.messages_s * static_cast<double>(bytes);
    AddStretches(marks, a_credit, bytes, result);
    return result;
}

// For every stretch of batches in flight together: from its first put to its last credit.
void LinkProbe::AddStretches(const Marks& marks, uint64_t a_credit, size_t bytes,
                             Bandwidth& result) {
    const auto count = static_cast<uint64_t>(result.iterations);
    const size_t groups = marks.credited_ns.size();
    const size_t stretch = std::min<size_t>(groups, kCreditsInFlight);
    std::vector<float> us;
    result.peak_bytes_s = result.average_bytes_s;
    for (size_t i = 0; i + stretch <= groups; ++i) {
        const uint64_t puts = std::min(count, (i + stretch) * a_credit) - i * a_credit;
        const int64_t took_ns = marks.credited_ns[i + stretch - 1] - marks.posted_ns[i];
        const double each_s = static_cast<double>(took_ns) * 1e-9 / static_cast<double>(puts);
        us.push_back(static_cast<float>(each_s * 1e6));
        result.peak_bytes_s = std::max(result.peak_bytes_s, static_cast<double>(bytes) / each_s);
    }
    result.timings = Summarize(us);
}

}  // namespace weft::coll
