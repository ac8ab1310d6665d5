// Packets between the hosts of a simulated kernel.
//
// Two hosts are joined by one or more cables. Each direction of a cable is a Wire, which may be
// cut, and may lose, delay or slow down packets. The packets of a connection arrive in order. A
// lost packet is sent again, as by TCP: after up to 220 ms, and then after pauses that double. So
// after an outage, a connection may stay silent for as long as the outage lasted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "support/sim_time.h"

namespace weft::sim {

class Kernel;

struct Route {
    int from = 0, to = 0, cable = 0;
    auto operator<=>(const Route&) const = default;
    Route Back() const { return {to, from, cable}; }
};

struct Wire {
    bool cut = false;
    int lost_percent = 0;       // packets that do not arrive
    int64_t delay_ns = 0;       // largest delay of a packet beyond the latency
    int64_t bytes_per_s = 0;    // 0: unlimited
    int64_t busy_until_ns = 0;  // a slow wire sends one packet after the other
};

// The packets of one direction of a connection, in order.
struct Flow {
    struct Packet {
        std::function<void()> deliver;
        int64_t sent_ns;
    };
    Route route;
    int boot = 0;  // of the sending host
    std::deque<Packet> packets{};
    uint64_t arrived = 0;
    int64_t last_ns = 0;   // when the last packet arrives
    int64_t pause_ns = 0;  // before the lost packet is sent again; 0: none was lost
};

class Network {
  public:
    explicit Network(Kernel& kernel) : kernel_(kernel) {}

    Wire& WireOf(const Route& route) { return wires_[route]; }
    // All wires are as new.
    void Mend() { wires_.clear(); }
    void PowerOff(int host);
    void PowerOn(int host) { down_.erase(host); }
    bool IsDown(int host) const { return down_.contains(host); }
    // Whether packets pass now.
    bool Carries(const Route& route) const;

    std::shared_ptr<Flow> MakeFlow(const Route& route);
    // `deliver` is called when the packet arrives, unless the sending host was switched off.
    void Send(const std::shared_ptr<Flow>& flow, size_t bytes, std::function<void()> deliver);
    // The host no longer has this connection; its reset follows the packets of the flow.
    void SendReset(const std::shared_ptr<Flow>& flow, std::function<void()> deliver);
    // A packet of no connection: if it is lost, nobody sends it again.
    void SendOnce(const Route& route, std::function<void()> deliver);

    // The longest time from sending a packet of a connection until its arrival, or until now if it
    // is still on its way.
    int64_t LongestNs() const;

  private:
    int64_t ArrivalNs(const Route& route, size_t bytes);
    bool Loses(const Route& route);
    void Launch(const std::shared_ptr<Flow>& flow, size_t bytes, bool again);
    void Arrive(const std::shared_ptr<Flow>& flow, uint64_t end, bool lost);

    Kernel& kernel_;
    std::map<Route, Wire> wires_;
    std::set<int> down_;
    std::map<int, int> boots_;  // by host: how often it was switched off
    std::vector<std::weak_ptr<Flow>> flows_;
    int64_t longest_ns_ = 0;
};

}  // namespace weft::sim
