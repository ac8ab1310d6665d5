// Which ranks of a group share a host, and the ways from host to host that follow from it.
//
// Everything here follows from the host of each rank alone, so that it is the same on all ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace weft::coll {

// The way of sums in rank order, 0 + 1 + 2 + ..., through hosts that hold several ranks.
//
// A run is ranks of one host that follow each other in the group. One rank of a run adds up what
// the run's ranks have of a part, behind the sum that came from the run before, and passes the sum
// on: so a part's sum crosses between two hosts once where the addends of all their ranks would,
// and the order of additions, and with it every bit, is that of all addends at one place. The sum
// goes as far as `last` says; the ranks of later runs give their addends to the part's owner, who
// adds them behind what it got.
struct Chain {
    bool pays = false;           // the busiest host sends and gets less than if all went straight
    std::vector<size_t> run_of;  // by rank
    std::vector<size_t> begin;   // the first rank of each run, and the number of ranks
    std::vector<size_t> last;    // by part: the last run that its sum goes through
    // What the busiest host sends, or gets, in addends of a rank to a part.
    size_t load = 0, straight_load = 0;

    size_t runs() const { return begin.size() - 1; }
    // Who adds up a part in a run; its owner in the owner's.
    size_t Adder(size_t part, size_t run) const {
        const size_t ranks = begin[run + 1] - begin[run];
        return run == run_of[part] ? part : begin[run] + part % ranks;
    }
};

// sum_units: the size of a sum in sizes of an addend (2: narrow values, whose sums are float32).
Chain PlanChain(std::span<const size_t> host_of, size_t sum_units);

// The same loads where each of `hosts` holds as many of the ranks, which follow each other, in
// sizes of the whole vector.
double StraightLoad(double ranks, double hosts);
double ChainLoad(double ranks, double hosts, double sum_units);

struct Hosts {
    bool known = false;
    std::vector<std::vector<int>> ranks;  // of each host, ascending; hosts by their lowest rank
    std::vector<size_t> host_of;          // by rank
    std::vector<int> leaders;             // the lowest rank of each host
    size_t my_host = 0, my_place = 0;     // we are ours()[my_place]
    std::vector<int> others;              // ranks of other hosts, ascending
    Chain chain, narrow_chain;            // of floats; of values half as long

    std::span<const int> ours() const { return ranks[my_host]; }
    // Which rank of another host gets a rank's part first, and passes it on. Ranks of one host
    // take turns.
    int CarrierOf(int rank, size_t host) const;
};

// host_of_rank: numbers of any kind.
Hosts HostsOf(std::span<const int> host_of_rank, size_t me);

}  // namespace weft::coll
