// Search for machines that reach a wanted speed, and their price.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/predict.h"

namespace weft::plan {

struct Wanted {
    double tok_s = 0;              // of all sequences together, at least; 0: any
    std::optional<double> budget;  // in the unit of prices; at most
    std::optional<double> ttft_s;  // at most
    int most_hosts = 16;
};

struct Offer {
    std::string machines;  // as --machines takes it: "3xstrix-halo,roce"
    Prediction best;
    double price = 0;
    bool guessed = false;  // the price of a machine or wire is a guess
};

struct Offers {
    // Cheapest first. Per machine and wire, the fewest hosts that meet the request. An offer is
    // left out if a cheaper one is at least as good in every figure. With a budget alone: the
    // number of hosts with the smallest answer_s.
    std::vector<Offer> enough;
    // if `enough` is empty: the offers within the budget that come closest
    std::vector<Offer> nearest;
};

// Hosts of one kind and the wire between them.
struct MachineOnWire {
    Machine machine;
    Wire wire;
    ClusterSpec Times(int count) const;  // words: in the form of --machines
};
// Machines with a price, each with its own wire and with the wire's `instead`; a card also as two
// and as four in one host. `only` restricts the machines, such as "strix-halo+rtx-4090"; a machine
// named with a wire is tried with that wire alone. Errors: kUsage (unknown words, a named machine
// without a price).
Result<std::vector<MachineOnWire>> KindsToTry(const Library& library, const std::string& only);
bool PriceIsGuessed(const ClusterSpec& cluster);

// Tries all machines, up to most_hosts of each. Errors: those of KindsToTry; kUsage if `wanted`
// sets no requirement.
Result<Offers> FindMachines(const ModelWalk& walk, const Library& library, const Workload& load,
                            const Wanted& wanted, const std::string& only);

}  // namespace weft::plan
