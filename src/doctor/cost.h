// What a fault costs in speed: the prediction of `weft plan` (plan/predict.h) for such hosts with
// the fault and without it.
//
// Checks only say how the host is and how it should be (CostQuestion); StateCosts works out the
// figures afterwards. They are of the largest well-known model that fits, on two such hosts with
// all their devices as tensor ranks where a link is at fault, else on one. Of a host that is none
// of machines/ nobody knows what it reads and computes a second: then only what its links take is
// told, which is the same on any machine. What even that lacks has no figures.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "doctor/host_view.h"
#include "doctor/network.h"
#include "doctor/pci.h"
#include "doctor/rdma.h"
#include "plan/link.h"

namespace weft::doctor {

// What joins two hosts.
struct HostLink {
    plan::LinkKind kind = plan::LinkKind::kTcp;
    double gigabits = 0;      // of the port
    double most_bytes_s = 0;  // what the card's slot, or the cable, lets through; 0: all of it
    double share = 1;         // of the bandwidth that is left
    double latency_s = 0;     // of a message; 0: as of such a wire
    double waits_s = 0;       // on top of it
    bool operator==(const HostLink&) const = default;
};

struct HostState {
    std::optional<HostLink> link;  // to another such host; none: it works alone
    double bandwidth_share = 1;    // of its memory
    double room_bytes = 0;         // that a model may use; 0: as of the host
    bool operator==(const HostState&) const = default;
};

// What the prediction needs to know of a host.
struct HostFacts {
    std::map<std::string, int> gpus;  // how many of each PCI id, "1002:1586"
    double memory_bytes = 0;          // of the system; 0: not known
    double unified_bytes = 0;         // that processor and GPU share; 0: they don't
    bool operator==(const HostFacts&) const = default;
};

struct CostQuestion {
    HostFacts host;
    HostState so, otherwise;
    bool operator==(const CostQuestion&) const = default;
};

// 0: not known, or nothing fits.
struct CostFigures {
    std::string model;         // "qwen3-32b:q4_k_m"
    double tokens_s = 0;       // of one sequence
    double prompt_s = 0;       // of a prompt's tokens
    double wire_token_s = 0;   // of a token: its sums over the links
    double wire_prompt_s = 0;  // of a prompt
};

struct Cost {
    std::string machine;  // "strix-halo"; "": unknown, and only what the wire takes is told
    int hosts = 1, tensor_ranks = 1;
    int64_t context = 0, prompt = 0;  // tokens
    // Of one model, but where that fits only as it should be.
    CostFigures so, otherwise;
    // "qwen3-32b:q4_k_m on 2 x strix-halo (tp2): 9.1 tokens/s so, 11.4 otherwise; ..."
    std::string Text() const;
};

HostFacts FactsOf(HostView& view);

// The fastest port of a card that is up, without what the slot takes from it.
std::optional<HostLink> PortLink(HostView& view, const PciDevice& card);
std::optional<HostLink> PortLink(const RdmaPort& port);
// TCP over the interface.
std::optional<HostLink> PortLink(const NetDevice& device);
// TCP over the same port.
HostLink OverTcp(HostLink link);
// What a PCI Express link carries of data, bytes/s; 0 where it is not known.
double DataBytes(const PciLink& link);

// Of the host's link, so and as it should be.
CostQuestion LinkQuestion(HostView& view, const HostLink& so, const HostLink& otherwise);
// TCP in place of RDMA over `link`; where it is not given, over the fastest RDMA port that is up.
// Nothing where there is none.
std::optional<CostQuestion> TcpQuestion(HostView& view,
                                        std::optional<HostLink> link = std::nullopt);

}  // namespace weft::doctor
