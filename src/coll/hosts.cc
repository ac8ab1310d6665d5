#include "coll/hosts.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace weft::coll {
namespace {

// Traffic of the hosts, in units of one rank's addend to one part.
struct Loads {
    explicit Loads(size_t hosts) : sent(hosts), got(hosts) {}
    void Add(size_t from, size_t to, size_t units) {
        if (from == to) return;
        sent[from] += units;
        got[to] += units;
    }
    size_t Most() const {
        return std::max(*std::ranges::max_element(sent), *std::ranges::max_element(got));
    }
    // Order of two loads: by the busiest host's load, then by the total.
    std::pair<size_t, size_t> Order() const {
        return {Most(), std::accumulate(sent.begin(), sent.end(), size_t{0})};
    }
    std::vector<size_t> sent, got;
};

class ChainPlanner {
  public:
    ChainPlanner(std::span<const size_t> host_of, size_t sum_units)
        : host_of_(host_of),
          sum_units_(sum_units),
          loads_(*std::ranges::max_element(host_of) + 1) {}

    Chain Plan() {
        FindRuns();
        chain_.last.resize(host_of_.size());
        // Last parts first: their sums pass all the others anyway.
        for (size_t part = host_of_.size(); part-- > 0;) Choose(part);
        chain_.load = loads_.Most();
        Loads straight(loads_.sent.size());
        for (size_t to : host_of_) {
            for (size_t from : host_of_) straight.Add(from, to, 1);
        }
        chain_.straight_load = straight.Most();
        chain_.pays = chain_.load < chain_.straight_load;
        return std::move(chain_);
    }

  private:
    void FindRuns() {
        for (size_t rank = 0; rank < host_of_.size(); rank++) {
            if (rank == 0 || host_of_[rank] != host_of_[rank - 1]) chain_.begin.push_back(rank);
            chain_.run_of.push_back(chain_.begin.size() - 1);
        }
        chain_.begin.push_back(host_of_.size());
    }

    // Chooses the path of a part's sum: to its owner, or through all runs and back, whichever has
    // the smaller load on the busiest host.
    void Choose(size_t part) {
        const size_t near = chain_.run_of[part], far = chain_.runs() - 1;
        Loads stops = With(part, near), goes_on = With(part, far);
        const bool on = goes_on.Order() < stops.Order();
        chain_.last[part] = on ? far : near;
        loads_ = std::move(on ? goes_on : stops);
    }

    Loads With(size_t part, size_t last) const {
        Loads loads = loads_;
        const auto host = [&](size_t run) { return host_of_[chain_.begin[run]]; };
        const size_t owner = host_of_[part];
        for (size_t run = 0; run < last; run++) loads.Add(host(run), host(run + 1), sum_units_);
        if (last > chain_.run_of[part]) loads.Add(host(last), owner, sum_units_);
        for (size_t run = last + 1; run < chain_.runs(); run++) {
            loads.Add(host(run), owner, chain_.begin[run + 1] - chain_.begin[run]);
        }
        return loads;
    }

    std::span<const size_t> host_of_;
    size_t sum_units_;
    Loads loads_;
    Chain chain_;
};

}  // namespace

Chain PlanChain(std::span<const size_t> host_of, size_t sum_units) {
    return ChainPlanner(host_of, sum_units).Plan();
}

double StraightLoad(double ranks, double hosts) {
    return ranks / hosts * (1 - 1 / hosts);
}

double ChainLoad(double ranks, double hosts, double sum_units) {
    // A part's sum passes once through each host and returns to the owner. Each of two hosts sends
    // the half that the other owns; returns use both directions.
    const double whole = hosts > 2 ? 1 + 1 / hosts : 1;
    return sum_units * whole - sum_units * sum_units / ranks;
}

int Hosts::CarrierOf(int rank, size_t host) const {
    const std::vector<int>& theirs = ranks[host];
    const auto below = std::ranges::lower_bound(theirs, rank) - theirs.begin();
    return theirs[static_cast<size_t>(rank - below) % theirs.size()];
}

Hosts HostsOf(std::span<const int> host_of_rank, size_t me) {
    Hosts hosts;
    hosts.known = true;
    for (size_t r = 0; r < host_of_rank.size(); r++) {
        size_t host = 0;
        const auto number = [&](size_t h) {
            return host_of_rank[static_cast<size_t>(hosts.leaders[h])];
        };
        while (host < hosts.leaders.size() && number(host) != host_of_rank[r]) host++;
        if (host == hosts.leaders.size()) {
            hosts.leaders.push_back(static_cast<int>(r));
            hosts.ranks.emplace_back();
        }
        hosts.ranks[host].push_back(static_cast<int>(r));
        hosts.host_of.push_back(host);
    }
    hosts.my_host = hosts.host_of[me];
    for (size_t r = 0; r < host_of_rank.size(); r++) {
        if (hosts.host_of[r] != hosts.my_host) hosts.others.push_back(static_cast<int>(r));
        if (r < me && hosts.host_of[r] == hosts.my_host) hosts.my_place++;
    }
    hosts.chain = PlanChain(hosts.host_of, 1);
    hosts.narrow_chain = PlanChain(hosts.host_of, 2);
    return hosts;
}

}  // namespace weft::coll
