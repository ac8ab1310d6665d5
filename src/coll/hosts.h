// The hosts of a group's ranks, and the paths between hosts. Everything here depends on the host of
// each rank only, so it is the same on all ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace weft::coll {

// The path of sums in rank order, 0 + 1 + 2 + ..., through hosts with several ranks.
//
// A run is a sequence of consecutive ranks on one host. One rank of a run adds the run's addends
// for a part to the sum from the previous run, and passes the sum on. A part's sum thus travels
// between two hosts once, in place of the addends of all their ranks, and the order of additions
// (and every bit) is that of a sum in one place. The sum stops at run `last`; the ranks of later
// runs send their addends to the part's owner, which adds them to the sum that it got.
struct Chain {
    bool pays = false;           // the busiest host has less traffic than with direct sends
    std::vector<size_t> run_of;  // by rank
    std::vector<size_t> begin;   // first rank of each run, then the number of ranks
    std::vector<size_t> last;    // by part: the last run on its sum's path
    // Traffic of the busiest host, sent or received, in units of one rank's addend to a part.
    size_t load = 0, straight_load = 0;

    size_t runs() const { return begin.size() - 1; }
    // The rank of a run that adds up a part; in the owner's run, the owner.
    size_t Adder(size_t part, size_t run) const {
        const size_t ranks = begin[run + 1] - begin[run];
        return run == run_of[part] ? part : begin[run] + part % ranks;
    }
};

// sum_units: size of a sum / size of an addend (2: narrow values with float32 sums).
Chain PlanChain(std::span<const size_t> host_of, size_t sum_units);

// Loads as in Chain for `hosts` hosts with equal numbers of consecutive ranks, in units of the
// whole vector.
double StraightLoad(double ranks, double hosts);
double ChainLoad(double ranks, double hosts, double sum_units);

struct Hosts {
    bool known = false;
    std::vector<std::vector<int>> ranks;  // of each host, ascending; hosts ordered by their lowest
                                          // rank
    std::vector<size_t> host_of;          // by rank
    std::vector<int> leaders;             // the lowest rank of each host
    size_t my_host = 0, my_place = 0;     // this rank is ours()[my_place]
    std::vector<int> others;              // ranks of other hosts, ascending
    Chain chain, narrow_chain;            // for floats; for values of half the size

    std::span<const int> ours() const { return ranks[my_host]; }
    // The rank of another host that first receives a rank's part and distributes it. Ranks of one
    // host take turns.
    int CarrierOf(int rank, size_t host) const;
};

// host_of_rank: arbitrary numbers.
Hosts HostsOf(std::span<const int> host_of_rank, size_t me);

}  // namespace weft::coll
