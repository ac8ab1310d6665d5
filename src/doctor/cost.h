// Cost of a fault in speed: the difference between two predictions of `weft plan` (plan/predict.h),
// for the hosts with the fault and without it.
//
// A check only states the actual and the expected state of the host (CostQuestion). StateCosts
// computes the figures afterwards: for the largest known model that fits, on two such hosts with
// all devices as tensor ranks if a link is at fault, else on one host. If the host is not in
// machines/, its memory and compute rates are unknown; then only the time on the links is stated,
// which is the same on any machine. If the link is unknown, too, there are no figures.
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

// The link between two hosts.
struct HostLink {
    plan::LinkKind kind = plan::LinkKind::kTcp;
    double gigabits = 0;      // speed of the port
    double most_bytes_s = 0;  // limit of the card's slot or the cable; 0: none
    double share = 1;         // remaining share of the bandwidth
    double latency_s = 0;     // of a message; 0: that of the plan's wire
    double waits_s = 0;       // added to the latency
    bool operator==(const HostLink&) const = default;
};

struct HostState {
    std::optional<HostLink> link;  // to another such host; nullopt: one host alone
    double bandwidth_share = 1;    // of its memory
    double room_bytes = 0;         // usable by a model; 0: as HostFacts says
    bool operator==(const HostState&) const = default;
};

// Facts about a host that the prediction needs.
struct HostFacts {
    std::map<std::string, int> gpus;  // count by PCI id, "1002:1586"
    double memory_bytes = 0;          // system memory; 0: unknown
    double unified_bytes = 0;         // shared by processor and GPU; 0: not shared
    bool operator==(const HostFacts&) const = default;
};

struct CostQuestion {
    HostFacts host;
    HostState so, otherwise;
    bool operator==(const CostQuestion&) const = default;
};

// 0: unknown, or no model fits.
struct CostFigures {
    std::string model;         // "qwen3-32b:q4_k_m"
    double tokens_s = 0;       // one sequence
    double prompt_s = 0;       // seconds of the prompt
    double wire_token_s = 0;   // seconds of a token's all-reduces
    double wire_prompt_s = 0;  // seconds of a prompt's all-reduces
};

struct Cost {
    std::string machine;  // "strix-halo"; "": unknown, only wire times are stated
    int hosts = 1, tensor_ranks = 1;
    int64_t context = 0, prompt = 0;  // tokens
    // Both of one model, unless that fits only in the expected state.
    CostFigures so, otherwise;
    // "qwen3-32b:q4_k_m on 2 x strix-halo (tp2): 9.1 tokens/s now, 11.4 without the fault; ..."
    std::string Text() const;
};

HostFacts FactsOf(HostView& view);

// The card's fastest port that is up, without the limit of its slot.
std::optional<HostLink> PortLink(HostView& view, const PciDevice& card);
std::optional<HostLink> PortLink(const RdmaPort& port);
// TCP over the interface.
std::optional<HostLink> PortLink(const NetDevice& device);
// TCP over the same port.
HostLink OverTcp(HostLink link);
// Data rate of a PCI Express link, bytes/s; 0: unknown.
double DataBytes(const PciLink& link);

// Question about a link: actual state and expected state.
CostQuestion LinkQuestion(HostView& view, const HostLink& so, const HostLink& otherwise);
// Question about TCP in place of RDMA over `link`; without `link`, over the fastest RDMA port that
// is up. nullopt: there is none.
std::optional<CostQuestion> TcpQuestion(HostView& view,
                                        std::optional<HostLink> link = std::nullopt);

}  // namespace weft::doctor
