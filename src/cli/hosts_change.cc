// weft hosts add and remove: a host becomes one of the cluster by ssh, or ceases to be.
#include "cli/hosts.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "base/printable.h"
#include "cli/output.h"
#include "cluster/build.h"
#include "cluster/handshake.h"
#include "fleet/remote.h"
#include "fleet/words.h"

namespace weft::cli {
namespace {

// What another host prints, for this terminal.
std::string PlainLines(const std::string& text) {
    std::string plain;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.ends_with('\r')) line.pop_back();
        plain += Printable(line) + "\n";
    }
    return plain;
}

// The cluster's key, made where there is none yet.
Result<std::string> KeyToGive(const HostsFlags& flags, const fleet::ClusterFile& file) {
    if (::access(file.key.c_str(), F_OK) != 0) {
        WEFT_TRY(fleet::WriteKey(file.key, fleet::NewKeyWords()));
        PrintErr("weft: created the key of cluster '{}': {}\n", flags.cluster, file.key);
    }
    WEFT_ASSIGN(const fleet::Bytes key, cluster::ReadKeyFile(file.key));
    return std::string(reinterpret_cast<const char*>(key.data()), key.size());
}

// The program that is to run there: the one that is, if it is this very one, else a copy.
Result<std::string> BringProgram(const HostsFlags& flags, const fleet::RemoteHost& host) {
    const std::string mine = cluster::BuildText({});
    if (!host.program.empty() && host.version == mine) return host.program;
    utsname here{};
    ::uname(&here);
    if (host.machine != here.machine) {
        return MakeError(ErrorCode::kUnsupported,
                         "{} has architecture {}, this host {}: build weft there, and add the host "
                         "again",
                         flags.ssh, host.machine, here.machine);
    }
    PrintErr("weft: {}: {}; copying {} to it\n", flags.ssh,
             host.program.empty() ? "no weft is there" : host.program + " is " + host.version,
             mine);
    return fleet::CopyProgram(flags.ssh);
}

// Into the cluster's file. Where it names nobody yet, those that are found now come along: from
// here on it is they who are the cluster.
Status NoteHost(const HostsFlags& flags, fleet::ClusterFile file, const fleet::RemoteHost& host) {
    if (file.hosts.empty()) {
        WEFT_ASSIGN(const HostList list, LookForHosts(flags));
        for (const fleet::Peer& peer : list.hearing.peers) {
            const auto known = std::ranges::find(file.hosts, peer.name, &fleet::ClusterHost::name);
            if (peer.name == host.name || known != file.hosts.end()) continue;
            file.hosts.push_back({peer.name, "", ""});
        }
    }
    auto known = std::ranges::find(file.hosts, host.name, &fleet::ClusterHost::name);
    if (known == file.hosts.end()) {
        file.hosts.push_back({host.name, "", flags.ssh});
    } else {
        known->ssh = flags.ssh;
    }
    return fleet::WriteClusterFile(flags.cluster, file);
}

}  // namespace

Status AddHost(HostsFlags& flags) {
    WEFT_ASSIGN(const fleet::ClusterFile file, fleet::ReadClusterFile(flags.cluster));
    WEFT_ASSIGN(const fleet::RemoteHost host, fleet::ProbeHost(flags.ssh));
    if (host.name == fleet::OwnName()) {
        PrintErr("weft: {} has the name {}, as this host has: rename one of them\n", flags.ssh,
                 host.name);
    }
    WEFT_ASSIGN(const std::string key, KeyToGive(flags, file));
    WEFT_ASSIGN(const std::string program, BringProgram(flags, host));
    WEFT_ASSIGN(const fleet::UpKind kind,
                fleet::StartUp(flags.ssh, flags.cluster, key, program, host.systemd));
    WEFT_TRY(NoteHost(flags, file, host));
    const bool systemd = kind == fleet::UpKind::kSystemd;
    if (flags.json) {
        PrintJson({{"name", host.name},
                   {"ssh", flags.ssh},
                   {"program", program},
                   {"systemd", systemd},
                   {"linger", host.linger}});
        return {};
    }
    PrintOut("{} is a host of cluster '{}': {} up\n", host.name, flags.cluster, program);
    if (!systemd) {
        PrintOut("It runs until {} reboots, because the user has no systemd there\n", host.name);
    } else if (!host.linger) {
        PrintOut(
            "It runs while you are logged in there. To keep it running: ssh {} sudo loginctl "
            "enable-linger\n",
            flags.ssh);
    }
    PrintOut(
        "To serve a model from this host, also after hosts were away: weft serve MODEL "
        "--cluster {} --restart (with --unit: as a service)\n",
        flags.cluster);
    const auto findings = fleet::AskDoctor(flags.ssh, program);
    if (findings.ok()) {
        PrintOut("\n{}", PlainLines(*findings));
    } else {
        PrintErr("weft: 'weft doctor' did not run there: {}\n", findings.error().message);
    }
    return {};
}

Status RemoveHost(HostsFlags& flags) {
    WEFT_ASSIGN(fleet::ClusterFile file, fleet::ReadClusterFile(flags.cluster));
    const auto host = std::ranges::find_if(file.hosts, [&](const fleet::ClusterHost& each) {
        return each.name == flags.ssh || each.ssh == flags.ssh;
    });
    if (host == file.hosts.end()) {
        WEFT_ASSIGN(const fleet::ClusterPaths paths, fleet::PathsOf(flags.cluster));
        return MakeError(ErrorCode::kNotFound, "{} names no host '{}'", paths.file, flags.ssh);
    }
    const fleet::ClusterHost gone = *host;
    file.hosts.erase(host);
    WEFT_TRY(fleet::WriteClusterFile(flags.cluster, file));
    Result<bool> stopped = false;
    if (!gone.ssh.empty()) stopped = fleet::StopUp(gone.ssh, flags.cluster);
    if (flags.json) {
        PrintJson({{"removed", gone.name}, {"stopped", !gone.ssh.empty() && stopped.ok()}});
    } else {
        PrintOut("removed {}\n", gone.name);
    }
    if (gone.ssh.empty() || !stopped.ok()) {
        PrintErr("weft: 'weft up' still runs there{}{}, with the key\n", stopped.ok() ? "" : ": ",
                 stopped.ok() ? "" : stopped.error().message);
    } else if (!*stopped) {
        PrintErr("weft: {} keeps the key: another host uses it from the same home folder\n",
                 gone.name);
    }
    return {};
}

}  // namespace weft::cli
