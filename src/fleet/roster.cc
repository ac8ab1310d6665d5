#include "fleet/roster.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "base/deadline.h"

namespace weft::fleet {
namespace {

constexpr size_t kMostNonces = 64;  // for interfaces that come and go

bool Within(int64_t then_ns, int64_t ms, int64_t now_ns) {
    return then_ns != 0 && now_ns - then_ns <= ms * kNsPerMs;
}

uint64_t RandomNonce() {
    std::array<uint64_t, 1> nonce{};
    while (nonce[0] == 0) RandomBytes(std::as_writable_bytes(std::span(nonce)));
    return nonce[0];
}

}  // namespace

uint64_t Roster::NonceOf(const std::string& interface, int64_t now_ns) {
    if (nonces_.size() >= kMostNonces && !nonces_.contains(interface)) nonces_.clear();
    Nonce& nonce = nonces_[interface];
    if (nonce.now == 0 || !Within(nonce.made_ns, kNonceMs, now_ns)) {
        nonce = {RandomNonce(), nonce.now, now_ns, nonce.made_ns, nonce.heard};
    }
    return nonce.now;
}

size_t Roster::CountOn(const std::string& interface) const {
    const auto found = nonces_.find(interface);
    return found == nonces_.end() ? 0 : found->second.heard;
}

// How long an echo of this host counts. The sender finds about as many hosts as this one.
int64_t Roster::EchoMs(const std::string& interface) const {
    const size_t turn = (CountOn(interface) + kMostEchoes - 1) / kMostEchoes;
    return kLostMs + 3 * kBeaconMs * static_cast<int64_t>(std::max<size_t>(turn, 1) - 1);
}

std::vector<uint64_t> Roster::EchoesOf(const std::string& interface, int64_t now_ns) {
    std::vector<Way*> present, others;
    const int64_t echo_ms = EchoMs(interface);
    for (auto& [id, host] : hosts_) {
        for (Way& way : host.ways) {
            if (way.cable.interface != interface || !Within(way.heard_ns, kLostMs, now_ns)) {
                continue;
            }
            (Within(way.good_ns, echo_ms, now_ns) ? present : others).push_back(&way);
        }
    }
    if (const auto nonce = nonces_.find(interface); nonce != nonces_.end()) {
        nonce->second.heard = present.size() + others.size();
    }
    // Half of the places belong to hosts that are present, so replayed beacons can't displace them.
    const size_t rest = kMostEchoes - std::min(kMostEchoes, others.size());
    std::vector<uint64_t> echoes;
    const auto echo = [&](std::vector<Way*>& ways, size_t most) {
        std::ranges::sort(ways, {}, [](const Way* way) {
            return std::tuple(way->echoed_ns, -way->heard_ns, way->nonce);
        });
        for (size_t i = 0; i < std::min(most, ways.size()); ++i) {
            ways[i]->echoed_ns = now_ns;
            echoes.push_back(ways[i]->nonce);
        }
    };
    echo(present, std::max(rest, kMostEchoes / 2));
    echo(others, kMostEchoes - echoes.size());
    return echoes;
}

bool Roster::IsFresh(const DiscoveryPacket& packet, const std::string& interface,
                     int64_t now_ns) const {
    const auto found = nonces_.find(interface);
    if (found == nonces_.end()) return false;
    const Nonce& nonce = found->second;
    const auto echoes = [&](uint64_t mine, int64_t made_ns) {
        return mine != 0 && Within(made_ns, 2 * kNonceMs, now_ns) &&
               std::ranges::find(packet.echoes, mine) != packet.echoes.end();
    };
    return echoes(nonce.now, nonce.made_ns) || echoes(nonce.before, nonce.before_made_ns);
}

// Returns null if the table is full of living hosts.
Roster::Host* Roster::HostOf(uint64_t id, int64_t now_ns) {
    const auto found = hosts_.find(id);
    if (found != hosts_.end()) return &found->second;
    if (hosts_.size() >= kMostHosts) {
        // A host that never echoed may be a recording; it is dropped first.
        const auto never = std::ranges::find_if(hosts_, [&](const auto& each) {
            return std::ranges::none_of(each.second.ways, [&](const Way& way) {
                return Within(way.good_ns, kKeptMs, now_ns);
            });
        });
        if (never == hosts_.end()) {
            full_ns_ = now_ns;
            return nullptr;
        }
        hosts_.erase(never);
    }
    return &hosts_[id];
}

Roster::Way* Roster::WayOf(Host& host, const std::string& interface, const std::string& address) {
    for (Way& way : host.ways) {
        if (way.cable.interface == interface && way.cable.peer_address == address) return &way;
    }
    if (host.ways.size() >= kMostWaysOfHost) return nullptr;
    host.ways.emplace_back();
    host.ways.back().cable.interface = interface;
    host.ways.back().cable.peer_address = address;
    return &host.ways.back();
}

bool Roster::Hear(const DiscoveryPacket& packet, const std::string& interface,
                  const std::string& address, int64_t now_ns) {
    if (packet.host == self_) return false;
    Host* host = HostOf(packet.host, now_ns);
    if (host == nullptr) return false;
    uint64_t& largest = host->sequences[interface];
    if (packet.sequence <= largest) return false;
    largest = packet.sequence;
    Way* way = WayOf(*host, interface, address);
    if (way == nullptr) return false;
    const bool needs = way->nonce != packet.nonce || !Within(way->echoed_ns, kAnswerMs, now_ns);
    way->nonce = packet.nonce;
    way->heard_ns = now_ns;
    if (packet.kind == PacketKind::kLeaves) {
        host->left = true;
        return false;
    }
    if (!IsFresh(packet, interface, now_ns)) {
        const bool asks = packet.kind == PacketKind::kAsks;
        return needs && (asks || !Within(way->good_ns, EchoMs(interface), now_ns));
    }
    way->good_ns = now_ns;
    way->cable.peer_interface = packet.interface;
    way->cable.peer_mbps = packet.mbps;
    way->cable.peer_rdma = packet.rdma;
    // Beacons on several cables may arrive out of order.
    if (packet.sequence > host->last.sequence) host->last = packet;
    return needs && packet.kind == PacketKind::kAsks;
}

const Stranger* Roster::HearStranger(const std::string& interface, const std::string& address,
                                     bool other_key, int64_t now_ns) {
    for (Stranger& stranger : strangers_) {
        if (stranger.interface == interface && stranger.address == address) {
            stranger.other_key = other_key;
            stranger.last_ns = now_ns;
            return nullptr;
        }
    }
    if (strangers_.size() >= kMostStrangers) return nullptr;
    strangers_.push_back({interface, address, other_key, now_ns});
    return &strangers_.back();
}

void Roster::Forget(int64_t now_ns) {
    for (auto& [id, host] : hosts_) {
        std::erase_if(host.ways,
                      [&](const Way& way) { return !Within(way.heard_ns, kKeptMs, now_ns); });
    }
    std::erase_if(hosts_, [](const auto& each) { return each.second.ways.empty(); });
    std::erase_if(strangers_, [&](const Stranger& stranger) {
        return !Within(stranger.last_ns, kKeptMs, now_ns);
    });
}

std::vector<Peer> Roster::Peers(int64_t now_ns) const {
    std::vector<Peer> peers;
    const auto is_present = [&](const Way& way) {
        return Within(way.heard_ns, kLostMs, now_ns) &&
               Within(way.good_ns, EchoMs(way.cable.interface), now_ns);
    };
    for (const auto& [id, host] : hosts_) {
        if (host.left || host.last.port == 0) continue;
        Peer peer{id,
                  host.last.name,
                  host.last.build,
                  host.last.device,
                  host.last.memory_bytes,
                  host.last.port,
                  {},
                  host.last.cables};
        for (const Way& way : host.ways) {
            if (is_present(way)) peer.heard.push_back(way.cable);
        }
        std::ranges::sort(peer.heard, {}, [](const ReportedCable& cable) {
            return std::tie(cable.interface, cable.peer_address);
        });
        if (!peer.heard.empty()) peers.push_back(std::move(peer));
    }
    std::ranges::sort(peers, {}, [](const Peer& peer) { return std::tie(peer.name, peer.host); });
    return peers;
}

bool Roster::IsFull(int64_t now_ns) const {
    return Within(full_ns_, kLostMs, now_ns);
}

}  // namespace weft::fleet
