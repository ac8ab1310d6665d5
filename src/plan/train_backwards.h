// Backwards, of training: which machines train so many sequences in time, and what they cost.
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
    int most_hosts = 64;           // 1, 2, 4, ... are tried
};

struct TrainOffer {
    std::string machines;  // as --machines takes it
    TrainPrediction best;
    double seconds = 0;  // of all sequences, with what is lost with hosts
    double price = 0;
    bool guessed = false;  // the price of one of them is
};

struct TrainOffers {
    std::vector<TrainOffer> enough;   // cheapest first: of each machine the fewest hosts
    std::vector<TrainOffer> nearest;  // where none is: the fastest within the budget
};

// Whole updates for so many sequences.
double TrainingSeconds(const TrainPrediction& prediction, int64_t sequences);

// All machines with a price and their own wire; `only`: those of the words, with their wire.
// Errors: kUsage (unknown words, a machine without a price).
Result<TrainOffers> FindTrainingMachines(TrainWalk& walk, const Library& library,
                                         const TrainWishes& wishes, const TrainWanted& wanted,
                                         const std::string& only);

}  // namespace weft::plan
