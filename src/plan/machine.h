// Machines and wires (kinds of network links between hosts) as files describe them, and clusters.
//
// A machine is one host. It is described by a user's file or a row of machines/machines.json. Every
// figure has a mark (plan/figure.h); unknown keys and units are errors.
//     about       description
//     known_by    PCI ids of its devices, such as "1002:1586", by which 'weft doctor' recognizes it
//     devices     number of devices of the host, each with one rank: its GPUs, or 1
//     memory      bytes of one device's memory that a model may use
//     pool        kind of that memory: "device" (a card's own, the default), "unified" (memory
//                 that the processor and its GPU share), "host" (memory of a processor)
//     threads     threads of each rank if the device is a processor (16)
//     bandwidth   of one device's memory; a data-sheet figure is multiplied by kSustained
//     compute     FLOP/s of one device in dense BF16 matrix products
//     family      optional: architecture of the devices (names: plan/weft_rates.h); the devices of
//                 a family reach similar shares of their limits
//     products, attention   optional: shares of `compute` that matrix products and attention reach
//                 in training on this machine, as measured or as published for other programs
//     link        optional: bandwidth of a device's link to the others of the host (NVLink), which
//                 these programs use in training
//     tiers       optional: {"host": {"ranks": 8, "bandwidth": .., "latency": ..}}, the link
//                 between devices of the host; default: the devices exchange data over PCIe
//     wire        name of the wire between hosts, or its measured figures: {"bandwidth": .., ..};
//                 if these have no price, it is part of the machine's
//     host        optional, of GPUs: {"memory": .., "bandwidth": .., "compute": .., "threads": ..,
//                 "drive": ..}, the host's processor, which computes experts that do not fit into
//                 the GPUs. All but the memory have defaults (plan/host_part.h); drive: bytes a
//                 second that its drive reads, for experts that do not fit into its memory either
//     watts_idle, watts_busy, price   of the whole host
//     measured    tables that `weft plan --measure` wrote (plan/measured.h)
//
// A row of machines/machines.json also has other names of the machine (`also`).
// machines/processors.json describes processors by their series (plan/machine_names.h).
//
// Each row of machines/wires.json describes a wire:
//     bandwidth   of a host, in one direction, over all its network ports together
//     latency     of one message
//     price       of one host's network card and its share of a switch
//     instead     name of another wire that is worth comparing
//     also        other names of this wire
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

// Share of the data sheet's memory bandwidth that a device reaches. Strix Halo, for example, reads
// 215 of 256 GB/s.
inline constexpr double kSustained = 0.84;

struct LinkTier {
    int ranks = 1;
    Figure bandwidth, latency;
    coll::Tier AsTier() const { return {bandwidth.value, latency.value, 0}; }
};

// The bandwidth of PCIe 4.0 with 16 lanes, one way.
inline constexpr double kPcieBytesPerS = 14e9;

// The processor of a host of GPUs, and its memory. All GPUs of the host share them.
struct HostPart {
    Figure memory, bandwidth, compute;
    int threads = 8;
    std::optional<Figure> drive;
};

struct Wire {
    std::string name, about, instead;
    Figure bandwidth, latency;
    std::optional<Figure> price;
    coll::Tier AsTier() const { return {bandwidth.value, latency.value, 0}; }
};

struct Machine {
    std::string name, about, wire;
    // kind: the machine's name, or the path of its file. word: the machine in the form of
    // --machines, that is kind, with :DEVICES and +MEMORY if a number of devices or the host's
    // memory was given. Machines with equal words are equal.
    std::string kind, word;
    std::string family;  // empty: not given
    std::vector<std::string> known_by;
    int devices = 1, threads = 16;
    backend::MemoryKind pool = backend::MemoryKind::kDevice;
    Figure memory, bandwidth, compute;
    std::optional<LinkTier> within;  // link between devices of the host; set if it has several
    std::optional<LinkTier> link;    // the vendor's link, used in published training
    std::optional<Figure> products, attention;
    std::optional<Figure> watts_idle, watts_busy, price;
    std::optional<HostPart> host;
    std::optional<Wire> own_wire;  // replaces `wire` if the file describes its own wire
    std::optional<Measured> measured;
    double sustained_bytes_per_s() const {
        return bandwidth.value * (bandwidth.mark == Mark::kDataSheet ? kSustained : 1);
    }
    bool is_processor() const { return pool == backend::MemoryKind::kHost; }
    // Whether all devices of a host share the host's memory.
    bool shares_memory() const { return pool != backend::MemoryKind::kDevice; }
};

// Position of a rank: a host of the cluster and a device of that host.
struct Place {
    int host = 0, device = 0;
};

// A cluster: hosts and the wire between them. Ranks are numbered host by host.
struct ClusterSpec {
    std::string words;
    std::vector<Machine> hosts;
    Wire wire;
    // True if there are several hosts and the user named no wire, so `wire` is the hosts' own wire
    // or, if these differ, the slowest of them. False if all hosts are of one machine file that
    // describes its wire.
    bool wire_assumed = false;
    // Connects the hosts by this wire. Tables that were measured over another wire are dropped.
    void Join(const Wire& by);
    int ranks() const;
    Place PlaceOf(int rank) const;
    int host_of(int rank) const { return PlaceOf(rank).host; }
    const Machine& machine_of(int rank) const { return hosts[static_cast<size_t>(host_of(rank))]; }
    bool alike() const;  // whether all hosts are the same machine
    // Price of the hosts and their wires; nullopt: the price of one of them is unknown.
    std::optional<double> price() const;
    // The links among the `count` ranks first, first + stride, ...: those within a host and those
    // between hosts.
    coll::TierGroup GroupOf(int first, int count, int stride = 1) const;
    // The link between two ranks.
    coll::Tier Between(int rank, int other) const;
    // The link between two devices of one host; null: the devices are on different hosts.
    const LinkTier* LinkOf(Place one, Place other) const;
    // The link within the host that has most of the `count` ranks first, first + stride, ... If
    // several hosts have equally many, the slowest of their links. Returns null if no host has two
    // of the ranks.
    const LinkTier* NearLinkOf(int first, int count, int stride) const;
    // The cluster of the hosts with these indices.
    ClusterSpec Part(std::span<const int> which) const;
    // The cluster of hosts [0, count). If there are fewer hosts, the last one is repeated.
    ClusterSpec WithHosts(int count) const;
    // The cluster for a prediction of training: vendors' links (Machine::link) replace PCIe.
    ClusterSpec WithVendorLinks() const;
    // "2xstrix-halo+1xrtx-4090": the hosts in the form of --machines, without the wire.
    std::string HostWords() const;
};

// A JSON file that is embedded in the program. folder: "machines" or "shapes"; name: without
// ".json".
struct EmbeddedFile {
    std::string_view folder, name, text;
};
std::span<const EmbeddedFile> EmbeddedFiles();

// The tables in machines/, which are embedded in the program.
class Library {
  public:
    // Errors: kUsage (a name is given twice, a row lacks cells, or a row is not a machine or wire);
    // the message names the file and the row.
    static Result<Library> Open(std::span<const EmbeddedFile> files = EmbeddedFiles());
    // word: a name in machines/machines.json, a processor (plan/machine_names.h), or the path of a
    // machine file. Errors: kUsage; the message has the nearest names.
    Result<Machine> FindMachine(const std::string& word) const;
    Result<Wire> FindWire(const std::string& name) const;
    // "4xstrix-halo,roce", "2xstrix-halo+1xrtx-4090,tcp", "h100" (one host), "rtx-3090:2" (one host
    // with two cards), "rtx-3090+128gb" (the host's memory, plan/host_part.h), "RTX 3090, 10GbE"
    // (other characters of names than letters and digits are
    // ignored; a comma may replace a plus). If the words name no wire, the hosts are connected by
    // their own wire; if their wires differ, by the slowest of these. Errors: kUsage.
    Result<ClusterSpec> ParseCluster(const std::string& words) const;
    // The machine whose devices have this PCI id, with `count` devices. nullopt: no machine has the
    // id, or the machine holds fewer devices.
    std::optional<Machine> MachineWith(std::string_view pci_id, int count) const;
    std::vector<std::string> MachineNames() const;
    std::vector<std::string> WireNames() const;
    // The patterns of processors' names (plan/machine_names.h).
    std::vector<std::string> SeriesPatterns() const;
    const std::map<std::string, Machine>& machines() const { return machines_; }
    // The machine's own wire. Errors: kUsage.
    Result<Wire> OwnWireOf(const Machine& machine) const;

  private:
    std::optional<Machine> KnownMachine(const std::string& word) const;
    Error NoMachine(const std::string& word) const;
    // Removes the number of hosts in front of a machine's name, such as 4x, and returns it. Without
    // a number, returns 1.
    Result<int> TakeHostsOf(std::string& word) const;
    Status JoinByOwnWires(ClusterSpec& cluster) const;
    Status CheckNoWire(const std::string& word, const std::string& behind) const;
    // Whether the words begin with the name of a machine or the path of a machine file.
    bool NamesMachine(std::string words) const;

    std::map<std::string, Machine> machines_;
    std::map<std::string, std::string> also_;  // other names of machines
    std::map<std::string, nlohmann::json> series_;
    std::map<std::string, Wire> wires_;
};

// The link between two hosts as their network cards report it.
enum class LinkKind { kTcp, kRoce, kInfiniBand, kThunderbolt };

// Returns the known wire of this kind and speed (`gigabits`, > 0). If the speed is between those of
// two known wires, the slower wire's bandwidth is scaled in proportion to the speed. TCP never
// exceeds the fastest known TCP wire, because the copies of one stream limit it. Among ports of one
// kind, a faster port never gets less bandwidth. RDMA never gets less bandwidth than TCP over the
// same port.
Result<Wire> WireOf(const Library& library, LinkKind kind, double gigabits);

// Returns the machine with this number of devices. The machine's watts and price grow with the
// number; the price of the desktop computer around the cards is counted once. Errors: kUsage.
Result<Machine> WithDevices(Machine machine, int devices);

// Parses the text of one machine file. Errors: kUsage; the message names `where` and the key.
Result<Machine> ParseMachine(std::string_view text, const std::string& name,
                             const std::string& where);
// The text of the machine file of a measured machine, for ParseMachine.
std::string MachineFileText(Machine machine);

}  // namespace weft::plan
