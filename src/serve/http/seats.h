// Internal: the seats of a loop's connections, by which callers without a key cannot keep others
// out.
//
//     busy      answers a request with a key; it is never displaced
//     idle      between two requests, of which the last had a key
//     stranger  everything else: silent, within a TLS handshake or a head, or without a key
//
// On a server without keys, a POST counts as a request with a key.
//
//     busy and idle at most `most` together
//     strangers               what busy and idle connections leave of `most`, but at least kSpare,
//                             so that a probe and a caller with a key are always heard
//     strangers of a network  at most `most_of_network`
//
// If a limit is exceeded, the network with the most connections of that kind loses its oldest one
// (net/addresses.h: NetworkOf). So many connections from one network displace only each other. The
// clients of a proxy, which are one network, lose idle connections but no answer. Thread: the
// thread of the loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>

namespace weft::serve {

class Connection;

enum class Seat { kStranger, kIdle, kBusy };

class Seats {
  public:
    // Seats beyond `most` in which strangers are heard.
    static constexpr size_t kSpare = 64;

    Seats(size_t most, size_t most_of_network) : most_(most), most_of_network_(most_of_network) {}

    // Adds a stranger.
    void Add(Connection* connection, const std::string& network);
    void Move(Connection* connection, Seat seat);
    void Remove(Connection* connection);
    Seat SeatOf(const Connection* connection) const;
    // All seats are in use by busy connections, so no other connection may become busy.
    bool full() const { return busy_ >= most_; }
    // The connection to close or to make busy; null: none. joined: the one that was added last.
    Connection* Excess(const Connection* joined) const;
    // The stranger to close first, else the idle connection; null: all are busy.
    Connection* Oldest() const;

  private:
    // Connections of one kind, by network; in each network, the oldest comes first.
    class Crowd {
      public:
        using Place = std::list<Connection*>::iterator;
        Place Add(Connection* connection, const std::string& network);
        void Remove(Place place, const std::string& network);
        size_t size() const { return size_; }
        Connection* Oldest() const;  // of the network with the most; the crowd is not empty
        // The oldest of `network` if it has more than `most`, else null.
        Connection* Oldest(const std::string& network, size_t most) const;

      private:
        // Sorts networks by size; of equally large networks, the one that changed first comes last.
        using Rank = std::tuple<size_t, uint64_t, std::string>;
        struct Network {
            std::list<Connection*> members;
            Rank rank;  // its entry in ranks_
        };
        void Rerank(const std::string& name, Network& network);
        std::unordered_map<std::string, Network> networks_;
        std::set<Rank> ranks_;
        uint64_t changes_ = 0;
        size_t size_ = 0;
    };
    struct Entry {
        Seat seat;
        std::string network;
        Crowd::Place place{};  // not of a busy one
    };
    Crowd* CrowdOf(Seat seat);

    size_t most_, most_of_network_;
    size_t busy_ = 0;
    Crowd strangers_, idle_;
    std::unordered_map<const Connection*, Entry> entries_;
};

}  // namespace weft::serve
