// Searches for machines that reach a requested speed, with their price.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/predict.h"

namespace weft::plan {

struct Wanted {
    double tok_s = 0;              // least speed, of all sequences together; 0: no requirement
    std::optional<double> budget;  // highest price, in EUR
    std::optional<double> ttft_s;  // longest time to the first token
    int most_hosts = 16;
};

struct Offer {
    std::string machines;  // in the form of --machines: "3xstrix-halo,roce"
    Prediction best;
    double price = 0;
    bool guessed = false;  // the price of a machine or wire is a guess
};

struct Offers {
    // Offers that meet the request, cheapest first. For each machine and wire: the fewest hosts
    // that meet it, unless a cheaper offer is at least as good in every figure. If the request is
    // only a budget: for each machine and wire, the number of hosts with the smallest answer_s,
    // sorted by answer_s.
    std::vector<Offer> enough;
    // If `enough` is empty: the offers within the budget that come closest to the request.
    std::vector<Offer> nearest;
};

// Tries up to most_hosts hosts of each machine with a price, connected by its own wire and by that
// wire's `instead`. A GPU card is also tried as two and as four cards in one host and, if the model
// has experts and does not fit into the cards, as one host with memory for them. `only` restricts
// the machines, such as "strix-halo+rtx-4090"; if it names a wire, only that wire is tried. Errors:
// kUsage (unknown words, a named machine without a price, or `wanted` sets no requirement).
Result<Offers> FindMachines(const ModelWalk& walk, const Library& library, const Workload& load,
                            const Wanted& wanted, const std::string& only);

}  // namespace weft::plan
