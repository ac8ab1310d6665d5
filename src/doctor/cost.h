// How much speed a fault costs: the difference between two predictions of `weft plan`
// (plan/predict.h), one for the hosts with the fault, the other for the same hosts without it.
//
// A check only states the actual and the expected state of the host (CostQuestion). StateCosts
// computes the figures afterwards, for the largest known model that fits, with all devices as
// tensor ranks. It assumes two such hosts if a link is at fault, else one host. If the host is not
// in machines/, its memory and compute rates are unknown. Then only the time on the links is
// stated, because it is the same on any machine. Without a link, there are no figures.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "doctor/host_view.h"
#include "doctor/network.h"
#include "doctor/pci.h"
#include "doctor/rdma.h"
#include "plan/machine.h"

namespace weft::doctor {

// The link between two hosts.
struct HostLink {
    plan::LinkKind kind = plan::LinkKind::kTcp;
    double gigabits = 0;      // speed of the port
    double most_bytes_s = 0;  // limit of the card's slot or the cable; 0: none
    double share = 1;         // share of the bandwidth that remains with the fault
    double latency_s = 0;     // of a message; 0: as in machines/wires.json
    double waits_s = 0;       // added to the latency
    bool operator==(const HostLink&) const = default;
};

struct HostState {
    std::optional<HostLink> link;  // to a second host of this kind; nullopt: there is one host
    double bandwidth_share = 1;    // share of the memory's bandwidth that remains
    double space_bytes = 0;        // memory that a model may use; 0: follows from HostFacts
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
    HostState faulty, healthy;  // with the fault, and without it
    bool operator==(const CostQuestion&) const = default;
};

// Speed of a model. A figure of 0: unknown, or no model fits.
struct CostFigures {
    std::string model;         // "qwen3-32b:q4_k_m"
    double tokens_s = 0;       // tokens/s of one sequence
    double prompt_s = 0;       // seconds of the prompt
    double wire_token_s = 0;   // seconds of a token's all-reduces
    double wire_prompt_s = 0;  // seconds of a prompt's all-reduces
};

struct Cost {
    std::string machine;  // "strix-halo"; "": unknown, only wire times are stated
    int hosts = 1, tensor_ranks = 1;
    int64_t context = 0, prompt = 0;  // tokens
    // The figures with the fault and without it. Both are of the same model, unless that model fits
    // only without the fault.
    CostFigures faulty, healthy;
    // "qwen3-32b:q4_k_m on 2 x strix-halo (tp2): 9.1 tokens/s now, 11.4 without the fault; ..."
    std::string Text() const;
};

HostFacts FactsOf(HostView& view);

// The link over the card's fastest port that is up, without the limit of the card's slot.
std::optional<HostLink> PortLink(HostView& view, const PciDevice& card);
std::optional<HostLink> PortLink(const RdmaPort& port);
// The link if TCP runs over this interface.
std::optional<HostLink> PortLink(const NetDevice& device);
// The link if TCP runs over the port of `link`.
HostLink OverTcp(HostLink link);
// Data rate of a PCI Express link, bytes/s; 0: unknown.
double DataBytes(const PciLink& link);

// A question about a link. faulty: its actual state; healthy: its expected state.
CostQuestion LinkQuestion(HostView& view, const HostLink& faulty, const HostLink& healthy);
// A question about the use of TCP instead of RDMA. link: the link with RDMA; nullopt: the link
// over the fastest RDMA port that is up. Returns nullopt if no RDMA port is up.
std::optional<CostQuestion> TcpQuestion(HostView& view,
                                        std::optional<HostLink> link = std::nullopt);

}  // namespace weft::doctor
