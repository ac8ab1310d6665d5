// The plan of one simulated run, drawn from a seed: the cluster, its job and the faults.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/sim_time.h"

namespace weft::sim {

inline constexpr int64_t kForever = test::SimTask::kNever;

enum class Fault {
    kKillRank,    // the rank's process on `host`
    kKillWorker,  // the listening worker of `host`, which restarts after length_ns
    kStopRank,    // SIGSTOP, then SIGCONT after length_ns
    kPowerOff,    // of `host`; it restarts after length_ns
    kAskToEnd,    // SIGTERM to the worker of `host`
    kAskToStop,   // the user interrupts the job
    // For length_ns, packets between `host` and `other`:
    kCut,    // do not pass
    kLose,   // are lost, `amount` percent of them
    kDelay,  // take up to `amount` ms longer
    kSlow,   // pass with `amount` KB/s
    // For length_ns, calls that write to the disk, which all hosts share:
    kFillDisk,   // find no free space
    kBreakDisk,  // fail, `amount` percent of them
    kSlowDisk,   // take up to `amount` ms
    kCount,
};

struct FaultPlan {
    Fault fault{};
    int host = 0, other = 0;
    int64_t at_ns = 0, length_ns = 0;  // kForever: it stays
    // Only for faults between two hosts:
    int64_t amount = 0;
    int cable = -1;        // -1: all cables
    bool one_way = false;  // only packets from `host` to `other`

    bool OfLink() const { return fault >= Fault::kCut && fault < Fault::kFillDisk; }
    bool OfDisk() const { return fault >= Fault::kFillDisk; }
    std::string Text() const;
};

inline std::string FaultPlan::Text() const {
    constexpr const char* kNames[] = {
        "kill rank",         "kill worker",     "stop rank", "switch off",
        "end worker",        "interrupt",       "cut",       "lose {}%",
        "delay by {} ms",    "slow to {} KB/s", "fill disk", "break {}% of the disk's writes",
        "slow disk to {} ms"};
    std::string text = fmt::format(fmt::runtime(kNames[static_cast<int>(fault)]), amount);
    if (!OfDisk()) text += fmt::format(" host {}", host);
    if (OfLink()) text += fmt::format(" {} {}", one_way ? "->" : "and", other);
    if (OfLink() && cable >= 0) text += fmt::format(" on cable {}", cable);
    const std::string length =
        length_ns == kForever ? "ever" : fmt::format("{} ms", length_ns / 1'000'000);
    return text + fmt::format(" at {} ms for {}", at_ns / 1'000'000, length);
}

struct Plan {
    uint64_t seed = 0;
    int hosts = 2;
    int cables = 1;            // between two hosts
    bool second_fast = false;  // data prefers the second cable
    bool dial_in = false;      // the workers dial rank 0
    int64_t rejoin_ms = 0;
    bool elastic = false;
    bool tensor = true;  // a model's job: tensor ranks; false: pipeline stages
    bool feed = false;   // a model's job: ranks get their weights from rank 0
    int steps = 10;
    int64_t disk_ms = 0;  // longest time of a call that writes to the disk
    int64_t pace_ns = 0;
    int64_t timeout_ms = 1000;
    std::vector<FaultPlan> faults;
    int jobs = 1;    // that a worker runs at a time
    int rivals = 0;  // other jobs that need the same workers

    std::string Text() const {
        std::string text =
            fmt::format("seed {}: {} hosts, {}, restart {} ms{}, {} steps of {} us, timeout {} ms",
                        seed, hosts, dial_in ? "workers dial in" : "rank 0 dials", rejoin_ms,
                        elastic ? ", elastic" : "", steps, pace_ns / 1000, timeout_ms);
        if (cables > 1) text += second_fast ? ", a second, faster cable" : ", a second cable";
        if (disk_ms > 0) text += fmt::format(", disk {} ms", disk_ms);
        if (feed) text += ", weights from rank 0";
        if (rivals > 0) text += fmt::format(", {} rivals, {} places", rivals, jobs);
        for (const FaultPlan& fault : faults) text += "; " + fault.Text();
        return text;
    }
    // The job may continue after the loss of a rank.
    bool recovers() const { return rejoin_ms > 0 || elastic; }
    bool Has(Fault fault) const { return std::ranges::count(faults, fault, &FaultPlan::fault) > 0; }
};

namespace draw {

inline constexpr int64_t kMsNs = 1'000'000;

inline void Amount(test::SimRandom& dice, const Plan& plan, FaultPlan& fault) {
    switch (fault.fault) {
        case Fault::kLose: fault.amount = dice.Between(1, 60); break;
        case Fault::kDelay: fault.amount = dice.Between(1, plan.timeout_ms); break;
        case Fault::kSlow: fault.amount = dice.Between(20, 5'000); break;
        case Fault::kBreakDisk: fault.amount = dice.OneIn(3) ? 100 : dice.Between(1, 30); break;
        case Fault::kSlowDisk: fault.amount = dice.Between(1, plan.timeout_ms); break;
        default: break;
    }
    // A disk that has space again, or works again, while files are written.
    if (fault.OfDisk() && dice.OneIn(2)) fault.length_ns = dice.Between(1, 300) * kMsNs;
    if (!fault.OfLink()) return;
    fault.one_way = dice.OneIn(3);
    if (plan.cables > 1 && !dice.OneIn(3)) fault.cable = static_cast<int>(dice.Below(2));
    // An outage that connections should outlast.
    if (dice.OneIn(2)) fault.length_ns = dice.Between(1, plan.timeout_ms) * kMsNs;
}

// A fault of one of `kinds`, while the job begins or its steps run.
inline FaultPlan OneFault(test::SimRandom& dice, const Plan& plan, std::vector<Fault> kinds) {
    FaultPlan fault;
    fault.fault = kinds[dice.Below(kinds.size())];
    // Rank 0's host now and then: its loss ends the job.
    fault.host = dice.OneIn(6) ? 0 : static_cast<int>(dice.Between(1, plan.hosts - 1));
    fault.other = (fault.host + static_cast<int>(dice.Between(1, plan.hosts - 1))) % plan.hosts;
    fault.at_ns = dice.Between(0, (plan.steps * plan.pace_ns + 600 * kMsNs) / kMsNs) * kMsNs;
    if (dice.OneIn(3)) fault.at_ns = dice.Between(0, 200) * kMsNs / 4;  // while it begins
    fault.length_ns = dice.OneIn(3) ? kForever : dice.Between(1, 6'000) * kMsNs;
    Amount(dice, plan, fault);
    return fault;
}

inline Plan Cluster(test::SimRandom& dice, uint64_t seed) {
    Plan plan;
    plan.seed = seed;
    plan.hosts = static_cast<int>(dice.Between(2, 4));
    plan.cables = dice.OneIn(3) ? 2 : 1;
    plan.second_fast = plan.cables > 1 && dice.OneIn(2);
    plan.dial_in = dice.OneIn(2);
    plan.rejoin_ms = dice.OneIn(2) ? dice.Between(2'000, 20'000) : 0;
    plan.elastic = dice.OneIn(3);
    plan.steps = static_cast<int>(dice.Between(1, 60));
    plan.pace_ns = dice.OneIn(4) ? 0 : dice.Between(1, 100) * kMsNs;
    plan.timeout_ms = dice.Between(300, 4'000);
    plan.tensor = dice.OneIn(2);
    plan.feed = dice.OneIn(3);
    return plan;
}

}  // namespace draw

inline Plan DrawPlan(uint64_t seed) {
    test::SimRandom dice(seed * 7919 + 17);
    Plan plan = draw::Cluster(dice, seed);
    std::vector<Fault> kinds;
    for (int kind = 0; kind < static_cast<int>(Fault::kFillDisk); ++kind) {
        kinds.push_back(static_cast<Fault>(kind));
    }
    const uint64_t faults = dice.Below(4);
    for (uint64_t i = 0; i < faults; ++i) plan.faults.push_back(draw::OneFault(dice, plan, kinds));
    return plan;
}

// While the steps run, packets are lost or late, for a while or on one of two cables.
inline Plan DrawLinks(uint64_t seed) {
    using draw::kMsNs;
    test::SimRandom dice(seed * 32'452'843 + 11);
    Plan plan = draw::Cluster(dice, seed);
    plan.cables = dice.OneIn(3) ? 1 : 2;
    plan.second_fast = plan.cables > 1 && dice.OneIn(2);
    plan.steps = static_cast<int>(dice.Between(20, 60));
    plan.pace_ns = dice.Between(20, 100) * kMsNs;
    const int64_t end_ms = plan.steps * plan.pace_ns / kMsNs;
    using enum Fault;
    for (int64_t faults = dice.Between(1, 2); faults > 0; --faults) {
        FaultPlan fault = draw::OneFault(dice, plan, {kCut, kCut, kLose, kDelay, kSlow});
        fault.at_ns = dice.Between(end_ms / 8, end_ms) * kMsNs;
        plan.faults.push_back(fault);
    }
    return plan;
}

// A job that saves checkpoints. (Ranks of one process would share the flag that asks them to stop.)
inline Plan DrawTraining(uint64_t seed) {
    test::SimRandom dice(seed * 15'485'863 + 5);
    Plan plan = draw::Cluster(dice, seed);
    plan.steps = 8;
    plan.disk_ms = dice.Between(0, 20);
    using enum Fault;
    const std::vector<Fault> others = {kKillRank, kKillWorker, kStopRank, kPowerOff,
                                       kCut,      kLose,       kDelay,    kSlow};
    const uint64_t faults = dice.Below(4);
    for (uint64_t i = 0; i < faults; ++i) {
        const bool of_disk = dice.OneIn(2);
        plan.faults.push_back(draw::OneFault(
            dice, plan, of_disk ? std::vector{kFillDisk, kBreakDisk, kSlowDisk} : others));
        const int64_t step_ms = plan.pace_ns / draw::kMsNs + 10 * plan.disk_ms;
        if (of_disk) plan.faults.back().at_ns = dice.Between(50, 8 * step_ms + 100) * draw::kMsNs;
    }
    return plan;
}

// Several jobs that begin almost at the same time and need the same workers.
inline Plan DrawRivals(uint64_t seed) {
    test::SimRandom dice(seed * 104'729 + 3);
    Plan plan;
    plan.seed = seed;
    plan.hosts = static_cast<int>(dice.Between(3, 4));
    plan.steps = static_cast<int>(dice.Between(1, 20));
    plan.pace_ns = dice.Between(1, 20) * 1'000'000;
    plan.jobs = dice.OneIn(3) ? 2 : 1;
    plan.rivals = static_cast<int>(dice.Between(1, 3));
    return plan;
}

}  // namespace weft::sim
