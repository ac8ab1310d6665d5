#include "serve/http/seats.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace weft::serve {

Seats::Crowd::Place Seats::Crowd::Add(Connection* connection, const std::string& network) {
    Network& own = networks_[network];
    own.members.push_back(connection);
    ++size_;
    Rerank(network, own);
    return std::prev(own.members.end());
}

void Seats::Crowd::Remove(Place place, const std::string& network) {
    const auto found = networks_.find(network);
    WEFT_CHECK(found != networks_.end());
    found->second.members.erase(place);
    --size_;
    Rerank(network, found->second);
    if (found->second.members.empty()) networks_.erase(found);
}

void Seats::Crowd::Rerank(const std::string& name, Network& network) {
    ranks_.erase(network.rank);
    if (network.members.empty()) return;
    network.rank = {network.members.size(), UINT64_MAX - ++changes_, name};
    ranks_.insert(network.rank);
}

Connection* Seats::Crowd::Oldest() const {
    return networks_.at(std::get<std::string>(*ranks_.rbegin())).members.front();
}

Connection* Seats::Crowd::Oldest(const std::string& network, size_t most) const {
    const auto found = networks_.find(network);
    if (found == networks_.end() || found->second.members.size() <= most) return nullptr;
    return found->second.members.front();
}

Seats::Crowd* Seats::CrowdOf(Seat seat) {
    switch (seat) {
        case Seat::kStranger: return &strangers_;
        case Seat::kIdle: return &idle_;
        case Seat::kBusy: break;
    }
    return nullptr;
}

void Seats::Add(Connection* connection, const std::string& network) {
    entries_[connection] = {Seat::kStranger, network, strangers_.Add(connection, network)};
}

void Seats::Move(Connection* connection, Seat seat) {
    const auto found = entries_.find(connection);
    if (found == entries_.end() || found->second.seat == seat) return;
    Entry entry = found->second;
    Remove(connection);
    entry.seat = seat;
    if (Crowd* crowd = CrowdOf(seat)) {
        entry.place = crowd->Add(connection, entry.network);
    } else {
        ++busy_;
    }
    entries_[connection] = std::move(entry);
}

void Seats::Remove(Connection* connection) {
    const auto found = entries_.find(connection);
    if (found == entries_.end()) return;
    if (Crowd* crowd = CrowdOf(found->second.seat)) {
        crowd->Remove(found->second.place, found->second.network);
    } else {
        --busy_;
    }
    entries_.erase(found);
}

Seat Seats::SeatOf(const Connection* connection) const {
    const auto found = entries_.find(connection);
    return found == entries_.end() ? Seat::kStranger : found->second.seat;
}

Connection* Seats::Excess(const Connection* joined) const {
    const size_t known = busy_ + idle_.size();
    if (known > most_ && idle_.size() > 0) return idle_.Oldest();
    const auto found = entries_.find(joined);
    if (found != entries_.end()) {
        Connection* own = strangers_.Oldest(found->second.network, most_of_network_);
        if (own != nullptr) return own;
    }
    const size_t room = std::max(kSpare, most_ - std::min(most_, known));
    return strangers_.size() > room ? strangers_.Oldest() : nullptr;
}

Connection* Seats::Oldest() const {
    if (strangers_.size() > 0) return strangers_.Oldest();
    return idle_.size() > 0 ? idle_.Oldest() : nullptr;
}

}  // namespace weft::serve
