#include "sim/network.h"

#include <algorithm>
#include <utility>

#include "sim/kernel.h"

namespace weft::sim {
namespace {

constexpr int64_t kLeastLatencyNs = 20 * kUs, kMostLatencyNs = 100 * kUs;
// TCP sends a lost packet again after a probe's or its timer's time, which then doubles.
constexpr int64_t kProbeNs = 10 * kMs, kTimerNs = 220 * kMs, kLongestPauseNs = 120'000 * kMs;

}  // namespace

void Network::PowerOff(int host) {
    down_.insert(host);
    ++boots_[host];
}

bool Network::Carries(const Route& route) const {
    const auto wire = wires_.find(route);
    return !IsDown(route.to) && (wire == wires_.end() || !wire->second.cut);
}

std::shared_ptr<Flow> Network::MakeFlow(const Route& route) {
    std::erase_if(flows_, [](const auto& flow) { return flow.expired(); });
    auto flow = std::make_shared<Flow>(Flow{route, boots_[route.from]});
    flows_.push_back(flow);
    return flow;
}

int64_t Network::ArrivalNs(const Route& route, size_t bytes) {
    SimRandom& random = kernel_.random();
    int64_t ns = kernel_.now();
    Wire& wire = WireOf(route);
    if (wire.bytes_per_s > 0) {
        ns = std::max(ns, wire.busy_until_ns) +
             static_cast<int64_t>(bytes) * 1'000'000'000 / wire.bytes_per_s;
        wire.busy_until_ns = ns;
    }
    if (wire.delay_ns > 0) ns += random.Between(wire.delay_ns / 2, wire.delay_ns);
    return ns + random.Between(kLeastLatencyNs, kMostLatencyNs);
}

bool Network::Loses(const Route& route) {
    const int percent = WireOf(route).lost_percent;
    return percent > 0 && kernel_.random().Below(100) < static_cast<uint64_t>(percent);
}

void Network::Send(const std::shared_ptr<Flow>& flow, size_t bytes, std::function<void()> deliver) {
    flow->packets.push_back({std::move(deliver), kernel_.now()});
    if (flow->pause_ns == 0) Launch(flow, bytes, false);
}

void Network::SendReset(const std::shared_ptr<Flow>& flow, std::function<void()> deliver) {
    if (const int boot = boots_[flow->route.from]; flow->boot != boot) {
        flow->packets.clear();  // of before it was switched off
        flow->pause_ns = 0;
        flow->boot = boot;
    }
    Send(flow, 0, std::move(deliver));
}

void Network::SendOnce(const Route& route, std::function<void()> deliver) {
    const bool lost = Loses(route);
    kernel_.At(ArrivalNs(route, 0), [this, route, lost, deliver = std::move(deliver)] {
        if (!lost && !IsDown(route.from) && Carries(route)) deliver();
    });
}

// Sends all packets of the flow that have not arrived.
void Network::Launch(const std::shared_ptr<Flow>& flow, size_t bytes, bool again) {
    flow->last_ns = std::max(flow->last_ns, ArrivalNs(flow->route, bytes));
    const uint64_t end = flow->arrived + flow->packets.size();
    const bool lost = Loses(flow->route);
    const int boot = flow->boot;
    kernel_.At(flow->last_ns, [this, flow, boot, again, end, lost] {
        // (Packets after a lost one arrive together with its repetition.)
        if (flow->boot != boot || boots_[flow->route.from] != boot) return;
        if (end <= flow->arrived || (flow->pause_ns > 0 && !again)) return;
        Arrive(flow, end, lost);
    });
}

void Network::Arrive(const std::shared_ptr<Flow>& flow, uint64_t end, bool lost) {
    if (lost || !Carries(flow->route)) {
        const int64_t pause_ns = flow->pause_ns == 0
                                     ? kernel_.random().Between(kProbeNs, kTimerNs)
                                     : std::clamp(2 * flow->pause_ns, kTimerNs, kLongestPauseNs);
        flow->pause_ns = pause_ns;
        kernel_.At(kernel_.now() + pause_ns, [this, flow, boot = flow->boot] {
            if (flow->boot == boot) Launch(flow, 0, true);
        });
        return;
    }
    const bool again = std::exchange(flow->pause_ns, 0) > 0;
    while (flow->arrived < end) {
        const Flow::Packet packet = std::move(flow->packets.front());
        flow->packets.pop_front();
        ++flow->arrived;
        longest_ns_ = std::max(longest_ns_, kernel_.now() - packet.sent_ns);
        packet.deliver();
    }
    if (again && !flow->packets.empty()) Launch(flow, 0, false);  // sent meanwhile
}

int64_t Network::LongestNs() const {
    int64_t longest_ns = longest_ns_;
    for (const auto& each : flows_) {
        const std::shared_ptr<Flow> flow = each.lock();
        if (flow == nullptr || flow->packets.empty()) continue;
        longest_ns = std::max(longest_ns, kernel_.now() - flow->packets.front().sent_ns);
    }
    return longest_ns;
}

}  // namespace weft::sim
