#include "fleet/hosts_change.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>

#include "base/file_lock.h"
#include "cluster/join/build.h"
#include "cluster/join/handshake.h"
#include "fleet/find.h"
#include "fleet/key_phrase.h"

namespace weft::fleet {
namespace {

Result<std::string> FindOrMakeKey(const std::string& cluster, const std::string& path,
                                  const ChangeNotice& notice) {
    if (::access(path.c_str(), F_OK) != 0) {
        WEFT_ASSIGN(const bool made, MakeKey(path, NewKeyPhrase()));
        if (made) notice(fmt::format("created the key of cluster '{}': {}", cluster, path));
    }
    WEFT_ASSIGN(const Bytes key, cluster::ReadKeyFile(path));
    return std::string(reinterpret_cast<const char*>(key.data()), key.size());
}

// The path of this build on the host. Copies this program there if it is missing.
Result<std::string> BringProgram(const std::string& ssh, const RemoteHost& host,
                                 const ChangeNotice& notice) {
    const std::string own = cluster::BuildText({});
    if (!host.program.empty() && host.version == own) return host.program;
    utsname here{};
    ::uname(&here);
    if (host.machine != here.machine) {
        return MakeError(ErrorCode::kUnsupported,
                         "{} has architecture {}, this host {}: build weft there, and add the host "
                         "again",
                         ssh, host.machine, here.machine);
    }
    notice(fmt::format(
        "{}: {}; copying {} there", ssh,
        host.program.empty() ? "no weft is there" : host.program + " is " + host.version, own));
    return CopyProgram(ssh);
}

// Whether `ssh` reaches the host that the file lists under the same name. One that is away may be
// it.
Status CheckSameHost(const ClusterFile& file, const RemoteHost& host, const std::string& ssh) {
    const auto listed = std::ranges::find(file.hosts, host.name, &ClusterHost::name);
    if (listed == file.hosts.end() || listed->ssh.empty() || listed->ssh == ssh) return {};
    const auto other = ProbeHost(listed->ssh);
    if (!other.ok() || other->kernel == host.kernel) return {};
    return MakeError(ErrorCode::kUsage,
                     "{} and {} are two hosts that call themselves {}: give one of them another "
                     "name ('sudo hostnamectl set-hostname NAME' there), and add it again",
                     listed->ssh, ssh, host.name);
}

// A file without hosts means all hosts that answer. Before the first host is added, the hosts that
// answer now are written into it, so that they stay in the cluster.
Status WriteHost(const std::string& cluster, const std::string& name, const std::string& ssh) {
    WEFT_ASSIGN(const FileLock lock, LockClusterFile(cluster));
    WEFT_ASSIGN(ClusterFile file, ReadClusterFile(cluster));
    if (file.hosts.empty()) {
        WEFT_ASSIGN(const Hearing hearing, QueryHosts(cluster, file, {OwnName(), "", 0, 0}));
        for (const Peer& peer : hearing.peers) {
            const auto known = std::ranges::find(file.hosts, peer.name, &ClusterHost::name);
            if (peer.name == name || known != file.hosts.end()) continue;
            file.hosts.push_back({peer.name, "", ""});
        }
    }
    const auto known = std::ranges::find(file.hosts, name, &ClusterHost::name);
    if (known == file.hosts.end()) {
        file.hosts.push_back({name, "", ssh});
    } else {
        known->ssh = ssh;
    }
    return WriteClusterFile(cluster, file);
}

Result<ClusterHost> TakeHostOut(const std::string& cluster, const std::string& name) {
    WEFT_ASSIGN(const FileLock lock, LockClusterFile(cluster));
    WEFT_ASSIGN(ClusterFile file, ReadClusterFile(cluster));
    const auto found = std::ranges::find_if(
        file.hosts, [&](const ClusterHost& each) { return each.name == name || each.ssh == name; });
    if (found == file.hosts.end()) {
        WEFT_ASSIGN(const ClusterPaths paths, PathsOf(cluster));
        return MakeError(ErrorCode::kNotFound, "{} names no host '{}'", paths.file, name);
    }
    ClusterHost host = *found;
    file.hosts.erase(found);
    WEFT_TRY(WriteClusterFile(cluster, file));
    return host;
}

}  // namespace

Result<AddedHost> AddHost(const std::string& cluster, const std::string& ssh,
                          const ChangeNotice& notice) {
    WEFT_ASSIGN(const ClusterFile file, ReadClusterFile(cluster));
    AddedHost added;
    WEFT_ASSIGN(added.host, ProbeHost(ssh));
    const std::string& name = added.host.name;
    if (name == OwnName()) {
        notice(fmt::format("{} calls itself {}, as this host does: give one of them another name",
                           ssh, name));
    }
    WEFT_TRY(CheckSameHost(file, added.host, ssh));
    WEFT_ASSIGN(const std::string key, FindOrMakeKey(cluster, file.key, notice));
    WEFT_ASSIGN(added.program, BringProgram(ssh, added.host, notice));
    WEFT_ASSIGN(added.up, StartUp(ssh, cluster, key, added.program, added.host.systemd));
    WEFT_TRY(WriteHost(cluster, name, ssh));
    return added;
}

Result<RemovedHost> RemoveHost(const std::string& cluster, const std::string& name) {
    WEFT_ASSIGN(const ClusterHost host, TakeHostOut(cluster, name));
    RemovedHost removed{host, std::nullopt};
    if (!removed.host.ssh.empty()) removed.stopped = StopUp(removed.host.ssh, cluster);
    return removed;
}

}  // namespace weft::fleet
