// Machines, wires and runtimes as files describe them, and a cluster made of them.
//
// A machine (machines/NAME.json) is one host:
//     about       words
//     known_by    PCI ids of its devices, such as "1002:1586": by these 'weft doctor' knows it
//     maker       of its devices: "nvidia", "amd", "intel" or "apple". Unsaid: as known_by says;
//                 a program that has several backends runs the one that is for it
//     devices     how many ranks a host has: GPUs, or 1
//     memory      of a device that a model may use
//     pool        whose memory that is: "device" (its own, as unsaid), "unified" (the host's, of
//                 which a GPU computes in place), "host" (a processor's)
//     threads     of each rank of a processor (16)
//     bandwidth   of a device's memory. A data sheet's figure counts for kSustained of itself
//     compute     of a device: dense BF16 matrix products
//     half_compute   products of F16 with sums in F16, where these are faster (GeForce)
//     eight_bit      products of FP8 or INT8, where the device has them
//     products, attention   shares of compute that large products and fused attention over long
//                 sequences reach in training; both may be left out (plan/train_time.h)
//     tiers       links within the host: {"device": TIER, "host": TIER}, and "island" over several
//                 hosts; TIER: {"ranks": 8, "bandwidth": .., "latency": ..}, so many ranks share it
//     wire        the name of a wire: what joins hosts, unless the cluster says another
//                 or what was measured: {"bandwidth": .., "latency": ..}
//     watts_idle, watts_busy, price (of a host)
//     measured    tables of Weft itself (plan/measured.h)
// A wire (machines/wires.json): bandwidth of a host, one way, over all its rails; latency of a
// message; `instead`, another wire worth comparing; price of a host's card and part of a switch;
// `also`, other names.
// A runtime (machines/runtimes.json): what the program that runs costs beside its bytes:
//     also    other names of the program
//     like    the runtime whose figures it has, but for those that it says; null: none of that name
//     runs_on     makers whose devices it computes on, and "processor"; unsaid: any
//     on      in place of all figures: which runtime it is on which devices, {"nvidia": NAME, ..},
//             by maker, and on a "processor" and any "other" device
//     one_host, no_tensor, no_stages, doubled, by_heads    1: how it cannot be cut (Cuts)
//     op      seconds of each op of the Program
//     sync    seconds of each collective, beside the wire; sync_within: between ranks of one host
//     hop     seconds of each message between stages, beside the wire; hop_within: in one host
//     relay   1: what two other hosts send each other goes through the first one
//     route   seconds of each layer with experts, beside its ops: choosing them, sorting rows
//     narrow_experts  and more where a rank has fewer than kNarrowExpert columns of an expert in
//                     eight bits: kernels for blocks of such weights want wide ones
//     sequence    seconds a step for each sequence in it: scheduling, sampling, answering
//     in_turn     of what stages could do at once in a prompt, what they do one after another; all
//                 of it between hosts with `relay`, whose messages nobody can be ahead of
//     star    1: the first rank takes each other's addend in turn, and sends them the sum
//     crowd_share     of the wire's bandwidth that is left in a star of more than kSwitchSenders
//                     others, whose messages overflow a small switch
//     memory_share    of the memory's bandwidth that reading weights reaches
//     memory_most     and what that reaches at most, however fast the memory is
//     packed_share    of that, with quantized weights where the memory is faster than kFastMemory:
//                     they are unpacked on the way (those of eight bits not where eight_bit_share
//                     counts)
//     low_bit_share   of these, and of what products reach, with weights of less than four bits
//     cache_share     as memory_share, of the KV cache
//     grouped_share   of that, where several query heads share a KV head (cache_share)
//     reread_share    where query heads that share a KV head are no power of two, each further read
//                     of the cache takes this share of the first one (none)
//     rest_share      as memory_share, of what ops read and write that are neither
//     compute_share   of a device's compute that large products reach
//     compute_most    and what they reach at most, however large the device is
//     unpack_share    of that, where the weights are quantized
//     eight_bit_share   of a device's eight_bit, with weights of eight bits; unsaid: unpacked, too
//     bf16_share      of what products reach, with weights in BF16
//     expert_share    of what products reach, with experts
//     expert_memory   of the bandwidth, with experts
//     fast_expert_memory  instead, where the memory is faster than kFastMemory: kernels of an
//                     expert are short (expert_memory)
//     bf16_expert_share   and with experts in BF16
//     bf16_expert_memory  of the bandwidth, with these
//     vector_share    of a device's compute that products of up to kVectorRows rows reach, which
//                     run as so many products of a vector; unsaid: the memory alone holds them up
//     overlap         of reading quantized weights and of products of many rows with them, what
//                     of the shorter one runs beside the longer one
//     attention_share   of a device's compute that attention of many rows reaches (compute_share)
//     grouped_attention_share   where several query heads share a KV head (attention_share)
//     latent_attention_share    where all share a latent one (grouped_attention_share)
//     half            1: sums of products are in F16 (half_compute)
//     expert_tile_rows   as tile_rows, of experts (tile_rows)
//     experts_anew    in steps of fewer rows each row reads its experts anew (0)
//     tile_rows       products of more than kVectorRows rows are computed in whole tiles of so many
//     value_bytes     of a value that is summed over ranks; 0: as the Program has it
// A share that isn't said is all of it, or the one in brackets. devices and compute are of one
// rank; all figures are marked (plan/figure.h). Unknown keys and units are errors.
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

// What a device reads of its memory's data sheet: Strix Halo's 215 of 256 GB/s.
inline constexpr double kSustained = 0.84;
// Products of no more rows run as so many products of a vector, which the memory holds up.
inline constexpr int kVectorRows = 8;
// Bytes/s: only stacked memory (HBM) and the widest GDDR7 are faster.
inline constexpr double kFastMemory = 1e12;
// Columns: four of the blocks that weights of FP8 have a scale for.
inline constexpr int64_t kNarrowExpert = 512;
// More hosts than so many that send to one at once overflow the buffers of a small switch.
inline constexpr int kSwitchSenders = 4;

enum class Maker { kOther, kNvidia, kAmd, kIntel, kApple, kProcessor };

struct LinkTier {
    int ranks = 1;
    Figure bandwidth, latency;
    coll::Tier AsTier() const { return {bandwidth.value, latency.value, 0}; }
};

struct Wire {
    std::string name, about, instead;
    std::vector<std::string> also{};
    Figure bandwidth, latency;
    std::optional<Figure> price;
    coll::Tier AsTier() const { return {bandwidth.value, latency.value, 0}; }
};

struct Machine {
    std::string name, about, wire;
    // As --machines takes it: the name, or the path of the file; and then its ":devices", where
    // these were said. Machines with the same word are the same machine.
    std::string kind, word;
    std::vector<std::string> known_by;
    Maker maker = Maker::kOther;
    int devices = 1, threads = 16;
    backend::MemoryKind pool = backend::MemoryKind::kDevice;
    Figure memory, bandwidth, compute;
    std::vector<LinkTier> within;  // those of a host, ascending ranks
    std::optional<LinkTier> island;
    std::optional<Figure> half_compute, eight_bit, products, attention;
    std::optional<Figure> watts_idle, watts_busy, price;
    std::optional<Wire> own_wire;  // in place of `wire`, where the file has one
    std::optional<Measured> measured;
    double sustained_bytes_per_s() const {
        return bandwidth.value * (bandwidth.mark == Mark::kDataSheet ? kSustained : 1);
    }
};

// Of the runtimes Weft itself, which measured tables are of.
inline constexpr const char* kOwnRuntime = "weft";

// Keys and values: each query head's own, of several together, or all of one latent head.
enum class Heads { kOwn, kGrouped, kLatent };

// What a program cannot do that Weft can.
struct Cuts {
    bool one_host = false;   // it runs on one host alone
    bool no_tensor = false;  // it has no tensor ranks
    bool no_stages = false;  // it has no pipeline
    bool doubled = false;    // tensor ranks are a power of two, at most as many as KV heads
    bool by_heads = false;   // tensor ranks divide the heads
};

struct Runtime {
    std::string name, about;
    Cuts cuts;
    std::vector<std::string> also;  // other names
    std::vector<Maker> runs_on;     // empty: any
    // Of a program with several backends, of that for the machine.
    bool RunsOn(const Machine& machine) const;
    // Of a program with several backends: by maker, all of them. All other members are those of
    // Maker::kOther.
    std::vector<Runtime> backends;
    const Runtime& On(const Machine& machine) const;
    Figure op, sync, hop, compute_share;
    Figure sync_within, hop_within;  // where unsaid, sync and hop
    Figure memory_share{1, Mark::kMeasured, ""}, cache_share{1, Mark::kMeasured, ""};
    Figure grouped_share;  // where unsaid, cache_share
    Figure rest_share{1, Mark::kMeasured, ""};
    Figure packed_share{1, Mark::kMeasured, ""};
    Figure unpack_share{1, Mark::kMeasured, ""}, low_bit_share{1, Mark::kMeasured, ""};
    Figure bf16_share{1, Mark::kMeasured, ""}, bf16_expert_share{1, Mark::kMeasured, ""};
    Figure bf16_expert_memory{1, Mark::kMeasured, ""}, expert_share{1, Mark::kMeasured, ""};
    Figure overlap{1, Mark::kMeasured, ""}, crowd_share{1, Mark::kMeasured, ""};
    Figure expert_memory{1, Mark::kMeasured, ""}, reread_share{0, Mark::kMeasured, ""};
    Figure route{0, Mark::kMeasured, ""}, sequence{0, Mark::kMeasured, ""};
    Figure narrow_experts{0, Mark::kMeasured, ""}, in_turn{0, Mark::kMeasured, ""};
    Figure fast_expert_memory;  // where unsaid, expert_memory
    // Where unsaid, compute_share and the former each.
    Figure attention_share, grouped_attention_share, latent_attention_share;
    std::optional<Figure> eight_bit_share, compute_most, memory_most, vector_share;
    int value_bytes = 0, tile_rows = 1, expert_tile_rows = 1, experts_anew = 0;
    bool relay = false, star = false, half = false;
    // Bytes/s that reading weights reaches, those of experts or others.
    double WeightRate(const Machine& machine, DType weights, bool experts = false) const;
    // FLOP/s that large products with weights of a type reach, and attention of many rows.
    double ProductFlops(const Machine& machine, DType weights, bool experts = false) const;
    double AttentionFlops(const Machine& machine, Heads heads) const;
    // Products with such weights are in eight bits, as the device has them.
    bool InEightBits(const Machine& machine, DType weights) const;
    // A device's compute, by what sums are in.
    const Figure& Most(const Machine& machine) const;
};

// Where a rank is: a host of the cluster, a device of it, and the first of the hosts beside it that
// are the same machine.
struct Place {
    int host = 0, device = 0, run = 0;
};

// "apple"; "other".
const char* MakerText(Maker maker);

// Hosts in order, ranks numbered host by host.
struct Cluster {
    std::string words;
    std::vector<Machine> hosts;
    Wire wire;
    bool wire_assumed = false;  // none was named, and the hosts' own ones are not the same
    int ranks() const;
    Place PlaceOf(int rank) const;
    int host_of(int rank) const;
    const Machine& machine_of(int rank) const { return hosts[static_cast<size_t>(host_of(rank))]; }
    bool alike() const;  // all hosts are the same machine
    // What the hosts and their wires cost; none: the price of one of them is not known.
    std::optional<double> price() const;
    // The tiers of ranks first, first + stride, ... (count of them).
    coll::TierGroup GroupOf(int first, int count, int stride = 1) const;
    coll::Tier Between(int rank, int other) const;
    // The link of two ranks within a host, or of the island that both are on; null: the wire.
    const LinkTier* LinkOf(Place one, Place other) const;
    // Neighbours among such ranks, on the host that has most of them (of several, the slowest);
    // null: no host has two.
    const LinkTier* NearLinkOf(int first, int count, int stride) const;
    // These hosts of it; its words are as --machines takes them.
    Cluster Part(std::span<const int> which) const;
    // Hosts [0, count) of it; more than there are: the last one again.
    Cluster WithHosts(int count) const;
    // "2xstrix-halo+1xrtx-4090": the hosts as --machines takes them, without the wire.
    std::string HostWords() const;
};

// The files of machines/, which are part of the program.
class Library {
  public:
    static Result<Library> Open();
    // A name of the folder, or a path of such a file.
    Result<Machine> FindMachine(const std::string& word) const;
    Result<Wire> FindWire(const std::string& name) const;
    Result<Runtime> FindRuntime(const std::string& name) const;
    // "4xstrix-halo,roce", "2xstrix-halo+1xrtx-4090,tcp", "h100" (one host), "rtx-3090:2" (two of
    // them in one host, over PCIe where the file has fewer), "RTX 3090, 10GbE" (of names only
    // letters and digits count; a comma may stand for a plus). Without a wire that which the
    // machines have; the slowest of these, where they differ. Errors: kUsage.
    Result<Cluster> ParseCluster(const std::string& words) const;
    // The machine whose devices have this PCI id, with `count` of them (fewer than the file says
    // are a part of such a host). Null where none has, or it has no links for so many.
    std::optional<Machine> MachineWith(std::string_view pci_id, int count) const;
    std::vector<std::string> MachineNames() const;
    std::vector<std::string> WireNames() const;
    const std::map<std::string, Machine>& machines() const { return machines_; }
    // The machine's own one. Errors: kUsage.
    Result<Wire> OwnWireOf(const Machine& machine) const;

  private:
    Status JoinByOwnWires(Cluster& cluster) const;
    Status CheckNoWire(const std::string& word, const std::string& behind) const;
    // Does it begin with a machine, or with the name of a file of one?
    bool NamesMachine(std::string words) const;

    std::map<std::string, Machine> machines_;
    std::map<std::string, Wire> wires_;
    std::map<std::string, Runtime> runtimes_;
};

// As "pool" has it.
const char* PoolText(backend::MemoryKind kind);

// Of one file's text. Errors: kUsage, naming `where` and the key.
Result<Machine> ParseMachine(std::string_view text, const std::string& name,
                             const std::string& where);

// Files that are part of the program, by folder ("machines", "shapes") and name without ".json".
struct EmbeddedFile {
    std::string_view folder, name, text;
};
std::span<const EmbeddedFile> EmbeddedFiles();

}  // namespace weft::plan
