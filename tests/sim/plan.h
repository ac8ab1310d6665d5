// The plan of one simulated run, drawn from a seed: the cluster, its job and the faults.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "support/sim_time.h"

namespace weft::sim {

enum class Fault {
    kKillRank,    // the rank's process on `host`
    kKillWorker,  // the listening worker of `host`, which comes back after length_ns
    kStopRank,    // SIGSTOP, then SIGCONT after length_ns
    kCut,         // no packets between `host` and `other` for length_ns
    kCutOneWay,   // none from `host` to `other`
    kPowerOff,    // of `host`; it comes back after length_ns
    kAskToEnd,    // SIGTERM to the worker of `host`
    kAskToStop,   // the user interrupts the job
    kCount,
};

inline const char* FaultName(Fault fault) {
    constexpr const char* kNames[] = {"kill rank of",  "kill worker of", "stop rank of",
                                      "cut",           "cut one way",    "switch off",
                                      "end worker of", "interrupt"};
    return kNames[static_cast<int>(fault)];
}

inline constexpr int64_t kForever = test::SimTask::kNever;

struct FaultPlan {
    Fault fault{};
    int host = 0, other = 0;
    int64_t at_ns = 0, length_ns = 0;  // kForever: it stays

    std::string Text() const {
        return fmt::format(
            "{} host {}{} at {} ms for {} ms", FaultName(fault), host,
            fault == Fault::kCut || fault == Fault::kCutOneWay ? fmt::format(" and {}", other) : "",
            at_ns / 1'000'000,
            length_ns == kForever ? "ever" : std::to_string(length_ns / 1'000'000));
    }
};

struct Plan {
    uint64_t seed = 0;
    int hosts = 2;
    bool dial_in = false;  // the workers dial rank 0
    int64_t rejoin_ms = 0;
    bool elastic = false;
    bool tensor = true;  // a model's job: tensor ranks; false: pipeline stages
    int steps = 10;
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
        if (rivals > 0) text += fmt::format(", {} rivals, {} places", rivals, jobs);
        for (const FaultPlan& fault : faults) text += "; " + fault.Text();
        return text;
    }
    // The job may go on after the loss of a rank.
    bool recovers() const { return rejoin_ms > 0 || elastic; }
    bool Has(Fault fault) const {
        for (const FaultPlan& each : faults) {
            if (each.fault == fault) return true;
        }
        return false;
    }
};

inline Plan DrawPlan(uint64_t seed) {
    test::SimRandom dice(seed * 7919 + 17);
    constexpr int64_t kMsNs = 1'000'000;
    Plan plan;
    plan.seed = seed;
    plan.hosts = static_cast<int>(dice.Between(2, 4));
    plan.dial_in = dice.OneIn(2);
    plan.rejoin_ms = dice.OneIn(2) ? dice.Between(2'000, 20'000) : 0;
    plan.elastic = dice.OneIn(3);
    plan.steps = static_cast<int>(dice.Between(1, 60));
    plan.pace_ns = dice.OneIn(4) ? 0 : dice.Between(1, 100) * kMsNs;
    plan.timeout_ms = dice.Between(300, 4'000);
    plan.tensor = dice.OneIn(2);
    const uint64_t faults = dice.Below(4);
    for (uint64_t i = 0; i < faults; ++i) {
        FaultPlan fault;
        fault.fault = static_cast<Fault>(dice.Below(static_cast<uint64_t>(Fault::kCount)));
        // Rank 0's host now and then: its loss ends the job.
        fault.host = dice.OneIn(6) ? 0 : static_cast<int>(dice.Between(1, plan.hosts - 1));
        fault.other = (fault.host + static_cast<int>(dice.Between(1, plan.hosts - 1))) % plan.hosts;
        fault.at_ns = dice.Between(0, (plan.steps * plan.pace_ns + 600 * kMsNs) / kMsNs) * kMsNs;
        if (dice.OneIn(3)) fault.at_ns = dice.Between(0, 200) * kMsNs / 4;  // while it begins
        fault.length_ns = dice.OneIn(3) ? kForever : dice.Between(1, 6'000) * kMsNs;
        plan.faults.push_back(fault);
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
