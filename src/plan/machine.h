// Machines and wires as files describe them, and a cluster made of them.
//
// A machine is one host: a file of a user, or a row of machines/machines.json. Every figure is
// marked (plan/figure.h); unknown keys and units are errors.
//     about       description
//     known_by    PCI ids of its devices, such as "1002:1586", by which 'weft doctor' recognizes it
//     devices     ranks per host: the number of GPUs, or 1
//     memory      memory of one device that a model may use
//     pool        kind of that memory: "device" (a card's own, the default), "unified" (the host's
//                 memory, which its GPU shares), "host" (a processor's)
//     threads     threads of each rank of a processor (16)
//     bandwidth   of a device's memory; a data-sheet figure is multiplied by kSustained
//     compute     of a device: dense BF16 matrix products
//     products, attention   optional: measured shares of compute that training's products and
//                 attention reach on this machine
//     tiers       optional: {"host": {"ranks": 8, "bandwidth": .., "latency": ..}}, the link
//                 between devices of the host; without it they exchange data over the host's PCIe
//     wire        name of the wire between hosts, or a measured one: {"bandwidth": .., ..}
//     watts_idle, watts_busy, price   of a host
//     measured    tables that `weft plan --measure` wrote (plan/measured.h)
// A wire (a row of machines/wires.json): bandwidth of a host, one way, over all its rails; latency
// of a message; `instead`, another wire worth comparing; price of a host's card and its share of a
// switch; `also`, other names.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "coll/seconds.h"
#include "plan/figure.h"
#include "plan/measured.h"

namespace weft::plan {

// Share of the data sheet's memory bandwidth that a device reaches: Strix Halo reads 215 of 256
// GB/s.
inline constexpr double kSustained = 0.84;

struct LinkTier {
    int ranks = 1;
    Figure bandwidth, latency;
    coll::Tier AsTier() const { return {bandwidth.value, latency.value, 0}; }
};

struct Wire {
    std::string name, about, instead;
    Figure bandwidth, latency;
    std::optional<Figure> price;
    coll::Tier AsTier() const { return {bandwidth.value, latency.value, 0}; }
};

struct Machine {
    std::string name, about, wire;
    // kind: the name, or the path of the file. word: kind in the form of --machines, with
    // ":devices" if that was given. Machines with equal words are equal.
    std::string kind, word;
    std::vector<std::string> known_by;
    int devices = 1, threads = 16;
    backend::MemoryKind pool = backend::MemoryKind::kDevice;
    Figure memory, bandwidth, compute;
    std::optional<LinkTier> within;  // between devices of the host; set if there are several
    std::optional<Figure> products, attention;
    std::optional<Figure> watts_idle, watts_busy, price;
    std::optional<Wire> own_wire;  // replaces `wire` if the file describes its own wire
    std::optional<Measured> measured;
    double sustained_bytes_per_s() const {
        return bandwidth.value * (bandwidth.mark == Mark::kDataSheet ? kSustained : 1);
    }
    bool is_processor() const { return pool == backend::MemoryKind::kHost; }
    // All devices of a host share the host's memory.
    bool shares_memory() const { return pool != backend::MemoryKind::kDevice; }
};

// Position of a rank: a host of the cluster and a device of that host.
struct Place {
    int host = 0, device = 0;
};

// Hosts in order; ranks are numbered host by host.
struct ClusterSpec {
    std::string words;
    std::vector<Machine> hosts;
    Wire wire;
    // No wire was named: the hosts' usual one is assumed, the slowest if they differ.
    bool wire_assumed = false;
    int ranks() const;
    Place PlaceOf(int rank) const;
    int host_of(int rank) const { return PlaceOf(rank).host; }
    const Machine& machine_of(int rank) const { return hosts[static_cast<size_t>(host_of(rank))]; }
    bool alike() const;  // all hosts are the same machine
    // Price of the hosts and their wires; null: a price is missing.
    std::optional<double> price() const;
    // Link tiers of the `count` ranks first, first + stride, ...
    coll::TierGroup GroupOf(int first, int count, int stride = 1) const;
    coll::Tier Between(int rank, int other) const;
    // The link of two ranks within a host; null: they are on different hosts.
    const LinkTier* LinkOf(Place one, Place other) const;
    // The link among these ranks on the host that holds most of them (if several hosts tie, the
    // slowest link); null: no host holds two of them.
    const LinkTier* NearLinkOf(int first, int count, int stride) const;
    // A cluster of these hosts, with words in the form of --machines.
    ClusterSpec Part(std::span<const int> which) const;
    // Hosts [0, count). Beyond the last host, repeats it.
    ClusterSpec WithHosts(int count) const;
    // "2xstrix-halo+1xrtx-4090": the hosts in the form of --machines, without the wire.
    std::string HostWords() const;
};

// The tables of machines/, which are part of the program.
class Library {
  public:
    static Result<Library> Open();
    // word: a name in machines/, or the path of a machine file.
    Result<Machine> FindMachine(const std::string& word) const;
    Result<Wire> FindWire(const std::string& name) const;
    // "4xstrix-halo,roce", "2xstrix-halo+1xrtx-4090,tcp", "h100" (one host), "rtx-3090:2" (one host
    // with two cards), "RTX 3090, 10GbE" (only letters and digits of names count; a comma may
    // replace a plus). Without a wire, the machines' own wire joins the hosts; if they differ, the
    // slowest. Errors: kUsage.
    Result<ClusterSpec> ParseCluster(const std::string& words) const;
    // The machine whose devices have this PCI id, with `count` of them. Null: no machine has the
    // id, or its hosts have fewer devices.
    std::optional<Machine> MachineWith(std::string_view pci_id, int count) const;
    std::vector<std::string> MachineNames() const;
    std::vector<std::string> WireNames() const;
    const std::map<std::string, Machine>& machines() const { return machines_; }
    // The machine's own wire. Errors: kUsage.
    Result<Wire> OwnWireOf(const Machine& machine) const;

  private:
    Status JoinByOwnWires(ClusterSpec& cluster) const;
    Status CheckNoWire(const std::string& word, const std::string& behind) const;
    // The words begin with the name of a machine or the path of a machine file.
    bool NamesMachine(std::string words) const;

    std::map<std::string, Machine> machines_;
    std::map<std::string, Wire> wires_;
};

// A host with this number of the machine's devices. Watts and price grow with the number; the price
// of the desktop around the cards counts once. Errors: kUsage.
Result<Machine> WithDevices(Machine machine, int devices);

// The spelling of "pool" in machine files.
const char* PoolText(backend::MemoryKind kind);

// Parses the text of one machine file. Errors: kUsage, naming `where` and the key.
Result<Machine> ParseMachine(std::string_view text, const std::string& name,
                             const std::string& where);

// Files that are part of the program, by folder ("machines", "shapes") and name without ".json".
struct EmbeddedFile {
    std::string_view folder, name, text;
};
std::span<const EmbeddedFile> EmbeddedFiles();

}  // namespace weft::plan
