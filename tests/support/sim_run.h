// Runs a plan: every rank runs its program on a simulated network, and every result is checked.
//
// Invariants: every rank ends in time; a collective without an error has the right result, with the
// same bits on all ranks; an error names a rank to blame; after an error the Comm repeats it; a
// plan without a harmful fault ends without an error.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/hash.h"
#include "coll/comm.h"
#include "support/sim_net.h"

namespace weft::test {

class SimRun {
  public:
    // Returns "", or the violated invariant. log: receives every event, if not null.
    std::string Run(const SimPlan& plan, std::string* log = nullptr);
    uint64_t events() const { return events_; }
    int errors() const { return errors_; }  // ranks that ended with an error, over all runs

  private:
    struct Sum {
        bool known = false;
        uint64_t bits = 0;  // of the first rank
        int first = 0;
    };

    void Rank(int rank);
    // False: the rank was killed.
    bool Compute(int rank, size_t op);
    Status Do(coll::Comm& comm, int rank, size_t index, const net::OpTag& tag);
    template <typename T>
    Status Reduce(coll::Comm& comm, int rank, size_t index, const net::OpTag& tag);
    Status ScatterSum(coll::Comm& comm, int rank, size_t index, const net::OpTag& tag);
    Status Gather(coll::Comm& comm, int rank, size_t index, const net::OpTag& tag);
    Status ToAll(coll::Comm& comm, int rank, size_t index, const net::OpTag& tag);
    template <typename T>
    void CheckSum(int rank, size_t index, size_t begin, std::span<const T> sum);
    Status Cast(coll::Comm& comm, int rank, size_t index, const net::OpTag& tag);
    Status SendRecv(coll::Comm& comm, int rank, size_t index, const net::OpTag& tag);
    void Failed(coll::Comm& comm, int rank, const Error& error, const net::OpTag& tag);
    void CheckName(int rank, const Error& error, const char* who);
    uint32_t ToBlame(int rank) const;
    bool Harmless() const;
    int64_t LongestNs() const;
    void Wrong(std::string what) {
        net_.Log("WRONG: " + what);
        if (wrong_.empty()) wrong_ = std::move(what);
    }
    SimRandom Numbers(size_t index, int rank) const {
        return SimRandom(plan_->seed * 1000003 + index * 64 + static_cast<uint64_t>(rank));
    }

    const SimPlan* plan_ = nullptr;
    SimNet net_;
    std::string wrong_;
    std::vector<Sum> sums_;
    std::array<std::vector<double>, kSimRanks> doubles_;
    std::array<std::vector<float>, kSimRanks> floats_;
    std::array<std::vector<std::byte>, kSimRanks> bytes_;
    uint64_t events_ = 0;
    int errors_ = 0;
};

inline std::string SimRun::Run(const SimPlan& plan, std::string* log) {
    plan_ = &plan;
    wrong_.clear();
    sums_.assign(plan.program.size(), {});
    Timeline timeline;
    net_.Begin(plan, timeline, log);
    for (int r = 0; r < plan.ranks; r++) {
        net_.control(r).Start(timeline, net_, net_.task(r), r, plan.ranks, plan.timeout_ms);
        net_.task(r).Start(timeline, [this, r] { Rank(r); });
    }
    const auto all_done = [&] {
        for (int r = 0; r < plan.ranks; r++) {
            // A rank that is stopped permanently does not survive.
            const bool lost = net_.task(r).stopped() && plan.length_ns == SimTask::kNever;
            if (!net_.task(r).done() && !lost) return false;
        }
        return true;
    };
    const int64_t end = timeline.now() + LongestNs();
    while (!all_done() && timeline.now() <= end && timeline.Step()) {
    }
    for (int r = 0; r < plan.ranks; r++) {
        if (net_.task(r).done()) continue;
        if (!net_.task(r).stopped()) Wrong(fmt::format("rank {} hangs", r));
        net_.task(r).Kill();
    }
    while (true) {
        bool done = true;
        for (int r = 0; r < plan.ranks; r++) done = done && net_.task(r).done();
        if (done || !timeline.Step()) break;
    }
    net_.End();
    events_ += timeline.events();
    return wrong_;
}

// Upper bound: the program, the fault, and all deadlines one after another.
inline int64_t SimRun::LongestNs() const {
    const int64_t timeout = plan_->timeout_ms * kMs;
    int64_t longest = static_cast<int64_t>(plan_->program.size()) *
                      (plan_->compute_ns + 40 * (plan_->latency_ns + plan_->jitter_ns + kMs));
    longest += plan_->at_ns;
    if (plan_->length_ns != SimTask::kNever) longest += plan_->length_ns;
    return longest + 4 * timeout + 3000 * kMs;
}

inline void SimRun::Rank(int rank) {
    const coll::Channel channel{.window_begin = 0, .window_bytes = plan_->window_bytes};
    std::vector<int> everyone;
    for (int r = 0; r < plan_->ranks; r++) everyone.push_back(r);
    auto comm = coll::Comm::Make(net_.fabric(rank), everyone, channel, plan_->timeout_ms).value();
    for (size_t i = 0; i < plan_->program.size(); i++) {
        const net::OpTag tag{"op", static_cast<int64_t>(i), 1};
        if (!Compute(rank, i)) return;
        const Status status = Do(*comm, rank, i, tag);
        if (net_.task(rank).killed()) return;
        if (!status.ok()) return Failed(*comm, rank, status.error(), tag);
        if (net_.logging()) net_.Log(fmt::format("rank {} has done op {}", rank, i));
        net_.control(rank).Progress();
    }
}

inline bool SimRun::Compute(int rank, size_t op) {
    SimTask& task = net_.task(rank);
    const bool slow = plan_->fault == SimFault::kSlow && rank == plan_->a &&
                      op == plan_->at % plan_->program.size();
    const int64_t now = net_.timeline().now();
    int64_t length = 0;
    if (plan_->compute_ns > 0) length = Numbers(op, rank + 32).Between(0, plan_->compute_ns);
    if (slow) length += plan_->length_ns;
    const int64_t step = plan_->timeout_ms * kMs / 5;
    while (net_.timeline().now() < now + length) {
        const int64_t next = std::min(now + length, net_.timeline().now() + step);
        if (!task.SleepUntil(next)) return false;
        net_.control(rank).Progress();
    }
    return !task.killed();
}

inline Status SimRun::Do(coll::Comm& comm, int rank, size_t index, const net::OpTag& tag) {
    switch (plan_->program[index].kind) {
        case SimKind::kReduce32: return Reduce<float>(comm, rank, index, tag);
        case SimKind::kReduce64: return Reduce<double>(comm, rank, index, tag);
        case SimKind::kScatterSum: return ScatterSum(comm, rank, index, tag);
        case SimKind::kToAll: return ToAll(comm, rank, index, tag);
        case SimKind::kGather: return Gather(comm, rank, index, tag);
        case SimKind::kCast: return Cast(comm, rank, index, tag);
        case SimKind::kMeet: return comm.Barrier(tag);
        case SimKind::kSendRecv: return SendRecv(comm, rank, index, tag);
    }
    return {};
}

// Whole numbers, or numbers whose sum depends on the order of addition.
template <typename T>
T SimNumber(SimRandom& random, bool exact) {
    const uint64_t bits = random.Next();
    const T whole = static_cast<T>(static_cast<int32_t>(bits % 20011) - 10005);
    if (exact) return whole;
    const T scale[] = {T(0x1p-12), T(0x1p-7), T(0x1p-3), T(1), T(0x1p5), T(0x1p10), T(0x1p17), 3};
    return whole * scale[bits >> 61] / T(3);
}

template <typename T>
Status SimRun::Reduce(coll::Comm& comm, int rank, size_t index, const net::OpTag& tag) {
    const SimOp& op = plan_->program[index];
    std::vector<T>* data;
    if constexpr (sizeof(T) == 4)
        data = &floats_[static_cast<size_t>(rank)];
    else
        data = &doubles_[static_cast<size_t>(rank)];
    data->resize(op.count);
    SimRandom mine = Numbers(index, rank);
    for (T& value : *data) value = SimNumber<T>(mine, op.exact);
    WEFT_TRY(comm.AllReduce(std::span(*data), tag, op.choice));
    Sum& sum = sums_[index];
    const uint64_t bits = Checksum64(std::as_bytes(std::span(*data)));
    if (sum.known) {
        if (bits != sum.bits) {
            Wrong(
                fmt::format("op {}: ranks {} and {} hold different bits", index, rank, sum.first));
        }
        return {};
    }
    sum = {true, bits, rank};
    if (op.choice.wire == coll::WireType::kFull) CheckSum<T>(rank, index, 0, *data);
    return {};
}

// sum: over the values from `begin` on.
template <typename T>
void SimRun::CheckSum(int rank, size_t index, size_t begin, std::span<const T> sum) {
    const bool exact = plan_->program[index].exact;
    std::vector<SimRandom> all;
    for (int r = 0; r < plan_->ranks; r++) {
        all.push_back(Numbers(index, r));
        all.back().Skip(begin);
    }
    // Each addition rounds once. The reference is exact, or rounds as often in long double.
    const double round = (sizeof(T) == 4 ? 0x1p-24 : 0x1p-53) * (plan_->ranks + 1);
    for (size_t i = 0; i < sum.size(); i++) {
        long double right = 0;
        long double size = 0;
        for (SimRandom& random : all) {
            const long double value = SimNumber<T>(random, exact);
            right += value;
            size += std::fabs(value);
        }
        const long double error = std::fabs(static_cast<long double>(sum[i]) - right);
        if (!(error <= (exact ? 0 : size * round))) {
            return Wrong(fmt::format("op {}: rank {} has {} at {}, expected {}", index, rank,
                                     sum[i], begin + i, static_cast<double>(right)));
        }
    }
}

inline Status SimRun::ScatterSum(coll::Comm& comm, int rank, size_t index, const net::OpTag& tag) {
    const SimOp& op = plan_->program[index];
    std::vector<float>& data = floats_[static_cast<size_t>(rank)];
    size_t total = 0;
    size_t begin = 0;
    for (size_t r = 0; r < op.counts.size(); r++) {
        if (r < static_cast<size_t>(rank)) begin += op.counts[r];
        total += op.counts[r];
    }
    data.resize(total);
    SimRandom mine = Numbers(index, rank);
    for (float& value : data) value = SimNumber<float>(mine, op.exact);
    WEFT_TRY(comm.ReduceScatter(data, op.counts, tag, op.choice.algorithm));
    const size_t own = op.counts[static_cast<size_t>(rank)];
    CheckSum<float>(rank, index, begin, std::span(data).subspan(begin, own));
    return {};
}

// Rank a's byte i for rank b is a function of a, b and i.
inline Status SimRun::ToAll(coll::Comm& comm, int rank, size_t index, const net::OpTag& tag) {
    const SimOp& op = plan_->program[index];
    const int n = plan_->ranks;
    const auto count = [&](int from, int to) {
        return op.counts[static_cast<size_t>(from * n + to)];
    };
    const auto number = [&](int from, int to, size_t i) {
        return static_cast<std::byte>(static_cast<size_t>(from * 37 + to * 11) + i * 7 + index);
    };
    std::vector<std::byte> out;
    std::vector<size_t> out_counts;
    std::vector<size_t> in_counts;
    size_t total = 0;
    for (int peer = 0; peer < n; peer++) {
        out_counts.push_back(count(rank, peer));
        in_counts.push_back(count(peer, rank));
        total += in_counts.back();
        for (size_t i = 0; i < out_counts.back(); i++) out.push_back(number(rank, peer, i));
    }
    std::vector<std::byte>& in = bytes_[static_cast<size_t>(rank)];
    in.assign(total, std::byte{0});
    WEFT_TRY(comm.AllToAll(out, out_counts, in, in_counts, tag));
    size_t wrong = 0;
    size_t at = 0;
    for (int peer = 0; peer < n; peer++) {
        for (size_t i = 0; i < count(peer, rank); i++, at++)
            wrong += in[at] != number(peer, rank, i);
    }
    if (wrong > 0) Wrong(fmt::format("op {}: rank {} got {} wrong bytes", index, rank, wrong));
    return {};
}

inline Status SimRun::Gather(coll::Comm& comm, int rank, size_t index, const net::OpTag& tag) {
    const SimOp& op = plan_->program[index];
    size_t total = 0;
    for (size_t count : op.counts) total += count;
    std::vector<std::byte>& all = bytes_[static_cast<size_t>(rank)];
    all.assign(total, std::byte{0});
    const auto each = [&](auto use) {
        size_t at = 0;
        for (int r = 0; r < plan_->ranks; r++) {
            SimRandom random = Numbers(index, r);
            for (size_t i = 0; i < op.counts[static_cast<size_t>(r)]; i++, at++) {
                use(r, at, static_cast<std::byte>(random.Next()));
            }
        }
    };
    each([&](int r, size_t at, std::byte value) {
        if (r == rank) all[at] = value;
    });
    WEFT_TRY(comm.AllGather(all, op.counts, tag, op.choice.algorithm));
    size_t wrong = 0;
    each([&](int, size_t at, std::byte value) { wrong += all[at] != value; });
    if (wrong > 0) Wrong(fmt::format("op {}: rank {} gathered {} wrong bytes", index, rank, wrong));
    return {};
}

inline Status SimRun::Cast(coll::Comm& comm, int rank, size_t index, const net::OpTag& tag) {
    const SimOp& op = plan_->program[index];
    std::vector<std::byte>& data = bytes_[static_cast<size_t>(rank)];
    data.assign(op.count, std::byte{0});
    SimRandom random = Numbers(index, op.root);
    if (rank == op.root) {
        for (std::byte& value : data) value = static_cast<std::byte>(random.Next());
    }
    WEFT_TRY(comm.Broadcast(data, op.root, tag));
    random = Numbers(index, op.root);
    size_t wrong = 0;
    for (std::byte value : data) wrong += value != static_cast<std::byte>(random.Next());
    if (wrong > 0) Wrong(fmt::format("op {}: rank {} was cast {} wrong bytes", index, rank, wrong));
    return {};
}

inline Status SimRun::SendRecv(coll::Comm& comm, int rank, size_t index, const net::OpTag& tag) {
    const SimOp& op = plan_->program[index];
    if (rank != op.root && rank != op.to) return {};
    std::vector<std::byte>& data = bytes_[static_cast<size_t>(rank)];
    data.assign(op.count, std::byte{0});
    SimRandom random = Numbers(index, op.root);
    if (rank == op.root) {
        for (std::byte& value : data) value = static_cast<std::byte>(random.Next());
        return comm.Send(data, op.to, tag);
    }
    WEFT_TRY(comm.Recv(data, op.root, tag));
    size_t wrong = 0;
    for (std::byte value : data) wrong += value != static_cast<std::byte>(random.Next());
    if (wrong > 0) Wrong(fmt::format("op {}: rank {} got {} wrong bytes", index, rank, wrong));
    return {};
}

// ---- Errors -------------------------------------------------------------------------------------

inline void SimRun::Failed(coll::Comm& comm, int rank, const Error& error, const net::OpTag& tag) {
    errors_++;
    if (net_.logging()) net_.Log(fmt::format("rank {} fails: {}", rank, error.message));
    CheckName(rank, error, "collective");
    const Status again = comm.Barrier(tag);
    if (again.ok() || again.error().message != error.message) {
        Wrong(fmt::format("rank {}: the error is not repeated", rank));
    }
    const Error verdict = net_.control(rank).ReportFailure(error);
    if (net_.task(rank).killed()) return;
    if (net_.logging()) net_.Log(fmt::format("rank {} leaves: {}", rank, verdict.message));
    CheckName(rank, verdict, "verdict");
    net_.LeaveEarly(rank);
}

inline void SimRun::CheckName(int rank, const Error& error, const char* who) {
    if (Harmless()) {
        return Wrong(fmt::format("false alarm of rank {} ({}): {}", rank, who, error.message));
    }
    const std::string& text = error.message;
    int named = -1;
    if (text.rfind("rank ", 0) == 0 && text.size() > 5) named = text[5] - '0';
    if (named < 0 || named >= plan_->ranks || ((ToBlame(rank) >> named) & 1) == 0) {
        Wrong(fmt::format("rank {} blames the wrong rank ({}): {}", rank, who, text));
    }
}

// Ranks that an error on `rank` may name: one bit per rank.
inline uint32_t SimRun::ToBlame(int rank) const {
    const uint32_t all = (1u << plan_->ranks) - 1;
    const bool passes = plan_->length_ns != SimTask::kNever;
    switch (plan_->fault) {
        case SimFault::kNone:
        case SimFault::kSlow: return 0;
        case SimFault::kDelay:
        case SimFault::kReorder:
            // Data that arrives while rank 0 judges the stall lets other ranks continue, so the
            // verdict may blame any of them.
            if (plan_->length_ns < plan_->timeout_ms * kMs + 1500 * kMs) return all;
            [[fallthrough]];
        case SimFault::kDrop:
        case SimFault::kDuplicate:
        case SimFault::kTruncate:
        case SimFault::kCorrupt:
        case SimFault::kCut: return 1u << plan_->a | 1u << plan_->b;
        case SimFault::kPartition:
            // After the partition ends, each side learns the other's verdict.
            if (passes) return all;
            return ((plan_->side >> rank) & 1) != 0 ? all & ~plan_->side : plan_->side;
        case SimFault::kCrash:
        case SimFault::kPowerOff: return 1u << plan_->a;
        // A rank that wakes after its deadline may blame any rank.
        case SimFault::kStop:
            return rank == plan_->a || (passes && plan_->a == 0) ? all : 1u << plan_->a;
    }
    return 0;
}

// No fault of the plan excuses an error.
inline bool SimRun::Harmless() const {
    const bool brief = plan_->length_ns <= plan_->timeout_ms * kMs / 2;
    switch (plan_->fault) {
        case SimFault::kNone:
        case SimFault::kSlow: return true;
        case SimFault::kDelay:
        case SimFault::kPartition:
        case SimFault::kStop: return brief || !net_.fired();
        case SimFault::kDrop:
        case SimFault::kDuplicate:
        case SimFault::kReorder:
        case SimFault::kTruncate:
        case SimFault::kCorrupt:
        case SimFault::kCut:
        case SimFault::kCrash:
        case SimFault::kPowerOff: return !net_.fired();
    }
    return false;
}

}  // namespace weft::test
