// weft hosts: lists the hosts of a cluster, their jobs and the cables between them, and adds and
// removes hosts.
#include <algorithm>
#include <optional>

#include "base/on_threads.h"
#include "base/printable.h"
#include "cli/cluster/host_facts.h"
#include "cli/commands.h"
#include "cluster/join/build.h"
#include "cluster/join/dial.h"
#include "cluster/join/handshake.h"
#include "cluster/socket.h"
#include "fleet/beyond.h"
#include "fleet/find.h"
#include "fleet/hosts_change.h"

namespace weft::cli {
namespace {

struct HostsFlags {
    std::string cluster = "home", key_file, ssh;
    bool json = false;
};

struct HostList {
    fleet::ClusterFile file;
    fleet::SelfFacts self;
    fleet::Hearing hearing;
    std::vector<fleet::FoundHost> beyond;  // on no cable of this host: found through other hosts
    // The jobs of this host's worker and of the peers' workers; nullopt: no answer.
    std::optional<cluster::PlaceAnswer> own_jobs;
    std::vector<std::optional<cluster::PlaceAnswer>> peer_jobs;
};

constexpr int64_t kAskJobsMs = 1000;
constexpr int64_t kAskOwnMs = 200;  // often there is no worker here

constexpr const char* kHostsFooter =
    "Examples:\n"
    "  weft hosts\n"
    "  weft hosts add me@b\n"
    "  weft hosts remove b";

// ---- Jobs ---------------------------------------------------------------------------------------

void RequestJobs(HostList& list) {
    const auto key = cluster::ReadKeyFile(list.file.key);
    if (!key.ok()) return;
    std::vector<std::string> addresses = {fmt::format("127.0.0.1:{}", cluster::kWorkerPort)};
    for (const fleet::Peer& peer : list.hearing.peers) {
        const fleet::ReportedCable* best = fleet::BestCable(peer, list.hearing.wires);
        addresses.push_back(best == nullptr ? "" : fleet::WorkerAddress(peer, *best));
    }
    std::vector<std::optional<cluster::PlaceAnswer>> answers(addresses.size());
    [[maybe_unused]] const Status done = OnThreads(answers.size(), answers.size(), [&](size_t i) {
        const int64_t ms = i == 0 ? kAskOwnMs : kAskJobsMs;
        auto answer = cluster::QueryWorker(addresses[i], *key, Deadline::In(ms));
        if (answer.ok()) answers[i] = *std::move(answer);
        return Status();
    });
    list.own_jobs = std::move(answers.front());
    list.peer_jobs.assign(std::move_iterator(answers.begin() + 1),
                          std::move_iterator(answers.end()));
}

// ---- As text ------------------------------------------------------------------------------------

std::string HostRemark(const fleet::Peer& peer, const HostList& list) {
    std::string remark;
    if (!cluster::CanWorkTogether(peer.build, {})) {
        remark = "  (cannot work with this host: its protocol differs)";
    } else if (cluster::BuildsDiffer(peer.build, {})) {
        remark = fmt::format("  (its {} differs from this host's)",
                             peer.build.version == WEFT_VERSION ? "commit" : "version");
    }
    const auto same = [&](const fleet::Peer& each) { return each.name == peer.name; };
    if (std::ranges::count_if(list.hearing.peers, same) > 1 || peer.name == list.self.name) {
        remark += "  (another host has this name, too)";
    }
    return remark;
}

void PrintHosts(const HostList& list) {
    size_t width = std::max<size_t>(4, list.self.name.size());
    for (const fleet::Peer& peer : list.hearing.peers) width = std::max(width, peer.name.size());
    const cluster::Build own;
    size_t commit = std::max<size_t>(6, own.commit.size());
    for (const fleet::Peer& peer : list.hearing.peers) {
        commit = std::max(commit, peer.build.commit.size());
    }
    const auto row = [&](const std::string& name, const std::string& memory,
                         const std::string& version, const std::string& built,
                         const std::string& device) {
        PrintOut("{:<{}} {:>10}  {:<8} {:<{}} {}\n", name, width, memory, version, built, commit,
                 device);
    };
    row("host", "memory", "weft", "commit", "device");
    for (const fleet::FoundHost& host : list.beyond) width = std::max(width, host.name.size());
    row(list.self.name, BytesText(list.self.memory_bytes), own.version, own.commit,
        list.self.device + "  (this host)");
    for (const fleet::Peer& peer : list.hearing.peers) {
        const std::string& built = peer.build.commit;
        row(peer.name, BytesText(peer.memory_bytes), peer.build.version,
            built.empty() ? "-" : built, peer.device + HostRemark(peer, list));
    }
    for (const fleet::FoundHost& host : list.beyond) {
        row(host.name, "-", "-", "-", fmt::format("(reached by way of {})", host.via));
    }
}

void PrintJobs(const HostList& list) {
    bool first = true;
    const auto print = [&](const std::string& host,
                           const std::optional<cluster::PlaceAnswer>& answer) {
        if (!answer.has_value() || (answer->jobs.empty() && answer->waiting == 0)) return;
        if (std::exchange(first, false)) PrintOut("\njobs\n");
        for (const std::string& job : answer->jobs) {
            PrintOut("  {}  {}\n", host, Printable(job));
        }
        if (answer->waiting > 0) PrintOut("  {}  waiting in line: {}\n", host, answer->waiting);
    };
    print(list.self.name, list.own_jobs);
    for (size_t i = 0; i < list.peer_jobs.size(); ++i) {
        print(list.hearing.peers[i].name, list.peer_jobs[i]);
    }
}

void AddJobs(Json& host, const std::optional<cluster::PlaceAnswer>& answer) {
    if (!answer.has_value()) return;
    host["jobs"] = answer->jobs;
    host["places"] = answer->places;
    host["waiting"] = answer->waiting;
}

std::string CableText(uint32_t mbps, bool rdma) {
    const std::string speed = fleet::SpeedText(mbps);
    return fmt::format("{}{}", speed.empty() ? "speed not known" : speed, rdma ? ", RDMA" : "");
}

const fleet::Wire* WireOf(const HostList& list, const std::string& interface) {
    const auto found = std::ranges::find(list.hearing.wires, interface, &fleet::Wire::name);
    return found == list.hearing.wires.end() ? nullptr : &*found;
}

bool HasRdma(const HostList& list, const fleet::ReportedCable& cable) {
    const fleet::Wire* own = WireOf(list, cable.interface);
    return own != nullptr && !own->rdma.empty() && !cable.peer_rdma.empty();
}

// Prints each cable between two other hosts once.
struct FarCable {
    const fleet::Peer *from, *to;
    const fleet::Cable* cable;
};
std::vector<FarCable> FarCables(const HostList& list) {
    std::vector<FarCable> far;
    for (const fleet::Peer& from : list.hearing.peers) {
        for (const fleet::Peer& to : list.hearing.peers) {
            for (const fleet::Cable& cable : from.cables) {
                if (cable.peer != to.host || from.host == to.host) continue;
                const bool known = std::ranges::any_of(far, [&](const FarCable& each) {
                    return each.from == &to && each.to == &from &&
                           each.cable->interface == cable.peer_interface &&
                           each.cable->peer_interface == cable.interface;
                });
                if (!known) far.push_back({&from, &to, &cable});
            }
        }
    }
    return far;
}

void PrintCables(const HostList& list) {
    PrintOut("\ncables\n");
    for (const fleet::Peer& peer : list.hearing.peers) {
        for (const fleet::ReportedCable& cable : peer.heard) {
            PrintOut("  {} {} - {} {}  {}\n", list.self.name, cable.interface, peer.name,
                     cable.peer_interface,
                     CableText(fleet::CableMbps(cable, list.hearing.wires), HasRdma(list, cable)));
        }
    }
    for (const FarCable& each : FarCables(list)) {
        PrintOut("  {} {} - {} {}  {}\n", each.from->name, each.cable->interface, each.to->name,
                 each.cable->peer_interface, CableText(each.cable->mbps, each.cable->rdma));
    }
}

// Notes about missing information, with reasons.
std::vector<std::string> Notes(const HostList& list) {
    std::vector<std::string> notes;
    for (const std::string& name : fleet::ChooseHosts(list.file, list.hearing).missing) {
        if (std::ranges::find(list.beyond, name, &fleet::FoundHost::name) != list.beyond.end()) {
            continue;
        }
        notes.push_back(
            fmt::format("the cluster file names {}, but discovery did not find it", name));
    }
    for (const fleet::Peer& peer : list.hearing.peers) {
        const std::string why = cluster::BuildRemark(peer.name, peer.build);
        if (!why.empty()) notes.push_back(fmt::format("{}. {}", why, cluster::kSameBuild));
    }
    const auto cut = std::ranges::count_if(list.hearing.peers, [](const fleet::Peer& peer) {
        return peer.cables.size() >= fleet::kMostCables;
    });
    if (cut > 0) {
        notes.push_back(fmt::format(
            "{} hosts announce only {} of their cables: the list of cables between other hosts may "
            "lack some",
            cut, fleet::kMostCables));
    }
    for (const fleet::Wire& wire : list.hearing.wires) {
        if (wire.trouble.empty()) continue;
        notes.push_back(
            fmt::format("{}: discovery does not work on it: {}", wire.name, wire.trouble));
    }
    for (const fleet::Stranger& stranger : list.hearing.strangers) {
        notes.push_back(fmt::format(
            "{}: {} belongs to {}", stranger.interface, stranger.address,
            stranger.other_key ? "a cluster with another key" : "another version of weft"));
    }
    if (list.hearing.peers.empty()) {
        notes.emplace_back(
            "no other host answers. Does 'weft up' run there, with this key? Is UDP "
            "port 7000 open?");
    }
    return notes;
}

Json HostsJson(const HostList& list) {
    const cluster::Build own;
    Json hosts = Json::array();
    hosts.push_back({{"name", list.self.name},
                     {"this_host", true},
                     {"memory_bytes", list.self.memory_bytes},
                     {"device", list.self.device},
                     {"version", own.version},
                     {"commit", own.commit},
                     {"protocol_hash", own.protocol_hash}});
    AddJobs(hosts.back(), list.own_jobs);
    Json cables = Json::array();
    for (size_t i = 0; i < list.hearing.peers.size(); ++i) {
        const fleet::Peer& peer = list.hearing.peers[i];
        const fleet::ReportedCable* best = fleet::BestCable(peer, list.hearing.wires);
        hosts.push_back({{"name", peer.name},
                         {"this_host", false},
                         {"memory_bytes", peer.memory_bytes},
                         {"device", peer.device},
                         {"version", peer.build.version},
                         {"commit", peer.build.commit},
                         {"protocol_hash", peer.build.protocol_hash},
                         {"can_work_with_this_host", cluster::CanWorkTogether(peer.build, own)},
                         {"address", best == nullptr ? "" : fleet::WorkerAddress(peer, *best)}});
        if (i < list.peer_jobs.size()) AddJobs(hosts.back(), list.peer_jobs[i]);
        for (const fleet::ReportedCable& cable : peer.heard) {
            cables.push_back({{"from", list.self.name},
                              {"from_interface", cable.interface},
                              {"to", peer.name},
                              {"to_interface", cable.peer_interface},
                              {"to_address", cable.peer_address},
                              {"mbps", fleet::CableMbps(cable, list.hearing.wires)},
                              {"rdma", HasRdma(list, cable)}});
        }
    }
    for (const fleet::FoundHost& host : list.beyond) {
        hosts.push_back({{"name", host.name},
                         {"this_host", false},
                         {"address", host.address},
                         {"via", host.via}});
    }
    for (const FarCable& each : FarCables(list)) {
        cables.push_back({{"from", each.from->name},
                          {"from_interface", each.cable->interface},
                          {"to", each.to->name},
                          {"to_interface", each.cable->peer_interface},
                          {"mbps", each.cable->mbps},
                          {"rdma", each.cable->rdma}});
    }
    return {{"hosts", hosts}, {"cables", cables}, {"notes", Notes(list)}};
}

Result<HostList> LookForHosts(const HostsFlags& flags) {
    HostList list;
    WEFT_ASSIGN(list.file, fleet::ReadClusterFile(flags.cluster));
    if (!flags.key_file.empty()) list.file.key = flags.key_file;
    list.self = OwnFacts(0);
    WEFT_ASSIGN(list.hearing, fleet::QueryHosts(flags.cluster, list.file, list.self));
    WEFT_ASSIGN(const fleet::Bytes key, cluster::ReadKeyFile(list.file.key));
    const std::vector<fleet::FoundHost> near = fleet::ChooseHosts({}, list.hearing).hosts;
    list.beyond = fleet::ReachBeyond(near, list.self.name, key, Deadline::In(fleet::kAskMs)).hosts;
    return list;
}

Status ListHosts(HostsFlags& flags) {
    WEFT_ASSIGN(HostList list, LookForHosts(flags));
    RequestJobs(list);
    if (flags.json) {
        PrintJson(HostsJson(list));
        return {};
    }
    PrintHosts(list);
    PrintJobs(list);
    if (!list.hearing.peers.empty()) PrintCables(list);
    FlushOut();
    for (const std::string& note : Notes(list)) PrintErr("weft: {}\n", note);
    return {};
}

// ---- Changing -----------------------------------------------------------------------------------

Status AddHost(HostsFlags& flags) {
    const auto notice = [](const std::string& line) { PrintErr("weft: {}\n", line); };
    WEFT_ASSIGN(const fleet::AddedHost added, fleet::AddHost(flags.cluster, flags.ssh, notice));
    const fleet::RemoteHost& host = added.host;
    const bool systemd = added.up == fleet::UpKind::kSystemd;
    if (flags.json) {
        PrintJson({{"name", host.name},
                   {"ssh", flags.ssh},
                   {"program", added.program},
                   {"systemd", systemd},
                   {"linger", host.linger}});
        return {};
    }
    PrintOut("{} is a host of cluster '{}': {} up\n", host.name, flags.cluster, added.program);
    if (!systemd) {
        PrintOut("It runs until {} reboots, because the user has no systemd there\n", host.name);
    } else if (!host.linger) {
        PrintOut(
            "It runs while you are logged in there. To keep it running: ssh {} sudo loginctl "
            "enable-linger\n",
            flags.ssh);
    }
    PrintOut(
        "To serve a model from this host, and wait for hosts that are away: weft serve MODEL "
        "--cluster {} --restart (with --unit: as a service)\n",
        flags.cluster);
    const auto findings = fleet::RunDoctor(flags.ssh, added.program);
    if (findings.ok()) {
        PrintOut("\n{}", PrintableLines(*findings));
    } else {
        PrintErr("weft: 'weft doctor' failed on the new host: {}\n", findings.error().message);
    }
    return {};
}

Status RemoveHost(HostsFlags& flags) {
    WEFT_ASSIGN(const fleet::RemovedHost removed, fleet::RemoveHost(flags.cluster, flags.ssh));
    const std::string& name = removed.host.name;
    const bool stopped = removed.stopped && removed.stopped->ok();
    if (flags.json) {
        PrintJson({{"removed", name}, {"stopped", stopped}});
    } else {
        PrintOut("removed {}\n", name);
    }
    if (!stopped) {
        PrintErr("weft: 'weft up' still runs on that host, with the key{}{}\n",
                 removed.stopped ? ": " : "",
                 removed.stopped ? removed.stopped->error().message : "");
    } else if (!**removed.stopped) {
        PrintErr("weft: {} keeps the key: another host uses it from the same home folder\n", name);
    }
    return {};
}

void AddClusterName(const Command& command, HostsFlags& flags) {
    command.ShowDefaults().AddOption("--cluster NAME", flags.cluster, "Name of the cluster");
    AddJson(command, flags.json);
    command.Footer(kHostsFooter);
}

}  // namespace

void AddHosts(const Command& app, int& status) {
    auto flags = std::make_shared<HostsFlags>();
    const Command hosts =
        app.AddCommand("hosts", "List the hosts of a cluster, their jobs and cables", kHostsFooter);
    hosts.NeedsCommand();
    const Command list =
        hosts.AddCommand("list", "List the hosts that discovery finds, their jobs and cables");
    list.AddOption("--key-file", flags->key_file,
                   "Path of the cluster key, if it is not in the configuration folder");
    AddClusterName(list, *flags);
    SetCallback(list, flags, flags->json, status, ListHosts);
    const Command add = hosts.AddCommand(
        "add",
        "Add a host to the cluster by ssh: copy program and key, and start 'weft up' as a service");
    add.AddOption("HOST", flags->ssh, "USER@HOST or HOST, as for ssh").Required();
    AddClusterName(add, *flags);
    SetCallback(add, flags, flags->json, status, AddHost);
    const Command remove = hosts.AddCommand(
        "remove", "Remove a host from the cluster file, stop its 'weft up' and delete its key");
    remove.AddOption("HOST", flags->ssh, "Name of the host in the cluster file, or USER@HOST")
        .Required();
    AddClusterName(remove, *flags);
    SetCallback(remove, flags, flags->json, status, RemoveHost);
}

}  // namespace weft::cli
