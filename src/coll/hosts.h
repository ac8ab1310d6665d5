// The hosts of a group's ranks, and the paths between hosts. Everything here depends on the host of
// each rank only, so it is the same on all ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace weft::coll {

// The path of sums in rank order, 0 + 1 + 2 + ..., through hosts with several ranks.
//
// A run is a sequence of consecutive ranks on one host. For each part of the vector, one rank of a
// run adds the addends of the run's ranks to the sum that it gets from the previous run, and sends
// the result to the next run. So for each part, one sum is sent between two hosts instead of the
// addends of all ranks. The order of additions, and so every bit, is as if one rank added all
// addends. The sum is sent on up to run last[part]. The ranks of later runs send their addends to
// the owner of the part, which adds them to the sum that it received.
struct Chain {
    bool pays = false;           // whether the busiest host has less traffic than with direct sends
    std::vector<size_t> run_of;  // by rank
    std::vector<size_t> begin;   // first rank of each run, then the number of ranks
    std::vector<size_t> last;    // by part: the last run of its sum's chain
    // Traffic of the busiest host (the larger of sent and received), in units of one rank's addend
    // for one part: with the chain, and with direct sends.
    size_t load = 0, straight_load = 0;

    size_t runs() const { return begin.size() - 1; }
    // The rank of run `run` that computes the sum for part `part`. In the run of the part's owner,
    // this is the owner.
    size_t Adder(size_t part, size_t run) const {
        const size_t ranks = begin[run + 1] - begin[run];
        return run == run_of[part] ? part : begin[run] + part % ranks;
    }
};

// sum_units: size of a sum divided by the size of an addend (2 for narrow values with float32
// sums).
Chain PlanChain(std::span<const size_t> host_of, size_t sum_units);

// Chain::straight_load and Chain::load for `hosts` hosts with equal numbers of consecutive ranks,
// in units of the whole vector.
double StraightLoad(double ranks, double hosts);
double ChainLoad(double ranks, double hosts, double sum_units);

struct Hosts {
    bool known = false;
    std::vector<std::vector<int>> ranks;  // ranks of each host, ascending; hosts are ordered by
                                          // their lowest rank
    std::vector<size_t> host_of;          // by rank
    std::vector<int> leaders;             // the lowest rank of each host
    size_t my_host = 0, my_place = 0;     // this rank's host; this rank is ours()[my_place]
    std::vector<int> others;              // ranks of other hosts, ascending
    Chain chain, narrow_chain;            // chain: for floats; narrow_chain: for values of half
                                          // that size

    std::span<const int> ours() const { return ranks[my_host]; }
    // The rank of host `host` that receives the part of `rank` first and distributes it on that
    // host. The ranks of a host take turns.
    int CarrierOf(int rank, size_t host) const;
};

// host_of_rank: arbitrary numbers.
Hosts HostsOf(std::span<const int> host_of_rank, size_t me);

}  // namespace weft::coll
