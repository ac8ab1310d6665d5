// Search for machines that train a number of sequences in a wanted time, and their price.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/machine.h"
#include "plan/train_search.h"

namespace weft::plan {

struct TrainWanted {
    double within_s = 0;
    int64_t sequences = 0;
    std::optional<double> budget;  // in the unit of prices; at most
    int most_hosts = 64;           // tries 1, 2, 4, ...
};

struct TrainOffer {
    std::string machines;  // in the form of --machines
    TrainPrediction best;
    double seconds = 0;  // for all sequences
    double price = 0;
    bool guessed = false;  // the price of a machine or wire is a guess
};

struct TrainOffers {
    std::vector<TrainOffer> enough;   // cheapest first; per machine the fewest hosts
    std::vector<TrainOffer> nearest;  // if `enough` is empty: the fastest within the budget
};

// Seconds of the whole updates that these sequences need.
double TrainingSeconds(const TrainPrediction& prediction, int64_t sequences);

// Tries all machines with a price, with their own wire. `only` restricts the machines and may name
// a wire. Errors: kUsage (unknown words, a machine without a price).
Result<TrainOffers> FindTrainingMachines(TrainWalk& walk, const Library& library,
                                         const TrainWishes& wishes, const TrainWanted& wanted,
                                         const std::string& only);

}  // namespace weft::plan
