// Backwards: which machines do what is wanted, and what they cost.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/predict.h"

namespace weft::plan {

struct Wanted {
    double tok_s = 0;              // of all sequences; at least. 0: any
    std::optional<double> budget;  // in the unit of prices; at most
    std::optional<double> ttft_s;  // at most
    int most_hosts = 64;
};

struct Offer {
    std::string machines;  // as --machines takes it: "3xstrix-halo,roce"
    Prediction best;
    double price = 0;
    bool guessed = false;  // the price of one of them is
};

struct Offers {
    // Cheapest first: of each machine and wire the fewest hosts that do it, but those that a
    // cheaper offer is no worse than in anything. Where only a budget is said fastest first, the
    // number of hosts that is fastest.
    std::vector<Offer> enough;
    std::vector<Offer> nearest;  // where none is: the fastest within the budget
};

// Hosts of one kind, and what joins them.
struct MachineOnWire {
    Machine machine;
    Wire wire;
    Cluster Times(int count) const;  // its words: as --machines takes them
};
// All machines with a price, each with its wire and with the one `instead`; `only`: those of the
// words, such as "strix-halo+m3-ultra", and with their wire alone where they name one. Errors:
// kUsage (unknown words, a machine of them has no price).
Result<std::vector<MachineOnWire>> KindsToTry(const Library& library, const std::string& only);
bool PriceIsGuessed(const Cluster& cluster);

// Looks through KindsToTry(library, only), up to most_hosts of each. Errors: those of KindsToTry,
// and kUsage: nothing is wanted.
Result<Offers> FindMachines(const ModelWalk& walk, const Runtime& runtime, const Library& library,
                            const Workload& load, const Wanted& wanted, const std::string& only);

}  // namespace weft::plan
