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
    int most_hosts = 16;
};

struct Offer {
    std::string machines;  // as --machines takes it: "3xstrix-halo,roce"
    Prediction best;
    double price = 0;
    bool guessed = false;  // the price of one of them is
};

struct Offers {
    // Cheapest first: of each machine and wire the fewest hosts that do it, without offers that a
    // cheaper one is no worse than in anything. With a budget alone: the number of hosts that
    // answers soonest, by answer_s.
    std::vector<Offer> enough;
    std::vector<Offer> nearest;  // where none is: those that come closest within the budget
};

// Hosts of one kind, and what joins them.
struct MachineOnWire {
    Machine machine;
    Wire wire;
    ClusterSpec Times(int count) const;  // its words: as --machines takes them
};
// The machines that have a price, each with its wire and with the one `instead`, a card also as two
// and four in one host. `only`: machines of the words, such as "strix-halo+rtx-4090", with their
// wire alone where they name one. Errors: kUsage (unknown words, a named machine without a price).
Result<std::vector<MachineOnWire>> KindsToTry(const Library& library, const std::string& only);
bool PriceIsGuessed(const ClusterSpec& cluster);

// Looks through all machines, up to most_hosts of each. Errors: those of KindsToTry, and kUsage:
// nothing is wanted.
Result<Offers> FindMachines(const ModelWalk& walk, const Library& library, const Workload& load,
                            const Wanted& wanted, const std::string& only);

}  // namespace weft::plan
