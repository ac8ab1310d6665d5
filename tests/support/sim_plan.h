// A plan drawn from a seed: ranks, collectives, links, and the fault with its time.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>
#include <vector>

#include "coll/comm.h"
#include "support/sim_time.h"

namespace weft::test {

inline constexpr int64_t kUs = 1'000;
inline constexpr int64_t kMs = 1'000'000;

enum class SimFault {
    kNone,       // delays of all lengths within the deadline
    kSlow,       // a rank computes for several deadlines, and shows progress
    kDelay,      // one put, or one range of bytes, is late
    kDrop,       // is lost
    kDuplicate,  // arrives twice
    kReorder,    // arrives after later ones
    kTruncate,   // loses its end
    kCorrupt,    // has changed bytes
    kCut,        // a pair's connection breaks; both ranks stay alive
    kPartition,  // no byte passes between two sides
    kCrash,      // a process dies
    kPowerOff,   // a host dies without closing connections
    kStop,       // a process is stopped and may continue
};
inline constexpr int kSimFaults = 13;

inline const char* SimFaultName(SimFault fault) {
    switch (fault) {
        case SimFault::kNone: return "none";
        case SimFault::kSlow: return "slow";
        case SimFault::kDelay: return "delay";
        case SimFault::kDrop: return "drop";
        case SimFault::kDuplicate: return "duplicate";
        case SimFault::kReorder: return "reorder";
        case SimFault::kTruncate: return "truncate";
        case SimFault::kCorrupt: return "corrupt";
        case SimFault::kCut: return "cut";
        case SimFault::kPartition: return "partition";
        case SimFault::kCrash: return "crash";
        case SimFault::kPowerOff: return "power_off";
        case SimFault::kStop: return "stop";
    }
    return "?";
}

enum class SimKind {
    kReduce32,
    kReduce64,
    kScatterSum,  // reduce_scatter
    kGather,
    kToAll,  // all_to_all
    kCast,
    kMeet,
    kSendRecv
};

inline const char* SimKindName(SimKind kind) {
    switch (kind) {
        case SimKind::kReduce32: return "all_reduce f32";
        case SimKind::kReduce64: return "all_reduce f64";
        case SimKind::kScatterSum: return "reduce_scatter";
        case SimKind::kGather: return "all_gather";
        case SimKind::kToAll: return "all_to_all";
        case SimKind::kCast: return "broadcast";
        case SimKind::kMeet: return "barrier";
        case SimKind::kSendRecv: return "send";
    }
    return "?";
}

struct SimOp {
    SimKind kind = SimKind::kMeet;
    coll::Choice choice;
    size_t count = 0;            // elements; bytes of casts and sends
    int root = 0;                // root of a cast; sender
    int to = 0;                  // the receiver
    std::vector<size_t> counts;  // by rank; for all_to_all from * ranks + to
    bool exact = false;          // small whole numbers, whose sums are exact in any order
};

struct SimPlan {
    uint64_t seed = 0;
    int ranks = 2;
    bool bytes = false;     // frames in a stream of bytes; else puts
    bool checksum = false;  // over whole messages
    bool one_host = false;  // the parent reports a dead process; otherwise only its silence does
    int64_t timeout_ms = 1000;
    size_t window_bytes = 16384;
    int64_t latency_ns = 0;  // of one direction of a link
    int64_t jitter_ns = 0;
    int64_t compute_ns = 0;     // maximum between two operations
    std::array<int, 8> host{};  // by rank; ranks of one host have shm links
    std::vector<SimOp> program;

    SimFault fault = SimFault::kNone;
    bool by_count = false;  // a rank ends at one of its puts instead of at a time
    int a = 0;              // the rank; for link faults the sender
    int b = 1;              // the link's receiver
    uint32_t side = 0;      // one side of a partition, one bit per rank
    uint64_t at = 0;        // number of the put (or byte) of the link or rank
    int64_t at_ns = 0;      // or the time from the start
    int64_t length_ns = 0;  // duration; SimTask::kNever: permanent
    uint64_t amount = 0;    // byte or bit, or number of bytes

    std::string Text() const;
};

SimPlan PlanOfSeed(uint64_t seed);

// ---- How it is drawn ----------------------------------------------------------------------------

inline SimOp DrawOp(SimRandom& random, int ranks) {
    SimOp op;
    const auto n = static_cast<uint64_t>(ranks);
    const uint64_t what = random.Below(16);
    op.count = random.Below(48);
    if (random.OneIn(4)) op.count = random.Below(random.OneIn(4) ? 4000 : 600);
    op.root = static_cast<int>(random.Below(n));
    op.to = (op.root + 1 + static_cast<int>(random.Below(n - 1))) % ranks;
    op.choice.algorithm = coll::kAlgorithms[random.Below(coll::kAlgorithms.size())];
    if (random.OneIn(4)) op.choice.wire = coll::kWires[random.Below(coll::kWires.size())];
    op.exact = random.OneIn(2);
    const auto draw_counts = [&](uint64_t parts) {
        for (uint64_t i = 0; i < parts; i++) {
            op.counts.push_back(random.OneIn(4) ? 0 : random.Below(2 * op.count / n + 2));
        }
    };
    if (what < 5) {
        op.kind = SimKind::kReduce32;
    } else if (what < 7) {
        op.kind = SimKind::kReduce64;
    } else if (what < 9) {
        op.kind = SimKind::kScatterSum;
        draw_counts(n);
    } else if (what < 10) {
        op.kind = SimKind::kGather;
        draw_counts(n);
    } else if (what < 11) {
        op.kind = SimKind::kToAll;
        draw_counts(n * n);
    } else if (what < 13) {
        op.kind = SimKind::kCast;
    } else if (what < 14) {
        op.kind = SimKind::kMeet;
    } else {
        op.kind = SimKind::kSendRecv;
    }
    return op;
}

inline void DrawFault(SimRandom& random, SimPlan& plan) {
    const auto n = static_cast<uint64_t>(plan.ranks);
    const int64_t timeout_ns = plan.timeout_ms * kMs;
    plan.fault = static_cast<SimFault>(random.Below(kSimFaults));
    plan.a = static_cast<int>(random.Below(n));
    plan.b = (plan.a + 1 + static_cast<int>(random.Below(n - 1))) % plan.ranks;
    do plan.side = static_cast<uint32_t>(random.Below(uint64_t{1} << n));
    while (plan.side == 0 || plan.side == (1u << plan.ranks) - 1);
    plan.at = random.Below(plan.program.size() * 3 + 2);
    // About the duration of the program without the fault.
    const int64_t span = static_cast<int64_t>(plan.program.size()) *
                         (plan.compute_ns + 3 * plan.latency_ns + 2 * kUs);
    plan.at_ns = random.Between(0, span);
    plan.amount = random.Next();
    plan.by_count = random.OneIn(2);
    switch (random.Below(4)) {
        case 0: plan.length_ns = random.Between(0, 2 * plan.latency_ns + 20 * kUs); break;
        case 1: plan.length_ns = random.Between(0, timeout_ns / 2); break;
        case 2: plan.length_ns = random.Between(timeout_ns / 2, 4 * timeout_ns); break;
        default: plan.length_ns = SimTask::kNever; break;
    }
    if (plan.fault == SimFault::kSlow) plan.length_ns = random.Between(0, 6 * timeout_ns);
    // Only a checksum detects faults that headers do not show.
    if (plan.fault == SimFault::kCorrupt || plan.fault == SimFault::kTruncate) plan.checksum = true;
}

inline SimPlan PlanOfSeed(uint64_t seed) {
    SimRandom random(seed);
    SimPlan plan;
    plan.seed = seed;
    plan.ranks = static_cast<int>(random.Between(2, 6));
    plan.bytes = random.OneIn(2);
    plan.checksum = random.OneIn(4);
    plan.one_host = random.OneIn(2);
    plan.timeout_ms = random.OneIn(2) ? 1000 : random.Between(500, 5000);
    plan.window_bytes = size_t{16384} << random.Below(2);
    plan.latency_ns = random.Between(0, random.OneIn(4) ? 2'000 * kUs : 40 * kUs);
    plan.jitter_ns = random.Between(0, plan.latency_ns);
    plan.compute_ns = random.Between(0, random.OneIn(4) ? 2'000 * kUs : 50 * kUs);
    const uint64_t hosts = 1 + random.Below(3);
    for (int& host : plan.host) host = static_cast<int>(random.Below(hosts));
    const uint64_t ops = random.Between(1, 12);
    for (uint64_t i = 0; i < ops; i++) plan.program.push_back(DrawOp(random, plan.ranks));
    DrawFault(random, plan);
    return plan;
}

inline std::string SimPlan::Text() const {
    std::string text = fmt::format(
        "seed {}: {} ranks on hosts {}, {}, timeout {} ms, windows of {}, latency {} + {} ns, "
        "checksum {}, {}\n"
        "fault {}: rank {} (to {}), side {:#b}, at {} or {} ns, length {} ns, amount {}\n",
        seed, ranks, fmt::join(host.begin(), host.begin() + ranks, " "), bytes ? "bytes" : "puts",
        timeout_ms, window_bytes, latency_ns, jitter_ns, checksum,
        one_host ? "one host" : "several hosts", SimFaultName(fault), a, b, side, at, at_ns,
        length_ns, amount);
    for (size_t i = 0; i < program.size(); i++) {
        const SimOp& op = program[i];
        text += fmt::format("  op {}: {} {} {} of {}, root {} to {}, counts [{}]\n", i,
                            SimKindName(op.kind), coll::AlgorithmName(op.choice.algorithm),
                            coll::WireName(op.choice.wire), op.count, op.root, op.to,
                            fmt::join(op.counts, " "));
    }
    return text;
}

}  // namespace weft::test
