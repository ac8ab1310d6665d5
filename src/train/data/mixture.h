// Chooses the records of each epoch from several sources of a data set by weights.
//
// An epoch has as many draws as the sources have records. Source i has a share of the draws in
// proportion to its weight, rounded so that the shares add up. Its draws of all epochs run through
// its records again and again, each time in another order: no record is drawn twice more often than
// another of its source. A draw depends on the seed, the epoch and its number only, so a job can
// resume at any draw.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace weft::train {

class Mixture {
  public:
    // sizes: the number of records of each source. weights: one for each. shuffle: false: the
    // records of a source keep their order. Errors: kUsage; the message names the flag.
    static Result<Mixture> Make(std::span<const uint64_t> sizes, std::span<const double> weights,
                                bool shuffle, uint64_t seed);
    // The record of a draw, counted over all sources. Precondition: draw < the number of records.
    uint64_t operator()(uint64_t epoch, uint64_t draw) const;
    // Differs for mixtures that draw differently.
    uint64_t Fingerprint() const;

  private:
    struct Source {
        uint64_t first = 0, size = 0;   // records
        uint64_t begin = 0, draws = 0;  // of an epoch
    };
    std::vector<Source> sources_;
    bool shuffle_ = true;
    uint64_t seed_ = 0;
};

}  // namespace weft::train
